"""A CSV file of measurements as named columns."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phaze.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """Columns of one file, (rows,) each, as text; `path` is named in errors."""

    path: Path
    text: Mapping[str, tuple[str, ...]]
    rows: int

    def __getitem__(self, name: str) -> tuple[str, ...]:
        """One column as text. Raises InputError where the file has no such column."""
        if name not in self.text:
            raise InputError(f"{self.path}: no column {name!r} (columns: {', '.join(self.text)})")
        return self.text[name]

    def numbers(self, name: str) -> Floats:
        """One column as numbers, NaN where a cell is empty. Raises InputError naming the line of any other text."""
        cells = self[name]
        try:
            return np.array([float(cell) if cell else np.nan for cell in cells], dtype=np.float64)
        except ValueError:
            line, cell = next((i, c) for i, c in enumerate(cells, start=2) if not _is_number(c))
            raise InputError(f"{self.path}, line {line}: {name} is {cell!r}, not a number") from None


def read_columns(path: Path) -> Columns:
    """Read a CSV file with a header. Raises InputError for what cannot be read or has ragged lines."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = list(csv.reader(file))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a CSV file in UTF-8 ({error})") from error
    if not lines:
        raise InputError(f"{path}: empty; a header line is needed")
    header, body = lines[0], lines[1:]
    for number, line in enumerate(body, start=2):
        if len(line) != len(header):
            raise InputError(f"{path}, line {number}: {len(line)} cells under {len(header)} columns")
    cells = zip(*body, strict=True) if body else ((),) * len(header)
    return Columns(path, dict(zip(header, cells, strict=True)), len(body))


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True
