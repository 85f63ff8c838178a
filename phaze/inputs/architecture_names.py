"""Architectures by whatever names them."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from phaze.errors import InputError

if TYPE_CHECKING:
    from phaze.hardware.architecture import Architecture

WINNER = "architecture.yaml"
"""File of a run directory."""


def find_architecture(named: str | Path | Architecture) -> Architecture:
    """An architecture by name, YAML file, run directory (its winner) or RUN:ID (any design evaluated there).

    One that is at hand is taken as it is.
    """
    from phaze.hardware.architecture import Architecture, load_architecture

    if isinstance(named, Architecture):
        return named
    path = architecture_file(named)
    folder, design = _run_and_design(named)
    return _evaluated_design(folder, design) if folder and design else load_architecture(path)


def architecture_file(named: str | Path) -> Path:
    """The file in which the fields of an architecture begin: of a run that of its winner. Raises InputError."""
    from phaze.hardware.architecture import architecture_path

    folder, _ = _run_and_design(named)
    if folder is None:
        return architecture_path(named)
    if not (folder / WINNER).is_file():
        with suppress(InputError):  # a folder of other things may be named like a chip
            if (shipped := architecture_path(named)).is_file():
                return shipped
        raise InputError(f"no run at {folder}: {WINNER} is missing")
    return folder / WINNER


def _run_and_design(named: str | Path) -> tuple[Path | None, str]:
    """The folder of RUN or RUN:ID and the id; neither of anything else."""
    folder, colon, design = str(named).rpartition(":")
    if colon and Path(folder).is_dir():
        return Path(folder), design
    return (Path(named), "") if Path(named).is_dir() else (None, "")


def _absent(value: object) -> bool:
    """Whether a cell of a design table stands for no value."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _evaluated_design(folder: Path, design: str) -> Architecture:
    """The winner of a run with the fields of another of its designs."""
    from difflib import get_close_matches

    from phaze.hardware.architecture import load_architecture
    from phaze.hardware.hardware_fields import field_table
    from phaze.runs.run_directory import load_designs

    rows = {str(row["id"]): row for row in load_designs(folder)}
    if design not in rows:
        near = get_close_matches(design, rows, n=3)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise InputError(f"{folder} has no evaluated design {design!r}{hint}")
    given = {name: value for name, value in rows[design].items() if name in field_table()}
    fields = {name: value for name, value in given.items() if not _absent(value)}
    return load_architecture(folder / WINNER).replace(design, **fields)
