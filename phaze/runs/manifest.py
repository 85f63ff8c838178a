"""What is needed to repeat a run: versions, seed, hashes of the inputs."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from phaze import __version__
from phaze.explore.document import Manifest

# The libraries whose version can change a result.
_LIBRARIES = ("numpy", "pyomo", "highspy", "optuna", "onnx")


def make_manifest(
    command: Sequence[str], seed: int, inputs: Mapping[str, Path], started: datetime
) -> Manifest:
    """A manifest that ends now; `inputs` are the files that were read, by what they are."""
    versions = {"phaze": __version__, "python": platform.python_version()}
    return Manifest(
        versions=versions | {name: version(name) for name in _LIBRARIES},
        command=list(command),
        seed=seed,
        inputs_sha256=hashes(inputs),
        started_utc=started.isoformat(timespec="seconds"),
        wall_time_s=(datetime.now(UTC) - started).total_seconds(),
    )


def hashes(inputs: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 of every file."""
    return {name: _sha256(path) for name, path in inputs.items()}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
