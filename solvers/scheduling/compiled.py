"""The inner loop as machine code: built by numba in the background once enough states ask for it.

Plain and compiled functions do the same to the same arrays, so it does not matter for any answer when one
takes over from the other, or whether numba is there at all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Lock
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from . import kernel, kernel_states
from .kernel_arrays import Arrays, Memory

WORTH_S = 0.2
"""Time spent in plain functions in this process from which on numba is worth its start-up."""


_SETTING = Lock()
"""Held while the setting of numba that says where builds are kept is ours."""


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

    @property
    def kernel(self) -> Kernel:
        """Compiled if the build is finished and went well."""
        built = self._build is not None and self._build.done() and self._build.exception() is None
        return self._build.result() if built and self._build is not None else PLAIN

    def report(self, spent_s: float, sample: Callable[[Kernel], None]) -> None:
        """Add up time spent; the first time that it is much, start the build, with a call to compile for."""
        self._spent_s += spent_s
        if self._build is None and self._spent_s >= WORTH_S:
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


def compiled(*parts: ModuleType) -> dict[str, Any]:
    """The names of some modules, their functions compiled, each at its first call, and calling one another."""
    import numba

    scope: dict[str, Any] = {name: value for part in parts for name, value in vars(part).items()}
    own = [f for part in parts for f in vars(part).values() if isinstance(f, FunctionType)]
    folder = _folder(*(str(part.__file__) for part in parts))
    for function in dict.fromkeys(own):
        copy = FunctionType(function.__code__, scope, function.__name__)
        copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
        scope[function.__name__] = _jit(numba, copy, folder)
    return scope


def _jit(numba: ModuleType, function: FunctionType, folder: Path) -> Callable[..., Any]:
    """Compiled at its first call; kept in a folder, or nowhere if that cannot be written.

    NUMBA_CACHE_DIR names another folder. Ours carries a digest of the sources, because numba only looks at
    the file of the function itself.
    """
    with suppress(RuntimeError), _SETTING:
        given = numba.config.CACHE_DIR
        try:
            numba.config.CACHE_DIR = given or str(folder)
            kept: Callable[..., Any] = numba.njit(cache=True, error_model="numpy")(function)
            return kept
        finally:
            numba.config.CACHE_DIR = given
    unkept: Callable[..., Any] = numba.njit(error_model="numpy")(function)
    return unkept


def _folder(*sources: str) -> Path:
    """Where builds of these very sources are kept."""
    digest = sha256(b"".join(Path(source).read_bytes() for source in sources))
    return _user_cache() / "phaze" / f"kernel-{digest.hexdigest()[:16]}"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
