"""A plan with what works it out and when every pass of one of its pipelines runs."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.pipelines.pipeline_timeline import Timeline
from phaze.parallel.training.iteration import Iteration
from phaze.parallel.training.iteration_estimate import Estimator


@dataclass(frozen=True)
class ReplayedPlan:
    """A strategy and what works it out; `timeline`: passes of one pipeline, `capacity_bytes` of the largest device."""

    costs: Estimator
    strategy: ParallelPlan
    timeline: Timeline
    iteration: Iteration
    capacity_bytes: float

    @classmethod
    def of(cls, costs: Estimator, strategy: ParallelPlan, iteration: Iteration) -> ReplayedPlan:
        """A strategy that comes to an iteration, played."""
        capacity_bytes = float(hbm_capacity_bytes(costs.table).max())
        return cls(costs, strategy, costs.timeline(strategy), iteration, capacity_bytes)
