"""A design for every stage: cuts, degrees and designs chosen together by the program for mixed pipelines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze.explore.setting import Setting
from phaze.explore.wham.metric import Target
from phaze.explore.wham.pipelines import Pipelines
from phaze.placement.checker import Premises, check_mixed_plan
from phaze.placement.cluster import Recompute
from phaze.placement.iterations import stage_plans
from phaze.placement.plan import Plan, StagePlan
from phaze.solvers.placement.mixed import MixedResult, line_bounds, place_mixed


@dataclass(frozen=True)
class MixedPlan:
    """A plan whose stages have designs of their own: `numbers` as candidates and `tdp_w`, stage by stage.

    `designs`: how many there were to choose from. `options`: choices of data degree and depth; `options_solved`:
    those that the bounds did not rule out.
    """

    setting: Setting
    plan: Plan
    numbers: tuple[int, ...]
    tdp_w: tuple[float, ...]
    designs: int
    options: int
    options_solved: int

    @property
    def mean_tdp_w(self) -> float:
        """Of the accelerators in use, which are equally many in every stage."""
        return sum(self.tdp_w) / len(self.tdp_w)


def best_mixed_plan(pipelines: Pipelines, target: Target) -> MixedPlan | None:
    """The best plan in one setting, checked; None where nothing fits in memory or keeps the floor.

    Raises PlanError where the plan does not stand the independent check: a defect of ours.
    """
    most_s = target.longest_s(pipelines.evaluator.task.cluster.global_batch)
    numbers = range(len(pipelines.options.stages))
    bounds = line_bounds([pipelines.loosest_line(option) for option in numbers], target.goal)
    best: tuple[int, MixedResult] | None = None
    solved = 0
    for option in np.argsort(bounds, kind="stable").tolist():
        below = np.inf if best is None else best[1].value
        if bounds[option] >= below:
            break
        found = place_mixed([pipelines.line(option)], target.goal, most_s, below)
        solved += found.lines_solved
        if found.stages:
            best = option, found
    return None if best is None else _mixed_plan(pipelines, *best, solved)


def _mixed_plan(pipelines: Pipelines, option: int, found: MixedResult, solved: int) -> MixedPlan:
    rows = [stage.device_type for stage in found.stages]
    plan = _plan(pipelines, option, [(s.first, s.last) for s in found.stages], rows)
    check_mixed_plan(plan, [_premises(pipelines, row) for row in rows])
    return MixedPlan(
        setting=pipelines.setting,
        plan=plan,
        numbers=tuple(int(pipelines.block.numbers[row]) for row in rows),
        tdp_w=tuple(pipelines.block.tdp_w[rows].tolist()),
        designs=len(pipelines.block),
        options=len(pipelines.options.stages),
        options_solved=solved,
    )


def _premises(pipelines: Pipelines, row: int) -> Premises:
    at = np.array([row])
    return pipelines.planner(row).premises(pipelines.times.take(at), pipelines.rates.take(at))


def _plan(pipelines: Pipelines, option: int, ranges: list[tuple[int, int]], rows: list[int]) -> Plan:
    """The plan with every figure added up stage by stage, each on its own design."""
    o, chain = pipelines.options, pipelines.any_planner.chain
    on = {row: _stages(pipelines, option, ranges, row) for row in set(rows)}
    stages = tuple(on[row][k] for k, row in enumerate(rows))
    tails = [_tail_s(pipelines, option, stage, row) for stage, row in zip(stages, rows, strict=True)]
    reduction_s, optimizer_s = max(tails, key=sum)
    microbatches = int(o.microbatches[option])
    slots = microbatches + len(stages) - 1
    return Plan(
        microbatch=chain.microbatch,
        tensor_parallel=chain.tensor_parallel,
        recompute=Recompute.FULL if any(s.recompute for s in stages) else Recompute.NONE,
        data_parallel=int(o.data_parallel[option]),
        microbatches=microbatches,
        stages=stages,
        reduction_s=reduction_s,
        optimizer_s=optimizer_s,
        iteration_s=slots * max(s.load_s for s in stages) + reduction_s + optimizer_s,
    )


def _stages(
    pipelines: Pipelines, option: int, ranges: list[tuple[int, int]], row: int
) -> tuple[StagePlan, ...]:
    """All stages as if they were of one design."""
    at, planner, o = np.array([row]), pipelines.planner(row), pipelines.options
    transfers_s = planner.boundaries(pipelines.rates.take(at), int(o.pipeline_tier[option]))
    return stage_plans(planner, ranges, pipelines.times.take(at), transfers_s, int(o.microbatches[option]))


def _tail_s(pipelines: Pipelines, option: int, stage: StagePlan, row: int) -> tuple[float, float]:
    """Gradient reduction and optimizer step of a stage, s."""
    planner, rates = pipelines.planner(row), pipelines.rates.take(np.array([row]))
    rate, latency = planner.weight_rates(rates, pipelines.options.take(np.array([option])))
    step_s = stage.parameters * (float(rates.optimizer_s[0]) if planner.training else 0.0)
    return stage.parameters * float(rate[0, 0]) + float(latency[0]) - step_s, step_s
