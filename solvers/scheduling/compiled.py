"""Compilation of the inner loop: numba where it is there, the plain functions where it is not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """The function compiled at its first call, or as it is without numba.

    Builds are kept in the user's cache folder (in numba's own, if NUMBA_CACHE_DIR names one) under a digest
    of this package's sources, because numba itself only looks at the file of the function; where the folder
    cannot be written, every process compiles anew.
    """
    try:
        import numba
    except ImportError:
        return function
    given = numba.config.CACHE_DIR
    with suppress(RuntimeError):  # no folder to keep builds in
        try:
            numba.config.CACHE_DIR = given or str(_folder())
            return numba.njit(cache=True, error_model="numpy")(function)  # type: ignore[no-any-return]
        finally:
            numba.config.CACHE_DIR = given
    return numba.njit(error_model="numpy")(function)  # type: ignore[no-any-return]


def _folder() -> Path:
    """Where builds of these very sources are kept."""
    here = Path(__file__).parent
    digest = sha256(b"".join(path.read_bytes() for path in sorted(here.glob("kernel*.py"))))
    return _user_cache() / "phaze" / f"kernel-{digest.hexdigest()[:16]}"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))


def packable(ix: object) -> bool:
    return True


def compiled_in_time(deadline: float) -> bool:
    return True
