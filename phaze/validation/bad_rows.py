"""Rows of a table that a data set cannot judge: found, named and left out, so that the others are judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from phaze.errors import MALFORMED, InputError
from phaze.validation.cases import Judged
from phaze.validation.columns import Columns

Judge = Callable[[Columns], Judged]

MOST_NAMED = 5
"""Bad rows that are named one by one."""

MOST_FOUND = 20
"""Where a table is given up: most of its rows are of another kind."""

_FAULTS = (*MALFORMED, InputError)


def judge_good_rows(judge: Judge, columns: Columns) -> Judged:
    """What a set says of the rows that it can judge; the others are left out, each with its line and the reason.

    A set judges row by row, so that a bad one is found by halves. Raises InputError where too many rows are bad.
    """
    with np.errstate(all="ignore"):  # what is not finite is left out
        found = dict(islice(_faults(judge, columns, range(columns.rows)), MOST_FOUND + 1))
        if len(found) > MOST_FOUND or (found and len(found) == columns.rows):
            row, why = next(iter(found.items()))
            raise InputError(f"{columns.path}, {columns.place(row)}: cannot be judged ({why})")
        judged = judge(columns.only([row for row in range(columns.rows) if row not in found]))
    sentences = [f"{columns.place(row)}: cannot be judged ({why})" for row, why in sorted(found.items())]
    return replace(judged, excluded={**judged.excluded, **_named((*columns.bad, *sentences))})


def _faults(judge: Judge, columns: Columns, rows: Sequence[int]) -> Iterator[tuple[int, str]]:
    """The rows that cannot be judged, and why."""
    try:
        judge(columns.only(rows))
    except _FAULTS as error:
        if len(rows) == 1:
            yield rows[0], _reason(error)
        elif rows:
            half = len(rows) // 2
            yield from _faults(judge, columns, rows[:half])
            yield from _faults(judge, columns, rows[half:])


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    shown = text if len(text) <= 200 else f"{text[:197]}..."
    return shown if isinstance(error, InputError | ValueError) else f"{type(error).__name__}: {shown}"


def _named(sentences: Sequence[str]) -> Counter[str]:
    """The first rows by their sentences, the others by their number."""
    named = Counter(sentences[:MOST_NAMED])
    if further := len(sentences) - MOST_NAMED if len(sentences) > MOST_NAMED else 0:
        named["further bad rows"] = further
    return named
