"""A search without proof as the answer, held against the certified one in the same space and budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze.arrays import Floats
from phaze.errors import OutOfTimeError
from phaze.explore.answers.exploration import Answer, Exploration, SearchProof
from phaze.explore.answers.portfolio_exploration import describe_portfolio, search_portfolio
from phaze.explore.certified.common_screening import CommonDesign
from phaze.explore.certified.search_state import Outcome
from phaze.explore.documents.strategy_report import StrategyReport, WhamReport, certified_distance
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluation_oracle import Evaluation, Merit, Oracle
from phaze.explore.frontier.pareto_archive import Staircase
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
    run = _Run(request, choice, progress, clock, resources)
    return run.common() if request.others else run.alone()


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

    def alone(self) -> Answer:
        """For one workload."""
        exploration = Exploration(self.request, self.progress, self._half, self.resources)
        with exploration.chips() as chips:
            proof = exploration.search()
            course = StrategyCourse(
                self.request, self.choice, exploration.candidates, exploration.goal, throughput_score
            )
            oracle, report, told = course.run(self._rest, self.progress, self.resources)
            shown = _shown(self._found(oracle), proof)
            answer = exploration.describe(shown, proof, chips)
        return self._with(answer, report, told, exploration.proven(proof.outcome))

    def common(self) -> Answer:
        """For several workloads: the merit is the score of the portfolio."""
        found = search_portfolio(self.request, self.progress, self._half, self.resources)
        goal = Goal(self.request.objective)
        course = StrategyCourse(self.request, self.choice, found.candidates, goal, found.rule.score)
        oracle, report, told = course.run(self._rest, self.progress, self.resources)
        scores = found.rule.score(np.array([e.throughputs for e in self._found(oracle)]).T)
        shown = [
            CommonDesign(
                number=e.number,
                score=float(score),
                throughputs=e.throughputs,
                configs=tuple(s for s in e.configs if s is not None),
                tdp_w=e.tdp_w,
                area_mm2=e.area_mm2,
            )
            for e, score in zip(self._found(oracle), scores, strict=True)
        ]
        # The proven optimum bounds what is shown, as what the certified search left open does.
        winner = max(found.outcome.evaluated.values(), key=lambda c: goal.value(c.score, c.tdp_w))
        outcome = replace(
            found.outcome,
            evaluated={c.number: c for c in shown},
            open_score=np.append(found.outcome.open_score, winner.score),
            open_tdp_w=np.append(found.outcome.open_tdp_w, winner.tdp_w),
            staircase=Staircase(),
        )
        answer = describe_portfolio(replace(found, outcome=outcome), self.clock)
        return self._with(answer, report, told, goal.value(winner.score, winner.tdp_w))

    @property
    def _half(self) -> Clock:
        return ClockShare(self.clock.left() / 2, whole=self.clock)

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


def _shown(found: Sequence[Evaluation], proof: SearchProof) -> Outcome:
    """The evaluations of a search as an outcome of its own."""
    frontier = Staircase()
    for e in found:
        frontier.add([e.tdp_w], e.throughputs[0], (e.area_mm2, e.number))
    evaluated = {(e.number, e.configs[0]): e.throughputs[0] for e in found if e.configs[0] is not None}
    return replace(proof.outcome, evaluated=evaluated, frontier=frontier)
