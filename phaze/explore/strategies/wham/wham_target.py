"""Objective that is maximised (throughput, or throughput per watt above a floor), and which training
configurations promise most of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze.arrays import Floats
from phaze.errors import InputError
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.evaluation.evaluation_oracle import Merit
from phaze.explore.evaluation.evaluator import Evaluator, FoundPlan
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.explore.request.explore_request import Objective
from phaze.explore.strategies.wham.core_growth import StageMetric, StageWorth
from phaze.explore.strategies.wham.core_latencies import StageKind
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.scheduling.passes import SolveLimits
from phaze.solvers.placement.mixed import Goal


@dataclass(frozen=True, slots=True)
class WhamTarget:
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
        """Goal of the placement of a mixed pipeline: least time, or least time x mean power."""
        return Goal.TIME if self.objective is Objective.THROUGHPUT else Goal.ENERGY

    def longest_s(self, global_batch: int) -> float:
        """The longest iteration that keeps the floor; infinite without one."""
        floor = self.floor_samples_per_s
        return global_batch / floor if floor > 0 else np.inf

    def value(self, throughput: Floats, tdp_w: Floats) -> Floats:
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

    def stage_metric(self, most_s: float) -> StageMetric:
        """The metric of a stage that may take at most `most_s` seconds per microbatch.

        Per watt, a stage that keeps the floor is better than any that does not; among those the faster one is.
        """
        if self.objective is Objective.THROUGHPUT:
            return lambda seconds, _: (_per(seconds),)

        def per_watt(seconds: float, tdp_w: float) -> StageWorth:
            return (1.0, _per(seconds * tdp_w)) if seconds <= most_s else (0.0, _per(seconds))

        return per_watt

    def most_s(self, kind: StageKind, strategy: ParallelPlan, microbatches: int, global_batch: int) -> float:
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


LOOKED_AT = 4096
SAMPLE = 128


@dataclass(frozen=True, slots=True)
class Promise:
    """Upper bound on the value of a config over the designs of the sample, and the `row` of its best design."""

    config: TrainingConfig
    value: float
    row: int


def candidate_sample(candidates: Candidates) -> Block:
    """Some candidates within the budgets, spread evenly over the space.

    Raises InfeasibleError where there is none.
    """
    spread = np.linspace(0, candidates.size - 1, min(LOOKED_AT, candidates.size)).astype(np.int64)
    block = candidates.within(np.unique(spread))
    if not len(block):
        block = next((b for b in candidates.blocks() if len(b)), block)
    if not len(block):
        raise candidates.none_left()
    rows = np.unique(np.linspace(0, len(block) - 1, min(SAMPLE, len(block))).astype(np.intp))
    return Block(block.numbers[rows], block.table.take(rows), block.tdp_w[rows], block.area_mm2[rows])


def config_promises(
    evaluator: Evaluator, block: Block, target: WhamTarget, effort: SolveLimits
) -> list[Promise]:
    """Configs that some design of the sample fits in, most promising first.

    Those with the least work are looked at first, and as many as half of the time that is left allows.
    """
    rows, batch, whole_s = np.arange(len(block)), evaluator.task.cluster.global_batch, effort.left_s()
    power_w = block.tdp_w if target.goal is Goal.ENERGY else np.ones(len(block))
    work_s = {one: evaluator.work_bound(one, rows) for one in evaluator.configs}
    found: list[Promise] = []
    for config in sorted(work_s, key=lambda one: float((work_s[one] * power_w).min())):
        if found and effort.left_s() < whole_s / 2:
            break
        value = batch / (evaluator.iteration_bound(config, rows) * power_w)
        best = int(value.argmax())
        if value[best] > 0:
            found.append(Promise(config, float(value[best]), best))
    return sorted(found, key=lambda promise: (-promise.value, promise.config.order))


def reference_plan(evaluator: Evaluator, promise: Promise, effort: SolveLimits) -> FoundPlan | None:
    """The best plan of the design behind a promise, or None where none fits after all."""
    (found,) = evaluator.plans(promise.config, np.array([promise.row]), np.array([np.inf]), effort)
    return found
