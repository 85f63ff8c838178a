"""What has to be the same wherever parts of one answer are worked out."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

CODE = "code of phaze-dse"
_ROOMS = ("phaze", "phaze.solvers", "phaze.workloads", "phaze.arch_templates")  # may be installed apart


@cache
def versions() -> Mapping[str, str]:
    """Versions of this process's Python and of what its figures come from, and a digest of the code itself."""
    names = ("phaze-dse", "numpy", "numba")
    return {"python": platform.python_version(), CODE: _digest()} | {name: version(name) for name in names}


def differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    """What differs, as parts of a sentence."""
    return [
        f"{name} is {theirs.get(name, 'missing')} there, {own} here"
        for name, own in ours.items()
        if theirs.get(name) != own
    ]


def _digest() -> str:
    """Of every file of Python or data."""
    digest = hashlib.sha256()
    for room in _ROOMS:
        folder = Path(str(import_module(room).__file__)).parent
        files = (path for suffix in ("py", "yaml") for path in folder.rglob(f"*.{suffix}"))
        for path in sorted(files):
            digest.update(f"{room} {path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
