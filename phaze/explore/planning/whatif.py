"""One thing varied, the best plan for every value of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from phaze.errors import InfeasibleError
from phaze.explore.document import Manifest
from phaze.explore.manifest import manifest
from phaze.explore.planning.document import PlanDocument
from phaze.explore.record import Record

WHATIF_SCHEMA = "dse-whatif/3"


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
    manifest: Manifest | None = Field(default=None, description="none in dse-whatif/1")


def vary(name: str, values: Iterable[str], planned: Callable[[str], PlanDocument]) -> WhatIfDocument:
    """`planned` gives the best plan for a value; where none fits, the point says why. Other errors pass through."""
    started = datetime.now(UTC)
    points = [_point(value, planned) for value in values]
    wall_time_s = (datetime.now(UTC) - started).total_seconds()
    return WhatIfDocument(varied=name, points=points, manifest=manifest(started, wall_time_s, seed=0))


def _point(value: str, planned: Callable[[str], PlanDocument]) -> WhatIfPoint:
    found: dict[str, Any] = {}
    try:
        found["plan"] = planned(value)
    except InfeasibleError as error:
        found = {"plan": None, "reason": str(error)}
    return WhatIfPoint(value=value, **found)
