"""The best plans of a block of architectures: all widths searched under growing guesses at the optimum."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from phaze.solvers.placement.batch import PlacementBatch
from phaze.solvers.placement.bounds import WidthBound
from phaze.solvers.placement.stage_costs import IntArray
from phaze.solvers.placement.width_search import Plan, WidthSearch

# Guesses at the optimum as multiples of a lower bound on it; the last one cuts nothing.
GUESSES = (1.02, 1.1, 1.4, 3.0, math.inf)
# Stage loads of one width handled at once.
BLOCK = 300_000

# A plan and its stages, as (first layer, last layer, devices).
Found = tuple[Plan, list[tuple[int, int, int]]]


def blocks(batch: PlacementBatch) -> Iterator[IntArray]:
    """Architectures of similar memory, few enough for the cache."""
    order = np.argsort(batch.device_memory_bytes, kind="stable")
    size = max(1, BLOCK // len(batch.problem.layer_ids) ** 2)
    for begin in range(0, order.size, size):
        yield order[begin : begin + size]


def best_plans(
    bounds: list[WidthBound], rows: IntArray, most_bytes: float
) -> Iterator[tuple[int, Found, float]]:
    """(architecture, its best plan, seconds per batch) of those for which a plan fits.

    A guess at the optimum cuts most of the search; it is raised until a plan attains it.
    """
    widths = [(bound, bound.candidates(rows, most_bytes)) for bound in bounds]
    # The most promising width first, so that its time cuts the others short.
    widths.sort(key=lambda width: float(np.minimum(width[1].least_s, 1e300).sum()))
    least_s = np.min([candidates.least_s for _, candidates in widths], axis=0, initial=np.inf)
    best_s = np.full(rows.size, np.inf)
    left = np.flatnonzero(np.isfinite(least_s))
    for factor in GUESSES:
        if not left.size:
            break
        guess_s = np.minimum(best_s, np.where(least_s > 0, least_s * factor, np.inf))
        searches = []
        for bound, candidates in widths:
            chosen = left[candidates.least_s[left] <= np.minimum(guess_s, best_s)[left]]
            if chosen.size:
                incumbent_s = np.minimum(guess_s, best_s)[chosen]
                search = WidthSearch(bound.width, bound.times, candidates[chosen], incumbent_s)
                best_s[chosen] = np.minimum(best_s[chosen], search.found_s)
                searches.append((search, chosen))
        solved = best_s <= guess_s
        for row in left[solved[left]]:
            if np.isfinite(best_s[row]):
                yield int(rows[row]), _preferred(searches, row, float(best_s[row])), float(best_s[row])
        left = left[~solved[left]]


def _preferred(searches: list[tuple[WidthSearch, IntArray]], row: int, best_s: float) -> Found:
    """The plan of an architecture that is preferred among those with the best time."""
    found = []
    for search, chosen in searches:
        place = int(np.searchsorted(chosen, row))
        if place < chosen.size and chosen[place] == row:
            found += [(plan, search.cuts(place, plan)) for plan in search.ties(place, best_s)]
    return min(found)
