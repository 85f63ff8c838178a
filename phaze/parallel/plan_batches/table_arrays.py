"""Arrays of tables of plans: products of matrices, first rows of equal keys, largest sizes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import numpy as np

from phaze.arrays import Floats, Rows

_AT_ONCE = 200_000  # multiplications

_Any = TypeVar("_Any")


def first_of(every: Sequence[_Any], key: Callable[[_Any], Hashable]) -> tuple[list[int], Rows]:
    """The first of some things with each key, by its position, and which of these each thing goes with, (n,)."""
    found: dict[Hashable, int] = {}
    which = [found.setdefault(key(s), len(found)) for s in every]
    return np.unique(which, return_index=True)[1].tolist(), np.array(which)


def ranks_among_equals(which: Rows) -> Rows:
    """The number of every entry among those that are equal to it, (n,)."""
    order = np.argsort(which, kind="stable")
    found = np.empty(len(which), dtype=np.intp)
    found[order] = np.arange(len(which)) - np.searchsorted(which[order], which[order])
    return found


def product_of(rows: Floats, columns: Floats) -> Floats:
    """The product of matrices (n, k) and (k, m), in parts so small that no library has threads wait for each other."""
    found = np.empty((len(rows), columns.shape[1]))
    step = max(1, _AT_ONCE // max(columns.size, 1))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        np.matmul(rows[part], columns, out=found[part])
    return found


def widest(groups: Floats, sizes: Floats) -> Floats:
    """The largest size of those groups that there are some of, (N,), for groups of every kind (N, K)."""
    found = np.zeros(len(groups))
    for k, size in enumerate(sizes.tolist()):
        np.maximum(found, np.where(groups[:, k] > 0, size, 0.0), out=found)
    return found
