"""A CSV file of measurements as named columns, whose cells are of known types: what each may hold, and how it is
spelled.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from phaze.arrays import Floats
from phaze.errors import InputError

_LONGEST = 1_000  # characters of a text


@dataclass(frozen=True)
class Cell:
    """`spelled` gives a cell's text in one spelling, or raises ValueError; `what` says what would be right.

    `empty`: a cell may be empty; `absent`: the whole column may be missing, too.
    """

    what: str
    spelled: Callable[[str], str]
    empty: bool = False
    absent: bool = False

    def read(self, name: str, text: str) -> str:
        """The cell of a column by its name. Raises ValueError that says what is wrong."""
        if not text.strip() and self.empty:
            return ""
        try:
            return self.spelled(text.strip())
        except (ValueError, OverflowError, RecursionError) as error:
            shown = text if len(text) <= 40 else f"{text[:37]}..."
            raise ValueError(f"{name} is {shown!r}, not {self.what}") from error


def maybe(cell: Cell) -> Cell:
    """A cell that may be empty."""
    return replace(cell, empty=True)


def absent(cell: Cell) -> Cell:
    """A cell of a column that may be missing."""
    return replace(cell, empty=True, absent=True)


def count(most: int, least: int = 1) -> Cell:
    """A whole number within bounds."""

    def spelled(text: str) -> str:
        number = float(text)
        if not least <= number <= most or number != int(number):
            raise ValueError
        return str(int(number))

    return Cell(f"a whole number from {least} to {most}", spelled)


def amount(least: float, most: float = 1e18) -> Cell:
    """A number within bounds, the lower one included where it is 0."""

    def spelled(text: str) -> str:
        if not least <= float(text) <= most:
            raise ValueError
        return text

    return Cell(f"a number from {least:g} to {most:g}", spelled)


def one_of(words: Iterable[str]) -> Cell:
    """One of some words."""
    known = tuple(words)
    return Cell(f"one of {', '.join(known)}", lambda text: known[known.index(text)])


def extents(separator: str, least: int = 1) -> Cell:
    """Whole numbers with something between them."""
    each = count(2**40, least)
    what = f"whole numbers from {least} with {separator!r} between them"
    return Cell(what, lambda text: separator.join(each.spelled(part) for part in text.split(separator)))


def _text(text: str) -> str:
    if len(text) > _LONGEST:
        raise ValueError
    return text


def _shapes(text: str) -> str:
    """Shapes in JSON; a number alone has the shape [1]."""
    found = json.loads(text)
    if not (isinstance(found, list) and found and all(map(_is_shape, found))):
        raise ValueError
    return text


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(n) is int and 1 <= n < 2**40 for n in value)


def _tuple(text: str) -> str:
    if not re.fullmatch(r"\((\d{1,12}, ?)*\d{1,12},?\)", text) or "0" in re.findall(r"\d+", text):
        raise ValueError
    return text


TEXT = Cell(f"a text of at most {_LONGEST} characters", _text, empty=True)
SIZE = count(2**32)
"""Of a tensor or a model."""
PADDING = count(2**16, 0)
LAYERS = count(10_000)
DEVICES = count(2**20)
BATCH = count(2**24)
BYTES = count(2**50)
TIME = amount(1e-6)
"""Measured in ms, us or s, as the column says."""
MAYBE_NO_TIME = amount(0.0)
RATE = amount(1e-6)
SHAPES = Cell("shapes such as [[4, 8], [8]]", _shapes)
SHAPE = Cell("a shape such as (4, 8)", _tuple)


Schema = Mapping[str, Cell]

LARGEST = 2**26
"""Bytes of a file; the measurements that the model is compared with have less than a tenth of it in all."""


@dataclass(frozen=True)
class Columns:
    """Columns of one file, (rows,) each, as text; `path` is named in errors.

    `lines`: the line of each row, where a file was read; `bad`: a sentence about each row that was left out because
    a cell of it is not what its column holds.
    """

    path: Path
    text: Mapping[str, tuple[str, ...]]
    rows: int
    lines: tuple[int, ...] = ()
    bad: tuple[str, ...] = field(default=())

    def __getitem__(self, name: str) -> tuple[str, ...]:
        """One column as text. Raises InputError where the file has no such column."""
        if name not in self.text:
            raise InputError(f"{self.path}: no column {name!r} (columns: {', '.join(self.text)})")
        return self.text[name]

    def numbers(self, name: str) -> Floats:
        """One column as numbers, NaN where a cell is empty."""
        return np.array([float(cell) if cell else np.nan for cell in self[name]], dtype=np.float64)

    def only(self, rows: Sequence[int]) -> Columns:
        """Some of the rows."""
        text = {name: tuple(cells[row] for row in rows) for name, cells in self.text.items()}
        return Columns(self.path, text, len(rows), tuple(self.lines[row] for row in rows), self.bad)

    def place(self, row: int) -> str:
        """How messages name a row."""
        return f"line {self.lines[row]}"


def read_columns(path: Path, schema: Schema) -> Columns:
    """Read the columns of a schema from a CSV file with a header; bad rows are left out and reported.

    Raises InputError for a file that cannot be read, lacks a column, or has no row but bad ones.
    """
    lines = _lines(path)
    header = next(lines, (0, []))[1]
    places = _places(path, header, schema)
    kept, where, bad = [], [], []
    for number, cells in lines:
        try:
            kept.append(_row(cells, len(header), places, schema))
            where.append(number)
        except ValueError as error:
            bad.append(f"line {number}: {error}")
    if bad and not kept:
        raise InputError(f"{path}, {bad[0]}")
    columns = zip(*kept, strict=True) if kept else ((),) * len(places)
    return Columns(path, dict(zip(places, columns, strict=True)), len(kept), tuple(where), tuple(bad))


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Cells of each line, and its number; comments (`#`) are left out."""
    try:
        if not path.is_file():
            raise InputError(f"{path}: not a file" if path.exists() else f"{path}: no such file")
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path}: more than {LARGEST} bytes; split it")
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            yield from (
                (reader.line_num, cells) for cells in reader if cells and not cells[0].startswith("#")
            )
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a CSV file in UTF-8 ({error})") from error


def _places(path: Path, header: Sequence[str], schema: Schema) -> dict[str, int]:
    """Where in a line the columns of a schema stand, those left out that may be missing."""
    if not header:
        raise InputError(f"{path}: empty; a header line is needed")
    places: dict[str, int] = {}
    for name, cell in schema.items():
        found = [place for place, title in enumerate(header) if title == name]
        if len(found) > 1:
            raise InputError(f"{path}: {len(found)} columns are called {name!r}")
        if not found and not cell.absent:
            raise InputError(f"{path}: no column {name!r} (columns: {_listed(header)})")
        places |= dict.fromkeys([name] if found else [], *found)
    return places


def _listed(header: Sequence[str]) -> str:
    text = ", ".join(header)
    return text if len(text) <= 500 else f"{text[:497]}..."


def _row(cells: Sequence[str], width: int, places: Mapping[str, int], schema: Schema) -> list[str]:
    """The cells of a schema's columns. Raises ValueError for one that is not what its column holds."""
    if len(cells) != width:
        raise ValueError(f"{len(cells)} cells under {width} columns")
    return [schema[name].read(name, cells[place]) for name, place in places.items()]
