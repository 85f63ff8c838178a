"""WHAM's search as a strategy: local searches per stage, then one design for all or a design for every stage.

After Adnan et al., "WHAM" (arXiv 2404.14632). For the most promising configs the model is cut into stages; every
distinct stage is searched for its own best designs (`stage_search`); all of them together are evaluated under their
best plans, and, for a mixed pipeline, offered to the search that chooses plans, cuts and designs together
(`mixed_designs`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from phaze.errors import InputError
from phaze.explore.documents.strategy_report import (
    OneDesign,
    PerStage,
    SettingSearch,
    Stop,
    StrategyReport,
    WhamReport,
    WorkloadSearch,
)
from phaze.explore.evaluation.evaluation_oracle import Evaluation, Oracle
from phaze.explore.evaluation.evaluator import Evaluator, FoundPlan
from phaze.explore.evaluation.planned_iteration import strategy_record
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.explore.request.explore_request import Designs
from phaze.explore.request.search_progress import Progress
from phaze.explore.strategies.search_strategy import SearchBudget, report_search
from phaze.explore.strategies.wham.core_latencies import stage_kinds
from phaze.explore.strategies.wham.mixed_designs import MixedDesigns, MixedPlan
from phaze.explore.strategies.wham.stage_search import LocalSearch
from phaze.explore.strategies.wham.wham_axes import SearchAxes
from phaze.explore.strategies.wham.wham_reporting import tell_axes, tell_mixed, tell_setting, tell_stage
from phaze.explore.strategies.wham.wham_target import (
    Promise,
    WhamTarget,
    candidate_sample,
    config_promises,
    reference_plan,
)
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import SETTLED_STATES


@dataclass(frozen=True, slots=True)
class WhamLimits:
    """Limits of a search: what for and how far: see `WhamSearch`."""

    target: WhamTarget
    top_k: int
    hysteresis: int
    configs: int


class WhamCourse:
    """One run: the designs that stages asked for, and the configs they were searched in."""

    def __init__(self, limits: WhamLimits, oracle: Oracle, budget: SearchBudget, progress: Progress) -> None:
        """Nothing is searched yet. Raises InfeasibleError where no architecture keeps the budgets."""
        self._limits, self._oracle, self._budget, self._progress = limits, oracle, budget, progress
        self.axes = SearchAxes(oracle.candidates)
        self._sample = candidate_sample(oracle.candidates)
        self._evaluators = oracle.evaluators(self._sample.table)
        self._asked: dict[int, None] = {}
        self._hopeful: list[TrainingConfig] = []

    def workload(self, position: int) -> WorkloadSearch:
        """Search the most promising configs of one workload and evaluate what their stages ask for."""
        evaluator, target = self._evaluators[position], self._limits.target
        hopeful = config_promises(evaluator, self._sample, target, self._effort)
        self._hopeful = [promise.config for promise in hopeful]
        searched: list[SettingSearch] = []
        for promise in hopeful:
            if len(searched) >= self._limits.configs or self._pointless(promise):
                break
            told = self._config(evaluator, promise)
            searched += [] if told is None else [told]
        return WorkloadSearch(workload=evaluator.task.workload.name, settings=len(hopeful), searched=searched)

    def _pointless(self, promise: Promise) -> bool:
        """Time or budget is over, or no design of the sample could beat the best one in this config."""
        if self._budget.stop(self._oracle):
            return True
        best = self._oracle.best
        return len(self._oracle.tasks) == 1 and best is not None and promise.value <= best.value

    def _config(self, evaluator: Evaluator, promise: Promise) -> SettingSearch | None:
        plan = reference_plan(evaluator, promise, self._effort.at_most(SETTLED_STATES))
        if plan is None:
            return None
        strategy, layouts = plan.strategy, evaluator.layouts(promise.config)
        sizes = layouts.microbatches(strategy), evaluator.task.cluster.global_batch
        local = LocalSearch(self.axes, evaluator, promise.config)
        kinds, told, ranked = stage_kinds(strategy, layouts), [], []
        for k, kind in enumerate(kinds):
            metric = self._target.stage_metric(self._target.most_s(kind, strategy, *sizes))
            found = local.run(kind, metric, self._limits.hysteresis, self._limits.top_k)
            ranked.append([design.number for design in found.designs])
            told.append(tell_stage(local, found, layouts.chain(strategy)))
            self._progress.update(
                "wham",
                k + 1,
                len(kinds),
                f"stages of the pipeline with microbatch {promise.config.microbatch}",
            )
        numbers = list(dict.fromkeys(_by_rank(ranked)))
        self._asked |= dict.fromkeys(numbers)
        self._budget.spend(self._oracle, numbers)
        return tell_setting(promise, strategy_record(strategy, sizes[0]), told)

    def one(self) -> OneDesign | None:
        """The best single design, as evaluated."""
        best = self._oracle.best
        if best is None:
            return None
        return OneDesign(
            id=self._oracle.candidates.architecture(best.number).name,
            number=best.number,
            value=best.value,
            throughputs=list(best.throughputs),
            tdp_w=best.tdp_w,
            area_mm2=best.area_mm2,
            evaluated=len(self._oracle.history),
        )

    def per_stage(self) -> PerStage | None:
        """The best pipeline with designs of their own for stages, in any config that there is time for."""
        best = self._oracle.best
        if best is None:
            return None
        block = self._oracle.candidates.within(np.array(sorted({*self._asked, best.number})))
        evaluator = self._evaluators[0].on(block.table)
        found: MixedPlan | None = None
        for config in self._configs(best):
            designs = MixedDesigns(evaluator, block, config, self._effort)
            first = self._own_plan(evaluator, block.numbers.tolist().index(best.number), config, best)
            better = designs.best(self._target, first, np.inf if found is None else found.value)
            found = better or found
        if found is None:
            return None
        batch = evaluator.task.cluster.global_batch
        return tell_mixed(found, best.value, self.axes.candidates, batch)

    def _configs(self, best: Evaluation) -> list[TrainingConfig]:
        """That of the best single design, without which a mixed pipeline could be worse, then as they promise."""
        own = [config for config in best.configs if config is not None]
        return list(dict.fromkeys([*own, *self._hopeful]))

    def _own_plan(
        self, evaluator: Evaluator, row: int, config: TrainingConfig, best: Evaluation
    ) -> FoundPlan | None:
        """The plan of the best single design, at a row of the evaluator's table, in the config where it is best."""
        if config not in best.configs:
            return None
        known_s = evaluator.task.cluster.global_batch / best.throughputs[0]
        (found,) = evaluator.plans(config, np.array([row]), np.array([known_s]), self._effort)
        return found

    @property
    def _effort(self) -> SolveLimits:
        """Effort that the time left allows."""
        return SolveLimits(self._oracle.clock.left)

    @property
    def _target(self) -> WhamTarget:
        return self._limits.target


