"""phaze from Python: the verbs of the command line as functions, with typed results that show themselves."""

from __future__ import annotations

from phaze.api.evaluation_verbs import Compared, Evaluated, Planned, Validated, validate
from phaze.api.result_tables import Table
from phaze.api.search_verbs import Explored, Swept
from phaze.api.verbs import compare, evaluate, explore, plan, sweep

__all__ = [
    "Compared",
    "Evaluated",
    "Explored",
    "Planned",
    "Swept",
    "Table",
    "Validated",
    "compare",
    "evaluate",
    "explore",
    "plan",
    "sweep",
    "validate",
]
