"""Which files a run has read, told by their content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from phaze.errors import InputError


def hashes(inputs: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 of every file, by what it is. Raises InputError where one cannot be read."""
    return {name: _sha256(path) for name, path in inputs.items()}


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
