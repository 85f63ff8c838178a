"""The course of a search: settings one by one, stages one by one, then everything they asked for together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from phaze.explore.evaluator import Evaluator, FoundPlan
from phaze.explore.planned import strategy_record
from phaze.explore.progress import Progress
from phaze.explore.setting import Setting
from phaze.explore.strategies.oracle import Evaluation, Oracle
from phaze.explore.strategies.strategy import SearchBudget
from phaze.explore.wham.axes import SearchAxes
from phaze.explore.wham.local import LocalSearch
from phaze.explore.wham.metric import Target
from phaze.explore.wham.mixed import MixedDesigns, MixedPlan
from phaze.explore.wham.report import OneDesign, PerStage, SettingSearch, WorkloadSearch
from phaze.explore.wham.settings import Promise, promises, reference_plan, sample
from phaze.explore.wham.stages import stage_kinds
from phaze.explore.wham.telling import tell_mixed, tell_setting, tell_stage
from phaze.scheduling.passes import Effort

STATES = 1e5  # of one search for a schedule of a reference plan


@dataclass(frozen=True, slots=True)
class Limits:
    """What is searched for and how far: see `WhamSearch`."""

    target: Target
    top_k: int
    hysteresis: int
    settings: int


class Course:
    """One run: the designs that stages asked for, and the settings they were searched in."""

    def __init__(self, limits: Limits, oracle: Oracle, budget: SearchBudget, progress: Progress) -> None:
        """Nothing is searched yet. Raises InfeasibleError where no architecture keeps the budgets."""
        self._limits, self._oracle, self._budget, self._progress = limits, oracle, budget, progress
        self.axes = SearchAxes(oracle.candidates)
        self._sample = sample(oracle.candidates)
        self._evaluators = oracle.evaluators(self._sample.table)
        self._asked: dict[int, None] = {}
        self._hopeful: list[Setting] = []

    def workload(self, position: int) -> WorkloadSearch:
        """Search the most promising settings of one workload and evaluate what their stages ask for."""
        evaluator, target = self._evaluators[position], self._limits.target
        hopeful = promises(evaluator, self._sample, target, self._effort)
        self._hopeful = [promise.setting for promise in hopeful]
        searched: list[SettingSearch] = []
        for promise in hopeful:
            if len(searched) >= self._limits.settings or self._pointless(promise):
                break
            told = self._setting(evaluator, promise)
            searched += [] if told is None else [told]
        return WorkloadSearch(workload=evaluator.task.workload.name, settings=len(hopeful), searched=searched)

    def _pointless(self, promise: Promise) -> bool:
        """Time or budget is over, or no design of the sample could beat the best one in this setting."""
        if self._budget.stop(self._oracle):
            return True
        best = self._oracle.best
        return len(self._oracle.tasks) == 1 and best is not None and promise.value <= best.value

    def _setting(self, evaluator: Evaluator, promise: Promise) -> SettingSearch | None:
        plan = reference_plan(evaluator, promise, self._effort.at_most(STATES))
        if plan is None:
            return None
        strategy, layouts = plan.strategy, evaluator.layouts(promise.setting)
        sizes = layouts.microbatches(strategy), evaluator.task.cluster.global_batch
        local = LocalSearch(self.axes, evaluator, promise.setting)
        kinds, told, ranked = stage_kinds(strategy, layouts), [], []
        for k, kind in enumerate(kinds):
            metric = self._target.stage_metric(self._target.most_s(kind, strategy, *sizes))
            found = local.run(kind, metric, self._limits.hysteresis, self._limits.top_k)
            ranked.append([design.number for design in found.designs])
            told.append(tell_stage(local, found, layouts.chain(strategy)))
            self._progress.update("wham", k + 1, len(kinds), f"stages searched in {promise.setting}")
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
        """The best pipeline with designs of their own for stages, in any setting that there is time for."""
        best = self._oracle.best
        if best is None:
            return None
        block = self._oracle.candidates.within(np.array(sorted({*self._asked, best.number})))
        evaluator = self._evaluators[0].on(block.table)
        found: MixedPlan | None = None
        for setting in self._settings(best):
            designs = MixedDesigns(evaluator, block, setting, self._effort)
            first = self._own_plan(evaluator, block.numbers.tolist().index(best.number), setting, best)
            better = designs.best(self._target, first, np.inf if found is None else found.value)
            found = better or found
        if found is None:
            return None
        batch = evaluator.task.cluster.global_batch
        return tell_mixed(found, best.value, self.axes, batch)

    def _settings(self, best: Evaluation) -> list[Setting]:
        """That of the best single design, without which a mixed pipeline could be worse, then as they promise."""
        own = [setting for setting in best.settings if setting is not None]
        return list(dict.fromkeys([*own, *self._hopeful]))

    def _own_plan(
        self, evaluator: Evaluator, row: int, setting: Setting, best: Evaluation
    ) -> FoundPlan | None:
        """The plan of the best single design, at a row of the evaluator's table, in the setting where it is best."""
        if setting not in best.settings:
            return None
        known_s = evaluator.task.cluster.global_batch / best.throughputs[0]
        (found,) = evaluator.plans(setting, np.array([row]), np.array([known_s]), self._effort)
        return found

    @property
    def _effort(self) -> Effort:
        """What is left of the time."""
        return Effort(self._oracle.clock.left)

    @property
    def _target(self) -> Target:
        return self._limits.target


def _by_rank(ranked: list[list[int]]) -> Iterator[int]:
    """The best of every list, then the second ones, and so on."""
    for k in range(max(map(len, ranked), default=0)):
        yield from (numbers[k] for numbers in ranked if k < len(numbers))
