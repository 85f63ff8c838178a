"""Tables as CSV text, and back to rows whose values are what they were."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from phaze.errors import InputError
from phaze.text_file import MIB, read_text

LARGEST_BYTES = 512 * MIB
"""Of a table that is read."""
_TRUTH = {"true": True, "false": False}


def rows_to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per row under the names of all columns that one of them has, in the order they first appear."""
    names = dict.fromkeys(name for row in rows for name in row)
    return columns_to_csv({name: [row.get(name) for row in rows] for name in names})


def columns_to_csv(columns: Mapping[str, Iterable[Any]]) -> str:
    """Equally long columns of plain values; None is an empty cell, truth is `true` or `false`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(map(_cell, column) for column in columns.values()), strict=True))
    return text.getvalue()


def _cell(value: Any) -> Any:  # noqa: ANN401 - whatever a table holds
    return str(value).lower() if isinstance(value, bool) else value


def read_csv(path: Path, is_word: Callable[[str], bool]) -> list[dict[str, Any]]:
    """The rows of a table; `is_word` tells of a column's name whether its cells are words, not numbers or truth.

    Raises InputError where the file is no such table.
    """
    lines = csv.reader(io.StringIO(read_text(path, LARGEST_BYTES)), strict=True)
    try:
        return list(_rows(lines, is_word))
    except (csv.Error, ValueError) as error:
        raise InputError(f"{path} cannot be read: line {lines.line_num}: {error}") from error


def _rows(lines: Iterator[list[str]], is_word: Callable[[str], bool]) -> Iterator[dict[str, Any]]:
    names = next(lines, [])
    if len(set(names)) < len(names):
        raise ValueError("two columns of one name")
    kinds = [str if is_word(name) else _number for name in names]
    for cells in lines:
        yield {
            name: kind(cell) if cell else None for name, kind, cell in zip(names, kinds, cells, strict=True)
        }


def _number(cell: str) -> float | int | bool:
    if cell in _TRUTH:
        return _TRUTH[cell]
    try:
        return int(cell)
    except ValueError:
        return float(cell)
