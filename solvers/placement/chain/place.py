"""The best plans of placement problems, proven and checked."""

from __future__ import annotations

import math
import time
from dataclasses import replace

from phaze.solvers.placement.chain.batch import BatchResult, PlacementBatch
from phaze.solvers.placement.chain.block_search import Found, best_plans, blocks
from phaze.solvers.placement.chain.bounds import width_bounds
from phaze.solvers.placement.chain.checker import PlanError, plan_time
from phaze.solvers.placement.chain.instance import PlacementProblem
from phaze.solvers.placement.chain.result import PlacementResult, PlacementStatus, Stage

# The search adds in another order than the checker; more than this is a bug.
_CHECK_TOLERANCE = 1e-10


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
    for rows in blocks(batch):
        for row, found, best_s in best_plans(bounds, rows, float(batch.device_memory_bytes[rows].max())):
            results[row] = _checked(batch.one(row), found, best_s)
    runtime_s = time.perf_counter() - began
    each_s = runtime_s / max(1, batch.architectures)
    return BatchResult(tuple(replace(result, runtime_s=each_s) for result in results), runtime_s)


def _checked(problem: PlacementProblem, found: Found, best_s: float) -> PlacementResult:
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
