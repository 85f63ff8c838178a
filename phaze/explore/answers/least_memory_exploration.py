"""The main job for the least memory: the plan that needs least of any architecture, and of those the fastest.

What plans need of a device does not depend on the architecture, so that the least of all is known before anything is
searched. Where no plan of so little keeps the floors, searches for throughput among plans of more and more memory close
in on the least that does: a search that finds nothing proves that it takes more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from phaze.errors import OutOfTimeError
from phaze.explore.answers.axes_exploration import AxesExploration, known_columns
from phaze.explore.answers.exploration import Answer, Exploration
from phaze.explore.certified.search_state import Outcome
from phaze.explore.documents.result_document import Certificate, Comparison, Design, ResultDocument
from phaze.explore.evaluation.design_candidates import Block
from phaze.explore.evaluation.energy_and_memory import time_energy_memory
from phaze.explore.evaluation.evaluator import Evaluator, FoundPlan
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.explore.frontier.pareto_points import ParetoFrontier, ParetoPoint
from phaze.explore.request.explore_request import ExploreRequest, Objective
from phaze.explore.request.objective_floor import floor_throughput
from phaze.tolerances import BOUND_ROUNDING, SAME

WIDE = 1.1  # times the memory that is too little: up to there, amounts that some plan needs are tried
WIDTHS = ("microbatches", "tensor", "sequence", "context", "expert")  # choices that every config makes
ANY = 1e9  # gap of a search that asks whether there is a plan, not for the fastest


def within_winner(request: ExploreRequest, document: ResultDocument) -> ExploreRequest:
    """The request among plans that need no more memory than the winner of a run for the least memory.

    As it is for other runs.
    """
    if not request.lean:
        return request
    most = document.best.workloads[request.task.workload.name].memory_bytes
    return replace(request, task=replace(request.task, memory_bytes=most * (1 + SAME)))


@dataclass(frozen=True)
class _Lean:
    """The fastest point that was found among plans of some memory, and what became of the others."""

    outcome: Outcome
    exploration: Exploration
    number: int
    config: TrainingConfig
    throughput: float
    plan: FoundPlan
    memory_bytes: float


class LeanExploration(AxesExploration):
    """One run for one workload whose objective is memory, without other axes."""

    _too_little = 0.0  # bytes that no plan gets by with
    _best: _Lean | None = None
    _like: Evaluator | None = None

    def answer(self) -> Answer:
        """Search, then describe what was found. Raises InfeasibleError and OutOfTimeError."""
        self._search()
        best = self._best
        if best is None:
            raise OutOfTimeError("the time limit passed before any design was evaluated; raise --time-limit")
        self._request = replace(
            self._request, task=replace(self._request.task, memory_bytes=best.memory_bytes * (1 + SAME))
        )
        self._progress.update("describing", 0, 1, "the winner")
        block = self._candidates.within(np.array([best.number]))
        return self._describe(
            block, best.exploration.evaluator.on(block.table), self._frontier_of(block, best)
        )

    # -- the search ----------------------------------------------------------------------------------------

    def _search(self) -> None:
        """Find the least memory in which a plan keeps the floors, as far as there is time."""
        self._like = self._among(None).evaluator
        least = self._least_bytes(self._like)
        self._too_little = least * (1 - BOUND_ROUNDING)
        if not self._try(least) and not self._clock.over:
            if not self._try(None, gap=ANY) and not self._clock.over:
                self._among(None).search()  # tells why there is none
            self._close_in()

    def _least_bytes(self, evaluator: Evaluator) -> float:
        """Least memory that any plan needs."""
        configs, least = evaluator.configs, np.inf
        for done, config in enumerate(configs):
            self._progress.update("bounding", done, len(configs), "memory of plans")
            least = min(least, evaluator.least_bytes(config))
        return least

    def _close_in(self) -> None:
        """Try amounts between what is too little and what does, until none is left that a plan needs."""
        proven = False
        while self._best is not None and not self._clock.over and not proven:
            amount = self._between(self._too_little, self._best.memory_bytes)
            if proven := amount is None:
                self._too_little = self._best.memory_bytes
            else:
                self._try(amount, gap=ANY)
        if proven and self._best is not None:
            self._try(self._best.memory_bytes)

    def _between(self, little: float, enough: float) -> float | None:
        """An amount of memory between two that plans need, None where there is none."""
        if enough > WIDE * little:
            return float(np.sqrt(little * enough))
        amounts = self._among(None).evaluator.amounts_between(little * (1 + SAME), enough * (1 - SAME))
        return float(amounts[len(amounts) // 2]) if len(amounts) else None

    def _try(self, most: float | None, gap: float = 0.0) -> bool:
        """Whether some plan gets by with so much memory: then it is the best one so far; otherwise it is too little.

        Not where time was over.
        """
        exploration = self._among(most)
        floor = floor_throughput(self._request, self._request.task)
        outcome = exploration.fastest(floor, gap)
        reached = {value: point for point, value in outcome.evaluated.items() if value >= floor}
        if reached:
            self._best = self._lean(outcome, exploration, max(reached), *reached[max(reached)])
        elif outcome.finished and most is not None:
            self._too_little = max(self._too_little, most)
        return bool(reached)

    def _among(self, most: float | None) -> Exploration:
        """The search for throughput among plans that need no more memory than that."""
        limit = None if most is None else most * (1 + SAME / 2)
        request = replace(
            self._request,
            objective=Objective.THROUGHPUT,
            task=replace(self._request.task, memory_bytes=limit),
        )
        return Exploration(request, self._progress, self._clock, self._resources, self._like)

    def _lean(
        self,
        outcome: Outcome,
        exploration: Exploration,
        throughput: float,
        number: int,
        config: TrainingConfig,
    ) -> _Lean:
        """A point that was found, with its plan."""
        evaluator = exploration.evaluator.on(self._candidates.table(np.array([number])))
        known_s = np.array([self._request.task.cluster.global_batch / throughput])
        (plan,) = evaluator.plans(config, np.array([0]), known_s, self._effort)
        if plan is None:
            msg = f"the plan of an evaluated point of candidate {number} is gone"
            raise RuntimeError(msg)
        ((_, _, memory_bytes),) = time_energy_memory(evaluator, config, {0: plan})
        return _Lean(outcome, exploration, number, config, throughput, plan, memory_bytes)

    # -- the answer ----------------------------------------------------------------------------------------

    @property
    def _proven(self) -> bool:
        return self._best is not None and self._too_little >= self._best.memory_bytes * (1 - SAME)

    def _frontier_of(self, block: Block, best: _Lean) -> ParetoFrontier:
        """The one point, and what no other is better than."""
        columns = known_columns(block, self._request.task.economics)
        known = {name: float(column[0]) for name, column in columns.items()}
        told = known | {
            "throughput_samples_per_s": best.throughput,
            "memory_bytes": best.memory_bytes,
        }
        point = ParetoPoint(0, best.config, told, best.plan)
        open_ = np.zeros((0, 1)) if self._proven else np.array([[self._too_little]])
        return ParetoFrontier((point,), open_, best.outcome.pruned_by)

    def _beside(self, request: ExploreRequest, best: Design) -> list[Comparison]:
        """Known chips and the expert plan in as much memory: of plans only those are looked at that may fit."""
        evaluator, most = self._among(None).evaluator, request.task.memory_bytes or np.inf
        fitting = [s for s in evaluator.configs if evaluator.least_bytes(s) <= most]
        held = {name: tuple(dict.fromkeys(s.choices[name][0] for s in fitting)) for name in WIDTHS}
        task = replace(request.task, held={**request.task.held, **held})
        return super()._beside(replace(request, task=task), best)

    def _certificate(
        self, block: Block, evaluator: Evaluator, found: ParetoFrontier, winner: ParetoPoint
    ) -> Certificate:
        """Points of which some are faster in the same memory fall where the search for throughput lets them fall."""
        certificate = super()._certificate(block, evaluator, found, winner)
        if self._best is None:
            return certificate
        outcome = self._best.outcome
        size, within = self._candidates.size * outcome.configs, outcome.in_budget * outcome.configs
        evaluated = len(outcome.evaluated)
        left = {"open": within - evaluated}
        return certificate.model_copy(
            update={
                "space_size": size,
                "over_budget": size - within,
                "pruned": within - evaluated,
                "evaluated": evaluated,
                "pruned_by": outcome.pruned_by if self._proven else left,
            }
        )
