"""The run directory of a sweep, beside its study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.runs.directory import columns, write_manifest, write_tables
from phaze.runs.manifest import make_manifest

if TYPE_CHECKING:
    from phaze.explore.sweep import SweepResult


def write_sweep(
    path: Path,
    result: SweepResult,
    seed: int,
    inputs: Mapping[str, Path],
    started: datetime,
    command: Sequence[str] = (),
) -> None:
    """Write the designs, the frontier and the manifest; `command` as it was typed, `inputs` the files it named."""
    if result.designs:
        write_tables(path, columns(result.designs), list(result.frontier))
    write_manifest(path, make_manifest(command, seed, inputs, started))
