"""A search without proof as the answer, held against the certified one in the same space and budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze.arrays import Floats
from phaze.errors import OutOfTimeError
from phaze.explore.answers.answer_parts import Answer, Shown
from phaze.explore.answers.exploration import Exploration
from phaze.explore.answers.portfolio_exploration import CommonExploration
from phaze.explore.certified.search_state import Reached
from phaze.explore.documents.strategy_report import StrategyReport, WhamReport, certified_distance
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluation_oracle import Evaluation, Merit, Oracle
from phaze.explore.request.explore_request import Designs, ExploreRequest, StrategyChoice
from phaze.explore.request.objective_floor import Goal, floor_throughput
from phaze.explore.request.search_progress import Clock, ClockShare, Progress
from phaze.explore.request.search_resources import ALONE, SearchResources
from phaze.explore.strategies.search_strategy import SearchBudget, contract_fault
from phaze.explore.strategies.strategy_registry import STRATEGIES, strategy
from phaze.explore.strategies.wham.wham_search import WhamSearch
from phaze.explore.strategies.wham.wham_target import WhamTarget


def explore_by_strategy(
    request: ExploreRequest,
    choice: StrategyChoice,
    progress: Progress,
    clock: Clock,
    resources: SearchResources = ALONE,
) -> Answer:
    """The best design that a search without proof finds, its course, and its distance to the certified optimum.

    The certified search may take half of the time, the other one the rest. Raises InputError where the strategy
    does not know the objective, OutOfTimeError where it finds nothing.
    """
    return _Run(request, choice, progress, clock, resources).answer()


Score = Callable[[Floats], Floats]
"""Of throughputs (W, A) of every workload, (A,)."""


def throughput_score(throughputs: Floats) -> Floats:
    """The score of one workload: its throughput, (A,) of (1, A)."""
    return np.asarray(throughputs[0])


@dataclass(frozen=True)
class StrategyCourse:
    """A search without proof among some candidates, for the goal's value of a score."""

    request: ExploreRequest
    choice: StrategyChoice
    candidates: Candidates
    goal: Goal
    score: Score

    def run(
        self, clock: Clock, progress: Progress, resources: SearchResources = ALONE
    ) -> tuple[Oracle, StrategyReport, WhamReport | None]:
        """Oracle with all evaluations, report of the search, and WHAM's search step by step (None for others).

        Raises InputError where the strategy does not know the objective.
        """
        oracle = Oracle(self.candidates, self.request.tasks, _merit(self.goal, self.score), clock, resources)
        budget, seed = SearchBudget(self.choice.evaluations), self.request.seed
        if self.choice.name != WhamSearch.name:
            return oracle, self._by_name(oracle, budget, progress), None
        floor = floor_throughput(self.request, self.request.task)
        search = WhamSearch(
            designs=(None if self.request.others else self.choice.designs) or Designs.ONE,
            target=WhamTarget(self.request.objective, floor),
            top_k=self.choice.top_k,
        )
        return oracle, *search.search(oracle, budget, seed, progress)

    def _by_name(self, oracle: Oracle, budget: SearchBudget, progress: Progress) -> StrategyReport:
        """The course of a registered search. Raises InputError where it breaks the contract."""
        name = self.choice.name
        search = strategy(name)
        with STRATEGIES.blaming(name):
            report = search.run(oracle, budget, self.request.seed, progress)
        if fault := contract_fault(report, oracle, budget):
            raise STRATEGIES.refusal(name, fault)
        return report


@dataclass(frozen=True)
class _Run:
    request: ExploreRequest
    choice: StrategyChoice
    progress: Progress
    clock: Clock
    resources: SearchResources

    def answer(self) -> Answer:
        """What was found, with what the certified search proves."""
        half = ClockShare(self.clock.left() / 2, whole=self.clock)
        kind = CommonExploration if self.request.others else Exploration
        exploration = kind(self.request, self.progress, half, self.resources)
        with exploration.chips() as chips:
            outcome, rule = exploration.search(), exploration.rule
            goal = Goal(self.request.objective, 0.0 if rule else exploration.floor)
            score = rule.score if rule else throughput_score
            course = StrategyCourse(self.request, self.choice, exploration.candidates, goal, score)
            oracle, report, told = course.run(self._rest, self.progress, self.resources)
            shown = _shown(self._found(oracle), exploration, score)
            answer = exploration.describe(shown, exploration.proof(outcome, shown=False), chips)
        return self._with(answer, report, told, exploration.proven(outcome))

    @property
    def _rest(self) -> Clock:
        """Remaining time of the certified search, counted from now."""
        return ClockShare(self.clock.left(), whole=self.clock)

    def _found(self, oracle: Oracle) -> Sequence[Evaluation]:
        """Feasible evaluations. Raises OutOfTimeError where there are none."""
        found = [e for e in oracle.history if e.value > 0]
        if not found:
            raise OutOfTimeError(
                f"--strategy {self.choice.name} found no design that fits in {len(oracle.history)} evaluations; "
                "the certified search does"
            )
        return found

    def _with(self, answer: Answer, report: StrategyReport, told: WhamReport | None, proven: float) -> Answer:
        certificate = answer.document.certificate
        away = certified_distance(report.best_value, proven, certificate.upper_bound)
        update = {"strategy": report.model_copy(update={"distance": away}), "wham": told}
        return replace(answer, document=answer.document.model_copy(update=update))


def _merit(goal: Goal, score: Score) -> Merit:
    """The goal's value as a merit of throughputs (W, A)."""

    def value(throughputs: Floats, tdp_w: Floats, area_mm2: Floats) -> Floats:
        scores = score(throughputs)
        return np.array([goal.value(t, p) for t, p in zip(scores.tolist(), tdp_w.tolist(), strict=True)])

    return value


def _shown(found: Sequence[Evaluation], exploration: Exploration, score: Score) -> Shown:
    """The evaluations of a search, and their frontier."""
    scores = score(np.array([e.throughputs for e in found]).T).tolist()
    rows = [replace(e, value=value) for e, value in sorted(zip(found, scores, strict=True), key=_number)]
    reached = [Reached(e.value, e.value, (e.tdp_w,), e.area_mm2) for e in rows]
    frontier = exploration.axes.archive()
    for place, one in enumerate(reached):
        frontier.add(one.others, one.lead, (one.area_mm2, place))
    return Shown(rows, reached, [place for _, place in frontier.keys])


def _number(scored: tuple[Evaluation, float]) -> int:
    return scored[0].number
