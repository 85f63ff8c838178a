"""The best plans of a block of architectures over all widths."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from phaze.solvers.arrays import Integers
from phaze.solvers.placement.chain.batch import PlacementBatch
from phaze.solvers.placement.chain.bounds import WidthBound
from phaze.solvers.placement.chain.time_bound import LONGEST_S
from phaze.solvers.placement.chain.width_search import Plan, WidthSearch

# Stage loads of one width handled at once.
BLOCK = 1_000_000

# A plan and its stages, as (first layer, last layer, devices).
Found = tuple[Plan, list[tuple[int, int, int]]]


def blocks(batch: PlacementBatch) -> Iterator[Integers]:
    """Architectures of similar memory, few enough for the cache."""
    order = np.argsort(batch.device_memory_bytes, kind="stable")
    size = max(1, BLOCK // len(batch.problem.layer_ids) ** 2)
    for begin in range(0, order.size, size):
        yield order[begin : begin + size]


def best_plans(
    bounds: list[WidthBound], rows: Integers, most_bytes: float
) -> Iterator[tuple[int, Found, float]]:
    """(architecture, its best plan, seconds per batch) of those for which a plan fits."""
    widths = [(bound, bound.candidates(rows, most_bytes)) for bound in bounds]
    # The most promising width first, so that its time cuts the others short.
    widths.sort(key=lambda width: float(np.minimum(width[1].least_s, LONGEST_S).sum()))
    best_s, searches = np.full(rows.size, np.inf), []
    for bound, candidates in widths:
        chosen = np.flatnonzero(candidates.least_s <= np.minimum(best_s, LONGEST_S))
        if chosen.size:
            search = WidthSearch(bound.width, bound.times, candidates[chosen], best_s[chosen])
            best_s[chosen] = np.minimum(best_s[chosen], search.found_s)
            searches.append((search, chosen))
    for row in np.flatnonzero(np.isfinite(best_s)).tolist():
        yield int(rows[row]), _preferred(searches, row, float(best_s[row])), float(best_s[row])


def _preferred(searches: list[tuple[WidthSearch, Integers]], row: int, best_s: float) -> Found:
    """The plan of an architecture that is preferred among those with the best time."""
    found = []
    for search, chosen in searches:
        place = int(np.searchsorted(chosen, row))
        if place < chosen.size and chosen[place] == row:
            found += [(plan, search.cuts(place, plan)) for plan in search.ties(place, best_s)]
    return min(found)
