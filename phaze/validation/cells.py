"""Types of cells in tables of measurements: what a cell may hold, and how it is spelled from there on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

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
