"""What is maximised: throughput, or throughput per watt above a floor of throughput."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze.errors import InputError
from phaze.explore.request import Objective
from phaze.explore.strategies.oracle import FloatArray, Merit
from phaze.explore.wham.cores import Metric, Worth
from phaze.explore.wham.stages import StageKind
from phaze.placement.strategy.strategy import Strategy
from phaze.solvers.placement.mixed import Goal


@dataclass(frozen=True, slots=True)
class Target:
    """The objective and the throughput, in samples/s, below which a design is of no use.

    Raises InputError for an objective that the search does not know.
    """

    objective: Objective = Objective.THROUGHPUT
    floor_samples_per_s: float = 0.0

    def __post_init__(self) -> None:
        """Least TDP alone asks for no search along a critical path."""
        if self.objective is Objective.TDP:
            raise InputError("--strategy wham maximises throughput or throughput_per_tdp, not tdp")

    @property
    def goal(self) -> Goal:
        """What the placement of a mixed pipeline minimises: time, or time x mean power."""
        return Goal.TIME if self.objective is Objective.THROUGHPUT else Goal.ENERGY

    def longest_s(self, global_batch: int) -> float:
        """The longest iteration that keeps the floor; infinite without one."""
        floor = self.floor_samples_per_s
        return global_batch / floor if floor > 0 else np.inf

    def value(self, throughput: FloatArray, tdp_w: FloatArray) -> FloatArray:
        """The objective, 0 below the floor; `tdp_w` of one accelerator, on average over a pipeline."""
        value = throughput if self.objective is Objective.THROUGHPUT else throughput / tdp_w
        return np.where(throughput >= self.floor_samples_per_s, value, 0.0)

    @property
    def merit(self) -> Merit:
        """The same as the oracle wants it: the plain mean over the workloads, each of which keeps the floor."""
        return lambda throughputs, tdp_w, _: np.where(
            (throughputs >= self.floor_samples_per_s).all(axis=0),
            self.value(throughputs, tdp_w[None, :]).mean(axis=0),
            0.0,
        )

    def stage_metric(self, most_s: float) -> Metric:
        """The metric of a stage that may take at most `most_s` seconds per microbatch.

        Per watt, a stage that keeps the floor is better than any that does not; among those the faster one is.
        """
        if self.objective is Objective.THROUGHPUT:
            return lambda seconds, _: (_per(seconds),)

        def per_watt(seconds: float, tdp_w: float) -> Worth:
            return (1.0, _per(seconds * tdp_w)) if seconds <= most_s else (0.0, _per(seconds))

        return per_watt

    def most_s(self, kind: StageKind, strategy: Strategy, microbatches: int, global_batch: int) -> float:
        """The longest that the lowest terms of a stage may take if the whole pipeline is to keep the floor.

        A device has so many turns of all it holds, and waits for as many as 1F1B has it wait, less where it holds more
        than one part of the model.
        """
        s = strategy
        turns = microbatches / s.schedule.weight_copies + (s.pipeline_parallel - 1) / s.chunks
        return self.longest_s(global_batch) / turns / max(kind.repeats)


def _per(cost: float) -> float:
    """The reciprocal, finite for a stage without work."""
    return 1.0 / max(cost, 1e-300)
