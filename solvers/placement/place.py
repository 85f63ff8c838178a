"""The best plan of a placement instance, proven and checked."""

from __future__ import annotations

import math
import time

from phaze.solvers.placement.checker import PlanError, plan_time
from phaze.solvers.placement.dp import WidthSearch, data_parallel_degrees
from phaze.solvers.placement.instance import PlacementProblem
from phaze.solvers.placement.result import PlacementResult, PlacementStatus, Stage

# The search adds in another order than the checker; more than this is a bug.
_CHECK_TOLERANCE = 1e-10
# Guesses at the optimum as multiples of a lower bound on it; the last one cuts nothing.
_GUESSES = (1.02, 1.1, 1.4, 3.0, math.inf)


def place(problem: PlacementProblem) -> PlacementResult:
    """Minimise the time per batch over width, degree, number of stages and cuts.

    Equal times are resolved towards fewest devices, then fewest stages, then smallest degree, smallest width.

    Raises:
        PlanError: the independent checker refutes the plan found, which is a bug of the search.
    """
    began = time.perf_counter()
    degrees = data_parallel_degrees(problem)
    searches = [WidthSearch(problem, model, degrees) for model in problem.models]
    best_s = _best_time(searches)
    if math.isinf(best_s):
        return PlacementResult(
            PlacementStatus.INFEASIBLE, None, math.inf, None, None, None, (), time.perf_counter() - began
        )
    plan, cuts = min((plan, search.cuts(plan)) for search in searches for plan in search.ties(best_s))
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
        runtime_s=time.perf_counter() - began,
    )


def _best_time(searches: list[WidthSearch]) -> float:
    """Seconds per batch of the best plan; infinite if none fits.

    A guess at the optimum cuts most of the search; it is raised until a plan attains it.
    """
    # The most promising width first, so that its time cuts the others short.
    searches = sorted(searches, key=lambda search: search.time_bound_s)
    for factor in _GUESSES:
        bound_s = searches[0].time_bound_s
        guess_s = best_s = bound_s * factor if bound_s > 0 else math.inf
        found_s = math.inf
        for search in searches:
            found_s = min(found_s, search.run(best_s))
            best_s = min(best_s, found_s)
        if found_s <= guess_s:
            break
    return found_s
