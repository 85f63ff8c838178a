"""Points worth evaluating first, so that bounds have something to meet."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from phaze.explore.archive import FloatArray
from phaze.explore.candidates import Block
from phaze.explore.certified.pool import Pool, Stage

Rows = NDArray[np.intp]
CLASSES, SAMPLE, SEEDS = 32, 48, 3  # classes of the first column, candidates tried and points taken in each


def trials(others: FloatArray, roof: FloatArray) -> list[Rows]:
    """Candidates to try: of every class of the first column (of power, as a rule) those with the highest roofline.

    The class of the least values is divided further, by twos: nothing is known below the least value that is
    evaluated. others (A, k), roof (A,); positions, an array per class.
    """
    order = np.argsort(others[:, 0] if others.shape[1] else -roof, kind="stable")
    least, *classes = np.array_split(order, min(CLASSES, len(order)))
    ends = [1 << i for i in range(len(least).bit_length()) if 1 << i < len(least)]
    classes = [*np.split(least, ends), *classes]
    return [c[np.argsort(-roof[c], kind="stable")[:SAMPLE]] for c in classes]


def seeds(block: Block, others: FloatArray, bound: FloatArray, classes: list[Rows]) -> Pool:
    """The points of the highest bound (settings, A) of every class of rows of a block."""
    picked = list(_best(bound, classes))
    rows, settings = (np.array([p[i] for p in picked], dtype=np.intp) for i in (0, 1))
    return Pool(
        block.numbers[rows],
        settings.astype(np.int16),
        others[rows],
        block.area_mm2[rows],
        bound[settings, rows],
        np.full(len(rows), Stage.PATH, dtype=np.int8),
    )


def _best(bound: FloatArray, classes: list[Rows]) -> Iterator[tuple[int, int]]:
    """Rows and settings, class by class."""
    for rows in classes:
        part = bound[:, rows]
        for flat in np.argsort(-part, axis=None, kind="stable")[:SEEDS]:
            k, column = divmod(int(flat), len(rows))
            if part[k, column] > 0:
                yield int(rows[column]), k
