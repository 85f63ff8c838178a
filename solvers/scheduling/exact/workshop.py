"""The inner loop of the search, plain at first: built as machine code in the background once time was spent on it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, cached_property
from typing import NamedTuple

from ..machine_code import compiled, is_kept
from . import kernel, kernel_states
from .kernel_arrays import Arrays, Memory

LOAD_AFTER_S, BUILD_AFTER_S = 0.2, 2.0
"""Time spent in plain functions in this process from which on numba is worth half a second to load what it built
before, and ten to build it."""


class Kernel(NamedTuple):
    """What the search calls; see `kernel` for what each does."""

    search: Callable[[Arrays, Memory, int, int, int], int]
    unpack: Callable[[Arrays, Memory, int], int]
    close: Callable[[Arrays, Memory, int, int, int], None]


PLAIN = Kernel(kernel.search, kernel.unpack, kernel.close)


class Workshop:
    """The fastest kernel at hand, and the build of a faster one."""

    def __init__(self) -> None:
        """Nothing is built before there is reason to."""
        self._spent_s = 0.0
        self._build: Future[Kernel] | None = None

    @cached_property
    def _worth_s(self) -> float:
        return LOAD_AFTER_S if is_kept(kernel_states, kernel) else BUILD_AFTER_S

    @property
    def kernel(self) -> Kernel:
        """Compiled if the build is finished and went well."""
        built = self._build is not None and self._build.done() and self._build.exception() is None
        return self._build.result() if built and self._build is not None else PLAIN

    def report(self, spent_s: float, sample: Callable[[Kernel], None]) -> None:
        """Add up time spent; the first time that it is much, start the build, with a call to compile for."""
        self._spent_s += spent_s
        if self._build is None and self._spent_s >= self._worth_s:
            workers = ThreadPoolExecutor(1, thread_name_prefix="kernel")
            self._build = workers.submit(_compile, sample)
            workers.shutdown(wait=False)

    def wait(self) -> None:
        """Until a build that has begun has ended, well or not."""
        if self._build is not None:
            self._build.exception()


@cache
def workshop() -> Workshop:
    """The one of this process."""
    return Workshop()


def _compile(sample: Callable[[Kernel], None]) -> Kernel:
    """All functions compiled, for the types in `sample`; raises what numba raises."""
    scope = compiled(kernel_states, kernel)
    built = Kernel(scope["search"], scope["unpack"], scope["close"])
    sample(built)
    return built
