"""The best plan of a general placement instance, proven and checked."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import partial

from phaze.solvers.placement.chain.checker import PlanError
from phaze.solvers.placement.chain.result import PlacementStatus
from phaze.solvers.placement.general.bound import work_bound
from phaze.solvers.placement.general.checker import general_plan_time
from phaze.solvers.placement.general.degree import Degree
from phaze.solvers.placement.general.figures import stage_figures
from phaze.solvers.placement.general.levels import TooLargeError
from phaze.solvers.placement.general.problem import GeneralProblem, Schedule
from phaze.solvers.placement.general.result import GeneralResult, GeneralStage
from phaze.solvers.placement.general.search import Found, Search
from phaze.solvers.placement.general.upsets import find_levels

# The search adds in another order than the checker; more than this is a bug.
_CHECK_TOLERANCE = 1e-10
MOST_DEGREES = 4096


def place_general(problem: GeneralProblem) -> GeneralResult:
    """Minimise the time per batch over stages, their options and devices, and the data-parallel degree.

    Equal times are resolved towards fewest devices, then fewest stages, then smallest degree.

    Raises:
        TooLargeError: too many cuts of the graph, counts of devices or data-parallel degrees for the exact search.
        PlanError: the independent checker refutes the plan found, which is a bug of the search.
    """
    began = time.perf_counter()
    found = Search(_degrees(problem)).run()
    if found is None:
        return GeneralResult(
            status=PlacementStatus.INFEASIBLE,
            time_per_batch_s=None,
            lower_bound_s=math.inf,
            num_stages=None,
            depth=None,
            data_parallel=None,
            devices_used=None,
            stages=(),
            runtime_s=time.perf_counter() - began,
        )
    stages = tuple(_stages(problem, found))
    time_s = general_plan_time(problem, found.degree.data_parallel, stages)
    if not math.isclose(time_s, found.time_s, rel_tol=_CHECK_TOLERANCE):
        raise PlanError(f"the search found {found.time_s} s, the checker {time_s} s for the same plan")
    return GeneralResult(
        status=PlacementStatus.OPTIMAL,
        time_per_batch_s=time_s,
        lower_bound_s=time_s,
        num_stages=len(stages),
        depth=max(placed.depth for placed in found.plan),
        data_parallel=found.degree.data_parallel,
        devices_used=found.devices,
        stages=stages,
        runtime_s=time.perf_counter() - began,
    )


def _degrees(problem: GeneralProblem) -> Iterator[Iterator[Degree]]:
    """Every group of models that one plan may use, at the data-parallel degrees worth trying.

    Degrees with as many microbatches come together, in rising order, and with them in order of their bounds: a
    larger one has fewer devices per pipeline and a longer reduction.
    """
    levels = find_levels(problem)
    figures = [stage_figures(problem, model, levels) for model in problem.models]
    for group in _groups(problem):
        bound = work_bound(problem, [problem.models[i] for i in group])
        most = max(problem.device_types[problem.models[i].device_type].count for i in group)
        chosen = {i: figures[i] for i in group}
        for degrees in _data_parallel_degrees(problem, most):
            yield map(partial(Degree, problem, levels, chosen, bound), degrees)


def _groups(problem: GeneralProblem) -> list[list[int]]:
    """Models, by number, that stages of one plan may choose from."""
    numbers = range(len(problem.models))
    if problem.schedule is Schedule.INTERLEAVED:
        return [[i] for i in numbers]
    if not problem.uniform_width:
        return [list(numbers)]
    widths = [model.tensor_parallel for model in problem.models]
    return [[i for i in numbers if widths[i] == width] for width in sorted(set(widths))]


def _data_parallel_degrees(problem: GeneralProblem, devices: int) -> list[range]:
    """Degrees up to the number of devices by number of microbatches; unless ZeRO shards only the smallest is of use.

    Raises:
        TooLargeError: there are more than MOST_DEGREES.
    """
    total = problem.microbatches_per_batch
    most, first = min(devices, total), 1
    ranges: list[range] = []
    while first <= most and sum(map(len, ranges)) <= MOST_DEGREES:
        microbatches = -(-total // first)
        following = most + 1 if microbatches == 1 else min(most + 1, -(-total // (microbatches - 1)))
        ranges.append(range(first, first + 1 if problem.zero == (0,) else following))
        first = following
    if sum(map(len, ranges)) > MOST_DEGREES:
        raise TooLargeError(
            f"$.microbatches_per_batch: too many data-parallel degrees: the exact search takes {MOST_DEGREES}, "
            "this instance has more; give fewer microbatches or devices, or the ZeRO stage 0 alone"
        )
    return ranges


def _stages(problem: GeneralProblem, found: Found) -> Iterator[GeneralStage]:
    """The plan in words."""
    table, levels = found.degree.table, found.degree.levels
    for placed, number in zip(found.plan, found.options, strict=True):
        option = table.options[number]
        model = problem.models[option.model]
        layers = levels.member(slice(placed.stage, placed.stage + 1))[0]
        yield GeneralStage(
            layers=tuple(layer for layer, inside in zip(problem.layer_ids, layers, strict=True) if inside),
            devices=table.classes[placed.device_class].devices,
            device_type=problem.device_types[model.device_type].name,
            tensor_parallel=model.tensor_parallel,
            recompute=option.recompute,
            zero=option.zero,
        )
