"""Search over the design space: bounds, frontier, certificate; and, called, the main job: `phaze.explore(...)`.

A package and a function cannot both be `phaze.explore`, so the package can be called; see `phaze.api.explore`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import Signature, signature
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A module that calls the function of the same name."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - those of `phaze.api.explore`
        """Find the best architecture and placement: see `phaze.api.explore`."""
        return import_module("phaze.api").explore(*arguments, **named)

    @property
    def __signature__(self) -> Signature:
        """That of the function, for `help` and notebooks."""
        return signature(import_module("phaze.api").explore)


sys.modules[__name__].__class__ = _Callable