def _by_rank(ranked: list[list[int]]) -> Iterator[int]:
    """The best of every list, then the second ones, and so on."""
    for k in range(max(map(len, ranked), default=0)):
        yield from (numbers[k] for numbers in ranked if k < len(numbers))


_COMMON = "common"  # one design for several workloads


@dataclass(frozen=True)
class WhamSearch:
    """`top_k` designs per stage; `hysteresis` fruitless halvings in a row; at most so many `configs` per workload.

    The oracle's merit must be that of the target: `target.merit`.
    """

    designs: Designs = Designs.ONE
    target: WhamTarget = field(default_factory=WhamTarget)
    top_k: int = 10
    hysteresis: int = 1
    configs: int = 4
    name: str = "wham"
    seeded: bool = False

    def run(self, oracle: Oracle, budget: SearchBudget, seed: int, progress: Progress) -> StrategyReport:
        """The search as every strategy reports it; `oracle.best` is the best single design."""
        return self.search(oracle, budget, seed, progress)[0]

    def search(
        self, oracle: Oracle, budget: SearchBudget, seed: int, progress: Progress
    ) -> tuple[StrategyReport, WhamReport]:
        """The same, and the whole of it step by step.

        Raises InputError where a design per stage is wanted for several workloads, InfeasibleError where no
        architecture keeps the budgets.
        """
        if self.designs is Designs.PER_STAGE and len(oracle.tasks) > 1:
            raise InputError("a design for every stage is for one workload: give one --workload")
        limits = WhamLimits(self.target, self.top_k, self.hysteresis, self.configs)
        course = WhamCourse(limits, oracle, budget, progress)
        workloads = [course.workload(w) for w in range(len(oracle.tasks))]
        mixed = course.per_stage() if self.designs is Designs.PER_STAGE else None
        told = WhamReport(
            designs=_COMMON if len(oracle.tasks) > 1 else self.designs.value,
            objective=self.target.objective.value,
            floor_samples_per_s=self.target.floor_samples_per_s,
            top_k=self.top_k,
            hysteresis=self.hysteresis,
            axes=tell_axes(course.axes),
            workloads=workloads,
            one=course.one(),
            per_stage=mixed,
        )
        stopped = budget.stop(oracle) or Stop.CONVERGED
        return report_search(self, oracle, seed, stopped, _figures(told)), told


def _figures(told: WhamReport) -> dict[str, float]:
    configs = [config for workload in told.workloads for config in workload.searched]
    stages = [stage for config in configs for stage in config.stages]
    figures = {
        "settings_searched": float(len(configs)),
        "stages_searched": float(len(stages)),
        "dimensions_tried": float(sum(level.tried for stage in stages for level in stage.levels)),
    }
    return figures if told.per_stage is None else figures | {"per_stage_value": told.per_stage.value}
