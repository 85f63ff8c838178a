"""Functions compiled in a thread, plain ones until that is done: both do the same, so it matters for no answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import ModuleType
from typing import Any

from .compiled import compiled

Names = Mapping[str, Any]
"""The names of a module."""


class Background:
    """The functions of a module, as fast as they are by now."""

    def __init__(self, module: ModuleType, sample: Callable[[Names], object]) -> None:
        """Start to compile all that `sample` calls, for the types it calls with."""
        self._plain = vars(module)
        worker = ThreadPoolExecutor(1, thread_name_prefix=module.__name__)
        self._build: Future[Names] = worker.submit(_build, module, sample)
        worker.shutdown(wait=False)

    @property
    def names(self) -> Names:
        """Compiled, if that is done and went well (such as where numba is installed)."""
        done = self._build.done() and self._build.exception() is None
        return self._build.result() if done else self._plain


def _build(module: ModuleType, sample: Callable[[Names], object]) -> Names:
    names = compiled(module)
    sample(names)
    return names
