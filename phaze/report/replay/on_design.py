"""All stages of a placement as if they were of one design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze.errors import InputError
from phaze.explore.evaluator import Evaluator
from phaze.explore.setting import Setting
from phaze.placement.cluster import FixedDegrees
from phaze.placement.iterations import stage_plans
from phaze.placement.plan import StagePlan
from phaze.placement.planner import Planner
from phaze.report.replay.pieces import stage_pieces
from phaze.report.replay.stage import ReplayedStage
from phaze.scheduling.layers import LayerTimes


@dataclass(frozen=True)
class OnDesign:
    """The stages on the design at `row` of `times`; `reduction_s` and `optimizer_s` of every stage."""

    planner: Planner
    row: int
    times: LayerTimes
    plans: tuple[StagePlan, ...]
    microbatches: int
    reduction_s: tuple[float, ...]
    optimizer_s: tuple[float, ...]

    def stage(self, k: int, design: str, stretch: float) -> ReplayedStage:
        """Stage `k`, all times of its passes multiplied by `stretch`."""
        return ReplayedStage(
            plan=self.plans[k],
            design=design,
            row=self.row,
            pieces=stage_pieces(self.planner, self.plans[k], self.times, self.row, stretch),
            reduction_s=self.reduction_s[k],
            optimizer_s=self.optimizer_s[k],
        )


def on_design(
    evaluator: Evaluator,
    setting: Setting,
    fixed: FixedDegrees,
    ranges: Sequence[tuple[int, int]],
    times: LayerTimes,
    row: int,
) -> OnDesign:
    """The stages of layers first..last, (first, last) each, on one design of the evaluator's table.

    Raises InputError where such degrees are not among the options of the model.
    """
    at = np.array([row])
    planner = Planner(
        chain=evaluator.timed(setting).chain,
        numerics=evaluator.task.workload.numerics,
        cluster=evaluator.task.cluster,
        recompute=setting.recompute,
        memory_bytes=float(evaluator.capacity_bytes[row]),
        fixed=fixed,
    )
    option, rates = planner.options, evaluator.rates.take(at)
    if len(option.stages) != 1:
        raise InputError("the placement of the run is not one of this version of the model; run it again")
    microbatches = int(option.microbatches[0])
    transfers = planner.boundaries(rates, int(option.pipeline_tier[0]))
    plans = stage_plans(planner, ranges, times.take(at), transfers, microbatches)
    rate, latency = planner.weight_rates(rates, option)
    steps = tuple(p.parameters * float(rates.optimizer_s[0]) * planner.training for p in plans)
    tails = (p.parameters * float(rate[0, 0]) + float(latency[0]) for p in plans)
    reductions = tuple(tail - step for tail, step in zip(tails, steps, strict=True))
    return OnDesign(planner, row, times, plans, microbatches, reductions, steps)
