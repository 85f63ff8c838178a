"""Architectures by whatever names them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from phaze.errors import InputError

if TYPE_CHECKING:
    from phaze.hardware.architecture import Architecture


def find_architecture(named: str | Path | Architecture) -> Architecture:
    """An architecture by name, YAML file, run directory (its winner) or RUN:ID (any design evaluated there).

    One that is at hand is taken as it is.
    """
    from phaze.hardware.architecture import Architecture, load_architecture

    if isinstance(named, Architecture):
        return named
    folder, colon, design = str(named).rpartition(":")
    if colon and Path(folder).is_dir():
        return _evaluated_design(Path(folder), design)
    path = Path(named)
    if not path.is_dir():
        return load_architecture(named)
    if not (path / "architecture.yaml").is_file():
        raise InputError(f"no run at {path}: architecture.yaml is missing")
    return load_architecture(path / "architecture.yaml")


def _evaluated_design(folder: Path, design: str) -> Architecture:
    """The winner of a run with the fields of another of its designs."""
    from difflib import get_close_matches

    from phaze.hardware.architecture import load_architecture
    from phaze.hardware.fields import field_table
    from phaze.runs.directory import load_designs

    rows = {str(row["id"]): row for row in load_designs(folder)}
    if design not in rows:
        near = get_close_matches(design, rows, n=3)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise InputError(f"{folder} has no evaluated design {design!r}{hint}")
    fields = {name: value for name, value in rows[design].items() if name in field_table()}
    return load_architecture(folder / "architecture.yaml").replace(design, **fields)
