"""One thing varied, the best plan for every value of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pydantic import Field

from phaze.errors import InfeasibleError
from phaze.explore.planning.document import PlanDocument
from phaze.explore.record import Record

WHATIF_SCHEMA = "dse-whatif/1"


class WhatIfPoint(Record):
    """The best plan for one value, or why there is none."""

    value: str
    plan: PlanDocument | None
    reason: str | None = Field(default=None, description="why no plan fits")


class WhatIfDocument(Record):
    """The best plans for all values of one thing, everything else as asked."""

    schema_: str = Field(default=WHATIF_SCHEMA, alias="schema")
    varied: str
    points: list[WhatIfPoint]


def vary(name: str, values: Iterable[str], planned: Callable[[str], PlanDocument]) -> WhatIfDocument:
    """`planned` gives the best plan for a value; where none fits, the point says why. Other errors pass through."""
    return WhatIfDocument(varied=name, points=[_point(value, planned) for value in values])


def _point(value: str, planned: Callable[[str], PlanDocument]) -> WhatIfPoint:
    found: dict[str, Any] = {}
    try:
        found["plan"] = planned(value)
    except InfeasibleError as error:
        found = {"plan": None, "reason": str(error)}
    return WhatIfPoint(value=value, **found)
