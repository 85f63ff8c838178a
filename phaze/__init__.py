"""phaze: the best accelerator, and the best way to spread a model over N of them, with a proof."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phaze.api import (
        Compared,
        Evaluated,
        Explored,
        Planned,
        Swept,
        Table,
        Validated,
        compare,
        evaluate,
        explore,
        plan,
        sweep,
        validate,
    )
    from phaze.workload.exported.trace import from_torch

__all__ = [
    "Compared",
    "Evaluated",
    "Explored",
    "Planned",
    "Swept",
    "Table",
    "Validated",
    "__version__",
    "compare",
    "evaluate",
    "explore",
    "from_torch",
    "plan",
    "sweep",
    "validate",
]

__version__ = "0.1.0"

_ELSEWHERE = {"from_torch": "phaze.workload.exported.trace"}


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for: `import phaze` alone stays cheap."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    if name == "explore":  # a room that can be called
        return import_module("phaze.explore")
    return getattr(import_module(_ELSEWHERE.get(name, "phaze.api")), name)


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})
