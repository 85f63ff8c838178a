"""Optimal makespans of one small graph on many architectures, by breadth-first search over all of them at once.

Some schedule of least makespan starts every operator as early as those before it, by start, allow. So it is met
by starting operators one after the other, in both modes, never before the one started last. A row is such a
beginning on one architecture; all rows of a level have as many operators started, and those whose bound reaches
the best makespan known are dropped. A narrow beam goes first, for good makespans to meet.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from phaze.solvers.arrays import Floats, Integers

from .beginnings import Beginnings, Instances, expand, roots
from .graph import BatchGraph

MOST_OPERATORS = 12
"""Larger graphs are left alone."""

BLOCK = 512
"""Architectures searched together: so memory is bounded."""

BEAM, ROWS = 4, 512
"""Rows per architecture and level: of the beam, and beyond which the search gives an architecture up."""


def search(
    graph: BatchGraph,
    single: Floats,
    parallel: Floats,
    cores: Mapping[str, Integers],
    upper: Floats,
    most: int = ROWS,
) -> tuple[Floats, NDArray[np.bool_]]:
    """Makespans (A,) of the best schedules found, at most `upper`, and whether they are optimal, (A,).

    `single`, `parallel` (O, A) seconds, inf where a mode is impossible; `upper` (A,): a makespan that is known.
    An architecture with more than `most` beginnings in question is given up, its schedule perhaps not the best.
    """
    best, complete = upper.copy(), np.zeros(len(upper), dtype=np.bool_)
    for begin in range(0, len(upper) if graph.size <= MOST_OPERATORS else 0, BLOCK):
        part = slice(begin, begin + BLOCK)
        counts = {unit: count[part] for unit, count in cores.items()}
        instances = Instances.of(graph, single[:, part], parallel[:, part], counts)
        none = np.zeros(len(instances.single), dtype=np.bool_)
        _run(instances, best[part], BEAM, ~none)
        complete[part] = _run(instances, best[part], most, none)
    return best, complete


def _run(instances: Instances, best: Floats, most: int, narrow: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """One pass over all levels, which improves `best` in place; whether it saw all that could be better, (A,).

    Of `narrow` architectures the `most` promising rows of a level are kept; others with more rows are given up.
    """
    complete = ~narrow
    rows = roots(instances)
    for _ in range(instances.size):
        rows = expand(instances, rows, best)
        rows = _kept(rows, most, narrow, complete)
    np.minimum.at(best, rows.instance, rows.makespan)
    return complete


def _kept(rows: Beginnings, most: int, narrow: NDArray[np.bool_], complete: NDArray[np.bool_]) -> Beginnings:
    count = np.bincount(rows.instance, minlength=len(narrow))
    many = count > most
    if not many.any():
        return rows
    complete[many] = False
    order = np.lexsort((rows.bound, rows.instance))
    instance = rows.instance[order]
    place = np.arange(len(order)) - (np.cumsum(count) - count)[instance]
    return rows.take(np.sort(order[(place < most) & (narrow | ~many)[instance]]))
