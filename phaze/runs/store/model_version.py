"""The version of the model: whatever can change a figure, beside what is asked."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from phaze.digest import digest

_PACKAGES = ("phaze", "phaze.solvers", "phaze.workloads", "phaze.arch_templates")
_LIBRARIES = ("numpy", "numba", "llvmlite", "scipy", "networkx")
_FILES = (".py", ".yaml", ".json", ".csv")
# Rooms that ask, tell and keep, but work nothing out.
_TELLING = frozenset({"__pycache__", "api", "cli", "inputs", "report", "runs", "testing", "validation"})


@cache
def code_digest() -> str:
    """Digest, in hexadecimal, of every file of the product that can decide a figure."""
    folders = sorted({folder for name in _PACKAGES for folder in import_module(name).__path__})
    return digest(*((name, path.read_bytes()) for folder in folders for name, path in _files(folder)))


@cache
def model_version() -> str:
    """Digest of that code, of the libraries that calculate, and of the kind of processor.

    Processors count because a library may take other instructions, which round differently, on another one.
    """
    libraries = {name: _version(name) for name in _LIBRARIES}
    return digest(code_digest(), libraries, platform.python_version(), platform.machine(), _instructions())


def _files(folder: str) -> Iterator[tuple[str, Path]]:
    """Every file that can decide a figure, by its place below its package."""
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _TELLING)
        for name in sorted(names):
            if name.endswith(_FILES):
                yield f"{os.path.relpath(where, folder)}/{name}", Path(where, name)


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def _instructions() -> tuple[str, ...]:
    """Extensions of the processor that NumPy makes use of."""
    core = import_module("numpy._core._multiarray_umath")
    features: dict[str, bool] = getattr(core, "__cpu_features__", {})
    return tuple(sorted(name for name, there in features.items() if there))
