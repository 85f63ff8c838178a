"""Where measurements are."""

from __future__ import annotations

import os
from pathlib import Path

from phaze.errors import InputError

DATA = "DSE_DATA"
"""Environment variable that names the folder of measurements, or the folder that holds it."""


def measurements(data: Path | None) -> Path:
    """The folder of measurements: the one given, its subfolder `validation`, or the environment's.

    Raises InputError where there is none.
    """
    if data is None:
        named = os.environ.get(DATA)
        if not named:
            raise InputError(f"give the folder of measurements: --data DIR, or {DATA} in the environment")
        data = Path(named)
    if not data.is_dir():
        raise InputError(f"{data}: no such folder")
    inner = data / "validation"
    return inner if inner.is_dir() else data
