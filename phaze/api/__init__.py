"""phaze from Python: the verbs of the command line as functions, with typed results that show themselves."""

from __future__ import annotations

from phaze.api.explored import Explored, Swept
from phaze.api.given import compare, evaluate, plan, validate
from phaze.api.judged import Compared, Evaluated, Planned, Validated
from phaze.api.search import explore, sweep
from phaze.api.table import Table

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
