"""Functions as machine code: compiled by numba, kept in the user's cache folder, optionally built in a thread.

Plain and compiled functions do the same to the same arrays, so it matters for no answer when one takes over
from the other, or whether numba is there at all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from threading import Lock
from types import FunctionType, ModuleType
from typing import Any

from phaze.background import in_background

_SETTING = Lock()
"""Held while the setting of numba that says where builds are kept is ours."""

Names = Mapping[str, Any]
"""The names of a module."""


class Background:
    """The functions of some modules, which share no name for two things, as fast as they are by now."""

    def __init__(self, sample: Callable[[Names], object], *parts: ModuleType) -> None:
        """Start to compile all that `sample` calls, for the types it calls with."""
        self._plain = {name: value for part in parts for name, value in vars(part).items()}
        self._build: Future[Names] = in_background(partial(_build, sample, *parts), parts[-1].__name__)

    @property
    def names(self) -> Names:
        """Compiled, if that is done and went well (such as where numba is installed)."""
        return self._build.result() if self.is_there else self._plain

    @property
    def is_there(self) -> bool:
        """Whether the build is done and went well."""
        return self._build.done() and self._build.exception() is None

    def wait(self) -> None:
        """Until the build has ended, well or not."""
        self._build.exception()


LOAD_AFTER_S, BUILD_AFTER_S = 0.2, 2.0
"""Seconds spent in plain functions in a process from which on it is worth to load compiled ones, and to build them."""


class OnceWorth:
    """The functions of a module in one process: plain at first, machine code once that would have paid."""

    def __init__(self, sample: Callable[[Names], object], part: ModuleType) -> None:
        """Nothing is built before there is reason to; `sample` calls all functions for their types."""
        self._sample, self._part = sample, part
        self._spent_s = 0.0
        self._built: Background | None = None

    @cached_property
    def _worth_s(self) -> float:
        return LOAD_AFTER_S if is_kept(self._part) else BUILD_AFTER_S

    @property
    def is_worth(self) -> bool:
        """Whether so much time was spent in plain functions."""
        return self._spent_s >= self._worth_s

    def spend(self, seconds: float) -> None:
        """Count time that plain functions took."""
        self._spent_s += seconds

    @property
    def names(self) -> Names:
        """Compiled functions, built or loaded at the first call; plain ones where that does not go well."""
        return self._build().names

    @property
    def is_fast(self) -> bool:
        """Whether machine code is worth it, and there is some: where there is none, loops over arrays are slow."""
        return self.is_worth and self._build().is_there

    def _build(self) -> Background:
        if self._built is None:
            self._built = Background(self._sample, self._part)
            self._built.wait()
        return self._built


def _build(sample: Callable[[Names], object], *parts: ModuleType) -> Names:
    names = compiled(*parts)
    sample(names)
    return names


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


def is_kept(*parts: ModuleType) -> bool:
    """Whether these very modules seem to have been compiled before, so that only loading is left to do."""
    return (
        bool(os.environ.get("NUMBA_CACHE_DIR")) or _folder(*(str(part.__file__) for part in parts)).is_dir()
    )


class PlainSeconds:
    """Seconds that plain functions of some modules took, in all processes together as far as a file can tell.

    It lies beside the builds of these very sources, a byte for every second, so that processes that end, however they
    do, and such side by side add up.
    """

    def __init__(self, *parts: ModuleType) -> None:
        """Nothing is spent here yet."""
        folder = _folder(*(str(part.__file__) for part in parts))
        self._file = folder.with_name(f"{folder.name}.seconds")
        self._told_s = 0.0
        with suppress(OSError):
            self._told_s = float(self._file.stat().st_size)
        self._here_s = self._untold_s = 0.0

    @property
    def total_s(self) -> float:
        """All that is known of."""
        return self._told_s + self._here_s

    def add(self, seconds: float) -> None:
        """Add what was spent here; others that begin later know of whole seconds."""
        self._here_s += seconds
        self._untold_s += seconds
        if whole := int(self._untold_s):
            self._untold_s -= whole
            with suppress(OSError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with self._file.open("ab") as file:
                    file.write(b"." * whole)


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
    """Folder of the builds of these very sources."""
    digest = sha256(b"".join(Path(source).read_bytes() for source in sources))
    return _user_cache() / "phaze" / f"kernel-{digest.hexdigest()[:16]}"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
