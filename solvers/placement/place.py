"""The best plans of placement problems, proven and checked."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from phaze.solvers.placement.batch import BatchResult, PlacementBatch
from phaze.solvers.placement.bounds import Candidates, WidthBound, width_bounds
from phaze.solvers.placement.checker import PlanError, plan_time
from phaze.solvers.placement.instance import PlacementProblem
from phaze.solvers.placement.result import PlacementResult, PlacementStatus, Stage
from phaze.solvers.placement.stage_costs import FloatArray, IntArray
from phaze.solvers.placement.width_search import Plan, WidthSearch

# The search adds in another order than the checker; more than this is a bug.
_CHECK_TOLERANCE = 1e-10
# Guesses at the optimum as multiples of a lower bound on it; the last one cuts nothing.
_GUESSES = (1.02, 1.1, 1.4, 3.0, math.inf)
# Stage loads of one width handled at once.
BLOCK = 300_000

# A plan and its stages, as (first layer, last layer, devices).
_Found = tuple[Plan, list[tuple[int, int, int]]]


def place(problem: PlacementProblem) -> PlacementResult:
    """Minimise the time per batch over width, degree, number of stages and cuts.

    Equal times are resolved towards fewest devices, then fewest stages, then smallest degree, smallest width.

    Raises:
        PlanError: the independent checker refutes the plan found, which is a bug of the search.
    """
    return place_batch(PlacementBatch.of(problem)).plans[0]


def place_batch(batch: PlacementBatch) -> BatchResult:
    """The best plan of every architecture, equal to what `place` finds for it alone.

    Raises:
        PlanError: as for `place`.
    """
    began = time.perf_counter()
    bounds = width_bounds(batch)
    nothing = PlacementResult(PlacementStatus.INFEASIBLE, None, math.inf, None, None, None, (), 0.0)
    results = [nothing] * batch.architectures
    for rows in _blocks(batch):
        for row, found, best_s in _solve(bounds, rows, float(batch.device_memory_bytes[rows].max())):
            results[row] = _checked(batch.one(row), found, best_s)
    runtime_s = time.perf_counter() - began
    each_s = runtime_s / max(1, batch.architectures)
    return BatchResult(tuple(replace(result, runtime_s=each_s) for result in results), runtime_s)


def _blocks(batch: PlacementBatch) -> Iterator[IntArray]:
    """Architectures of similar memory, few enough for the cache."""
    order = np.argsort(batch.device_memory_bytes, kind="stable")
    size = max(1, BLOCK // len(batch.problem.layer_ids) ** 2)
    for begin in range(0, order.size, size):
        yield order[begin : begin + size]


def _solve(
    bounds: list[WidthBound], rows: IntArray, most_bytes: float
) -> Iterator[tuple[int, _Found, float]]:
    """(architecture, its best plan, seconds per batch) of those for which a plan fits.

    A guess at the optimum cuts most of the search; it is raised until a plan attains it.
    """
    widths = [(bound, bound.candidates(rows, most_bytes)) for bound in bounds]
    # The most promising width first, so that its time cuts the others short.
    widths.sort(key=lambda width: float(np.minimum(width[1].least_s, 1e300).sum()))
    least_s = np.min([candidates.least_s for _, candidates in widths], axis=0, initial=np.inf)
    best_s = np.full(rows.size, np.inf)
    left = np.flatnonzero(np.isfinite(least_s))
    for factor in _GUESSES:
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


def _preferred(searches: list[tuple[WidthSearch, IntArray]], row: int, best_s: float) -> _Found:
    """The plan of an architecture that is preferred among those with the best time."""
    found = []
    for search, chosen in searches:
        place = int(np.searchsorted(chosen, row))
        if place < chosen.size and chosen[place] == row:
            found += [(plan, search.cuts(place, plan)) for plan in search.ties(place, best_s)]
    return min(found)


def _checked(problem: PlacementProblem, found: _Found, best_s: float) -> PlacementResult:
    plan, cuts = found
    stages = tuple(Stage(problem.layer_ids[i : j + 1], devices) for i, j, devices in cuts)
    time_s = plan_time(problem, plan.tensor_parallel, plan.data_parallel, stages)
    if not math.isclose(time_s, best_s, rel_tol=_CHECK_TOLERANCE):
        raise PlanError(f"the search found {best_s} s, the checker {time_s} s for the same plan")
    return PlacementResult(
        status=PlacementStatus.OPTIMAL,
        time_per_batch_s=time_s,
        lower_bound_s=time_s,
        num_stages=plan.num_stages,
        data_parallel=plan.data_parallel,
        tensor_parallel=plan.tensor_parallel,
        stages=stages,
        runtime_s=0.0,
    )
