"""phaze: the best accelerator, and the best way to spread a model over N of them, with a proof."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phaze.workload.exported.trace import from_torch

__all__ = ["__version__", "from_torch"]

__version__ = "0.1.0"

_HOMES = {"from_torch": "phaze.workload.exported.trace"}


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for: `import phaze` alone stays cheap."""
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_HOMES[name]), name)
