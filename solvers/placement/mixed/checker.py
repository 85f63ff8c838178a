"""Independent evaluation of a mixed plan from the tables of its problem, sharing nothing with the search."""

from __future__ import annotations

from collections.abc import Sequence

from phaze.solvers.placement.chain.checker import PlanError
from phaze.solvers.placement.mixed.problem import Goal, Line, MixedStage


def mixed_plan_value(line: Line, goal: Goal, stages: Sequence[MixedStage]) -> float:
    """Seconds per batch of a plan, or joules per device. Raises PlanError that names the rule it breaks."""
    chain = line.chain
    covered = [layer for stage in stages for layer in range(stage.first, stage.last + 1)]
    if covered != list(range(chain.layers)) or any(stage.last < stage.first for stage in stages):
        raise PlanError(f"the stages do not cover {chain.layers} layers once in order")
    if len(stages) != line.stages:
        raise PlanError(f"{len(stages)} stages, not {line.stages}")
    loads, once, powers = [], [], []
    for depth, stage in zip(range(len(stages), 0, -1), stages, strict=True):
        k, i, j = stage.device_type, stage.first, stage.last
        if depth > 1 and chain.deepest[chain.group[k]][i][j] < depth:
            raise PlanError(f"layers {i} to {j} do not fit in memory {depth} stages from the end")
        load = chain.inner_s[k][i][j] if depth > 1 else chain.last_s[k][i]
        if load == float("inf"):
            raise PlanError(f"layers {i} to {j} do not fit in memory")
        loads.append(load)
        once.append(sum(chain.weight[layer] for layer in range(i, j + 1)) * line.rate_s[k])
        powers.append(chain.power_w[k])
    seconds = float(line.slots * max(loads) + max(once) + line.latency_s)
    return seconds * float(sum(powers)) / len(powers) if goal is Goal.ENERGY else seconds
