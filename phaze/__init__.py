"""phaze: the best accelerator, and the best way to spread a model over N of them, with a proof.

`phaze.explore` is a function and a room at once: a package and a function cannot both have the name, so the package
can be called.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect import Signature

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
    from phaze.workload.torch_export.torch_tracing import from_torch

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

_ELSEWHERE = {"from_torch": "phaze.workload.torch_export.torch_tracing"}


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


class _CallableRoom(ModuleType):
    """The room `phaze.explore`, which calls the function of the same name."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - those of `phaze.api.explore`
        """Find the best architecture and plan: see `phaze.api.explore`."""
        return import_module("phaze.api").explore(*arguments, **named)

    @property
    def __signature__(self) -> Signature:
        """That of the function, for `help` and notebooks."""
        from inspect import signature

        return signature(import_module("phaze.api").explore)


class _Face(ModuleType):
    """This package: it makes the room callable as soon as the import system binds it here."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "explore" and isinstance(value, ModuleType):
            value.__class__ = _CallableRoom
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face
