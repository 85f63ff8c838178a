"""What has to be the same wherever parts of one answer are worked out."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

from phaze.runs.store.version import code_digest

CODE = "code of phaze-dse"


@cache
def versions() -> Mapping[str, str]:
    """Versions of this process's Python and of what its figures come from, and a digest of the code behind them."""
    names = ("phaze-dse", "numpy", "numba")
    return {"python": platform.python_version(), CODE: code_digest()[:12]} | {
        name: version(name) for name in names
    }


def differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    """What differs, as parts of a sentence."""
    return [
        f"{name} is {theirs.get(name, 'missing')} there, {own} here"
        for name, own in ours.items()
        if theirs.get(name) != own
    ]
