"""The run directory of a sweep, beside its study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from phaze.runs.answers import write_answer
from phaze.runs.directory import columns, write_tables

if TYPE_CHECKING:
    from phaze.explore.sweep import SweepResult
    from phaze.explore.sweep_document import SweepDocument


def write_sweep(path: Path, document: SweepDocument, result: SweepResult) -> None:
    """Write the designs, the frontier, the manifest, and last the document: where it exists, the sweep is complete."""
    if result.designs:
        # A storage gives back what a trial told in another order than it was told in.
        names = list(columns(result.frontier))
        frontier = [{name: row[name] for name in names if name in row} for row in result.frontier]
        write_tables(path, columns(result.designs), frontier)
    write_answer(path, document)
