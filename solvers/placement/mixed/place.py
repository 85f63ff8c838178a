"""The best plan over several lines, such as all data-parallel degrees and depths of one chain, proven and checked."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

import numpy as np
from phaze.solvers.arrays import Floats
from phaze.solvers.placement.chain.checker import PlanError
from phaze.solvers.placement.chain.result import PlacementStatus
from phaze.solvers.placement.mixed.checker import mixed_plan_value
from phaze.solvers.placement.mixed.problem import Goal, Line, MixedChain
from phaze.solvers.placement.mixed.recurrence import suffix_values
from phaze.solvers.placement.mixed.result import MixedResult
from phaze.solvers.placement.mixed.search import TIE, Found, LineSearch

_CHECK_TOLERANCE = 1e-10


def place_mixed(
    lines: Sequence[Line], goal: Goal = Goal.TIME, most_s: float = math.inf, below: float = math.inf
) -> MixedResult:
    """The plan of least value, among those that take at most `most_s`, over all lines; of equal ones the first.

    Plans that are not better than `below` are of no interest: infeasible then means that there is none.

    Raises PlanError where the independent checker refutes the plan found: a defect of the search.
    """
    began = time.perf_counter()
    bounds = line_bounds(lines, goal)
    found: Found | None = None
    at, searched, solved = -1, 0, 0
    for k in np.argsort(bounds, kind="stable"):
        best = below if found is None else found.value
        if bounds[k] >= best * (1 - TIE):
            break
        search = LineSearch(lines[k], goal, best, most_s)
        better = search.run()
        searched, solved = searched + 1, solved + search.solved
        if better is not None:
            found, at = better, int(k)
    if found is not None:
        _check(found, goal)
    return _result(found, at, searched, solved, time.perf_counter() - began)


def line_bounds(lines: Iterable[Line], goal: Goal) -> Floats:
    """A lower bound on the value of any plan of each line; infinite where nothing fits in memory.

    No stage is slower than the slowest, and none draws power for less time than it works: time x mean power
    is at least the sum of power x load over the stages, and what is done once is on top.
    """
    known: dict[int, _Least] = {}
    lines = list(lines)
    deepest = {id(line.chain): 0 for line in lines}
    for line in lines:
        deepest[id(line.chain)] = max(deepest[id(line.chain)], line.stages)
    found = []
    for line in lines:
        if id(line.chain) not in known:
            known[id(line.chain)] = _least(line.chain, deepest[id(line.chain)])
        load_s, weight, work_j = (row[line.stages - 1] for row in known[id(line.chain)])
        if math.isinf(load_s):
            found.append(math.inf)
            continue
        once_s, power_w = float(line.rate_s.min()) * weight, float(line.chain.power_w.min())
        if goal is Goal.TIME:
            found.append(line.seconds(load_s, once_s))
        else:
            work_j = max(work_j / line.stages, load_s * power_w)
            found.append(line.slots * work_j + (once_s + line.latency_s) * power_w)
    return np.array(found) * (1 - TIE)


_Least = tuple[list[float], list[float], list[float]]


def _least(chain: MixedChain, stages: int) -> _Least:
    """Least largest load (s), largest weight, and sum of power x load (J), for 1 to `stages` stages."""
    weight = np.broadcast_to(chain.stage_weight, chain.inner_s.shape)
    load_j = chain.inner_s * chain.power_w[:, None, None], chain.last_s * chain.power_w[:, None]
    tables = (
        suffix_values(chain, chain.inner_s, chain.last_s, stages, np.maximum),
        suffix_values(chain, weight, weight[:, :, -1], stages, np.maximum),
        suffix_values(chain, *load_j, stages, np.add),
    )
    loads, weights, works = ([float(f[0]) for f in table] for table in tables)
    return loads, weights, works


def _check(found: Found, goal: Goal) -> None:
    value = mixed_plan_value(found.line, goal, found.stages)
    if not math.isclose(value, found.value, rel_tol=_CHECK_TOLERANCE):
        raise PlanError(f"the search found {found.value}, the checker {value} for the same plan")


def _result(found: Found | None, at: int, searched: int, solved: int, runtime_s: float) -> MixedResult:
    if found is None:
        nothing = PlacementStatus.INFEASIBLE
        return MixedResult(
            nothing, math.inf, math.inf, 0.0, math.inf, math.inf, -1, (), searched, solved, runtime_s
        )
    return MixedResult(
        status=PlacementStatus.OPTIMAL,
        value=found.value,
        lower_bound=found.value,
        gap=0.0,
        time_s=found.time_s,
        mean_power_w=found.power_w,
        line=at,
        stages=found.stages,
        lines_solved=searched,
        solved=solved,
        runtime_s=runtime_s,
    )
