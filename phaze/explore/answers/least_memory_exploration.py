"""The main job for the least memory: the plan that needs least of any architecture, and of those the fastest.

What plans need of a device does not depend on the architecture, so that the least of all is known before anything is
searched. Where no plan of so little keeps the floors, searches for throughput among plans of more and more memory close
in on the least that does: a search that finds nothing proves that it takes more.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from phaze.explore.answers.answer_parts import Answer, Proof, Shown
from phaze.explore.answers.certificate_counts import PointCounts
from phaze.explore.answers.chip_comparison import comparisons
from phaze.explore.answers.evaluated_designs import EvaluatedDesigns
from phaze.explore.answers.exploration import Beside, Exploration
from phaze.explore.answers.exploration_search import out_of_time
from phaze.explore.certified.search_state import Outcome, Point
from phaze.explore.documents.result_document import Design, ResultDocument
from phaze.explore.evaluation.design_builder import DesignBuilder
from phaze.explore.request.explore_request import ExploreRequest, Objective
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
    point: Point
    memory_bytes: float


class LeanExploration(Exploration):
    """One run for one workload whose objective is memory, without other axes."""

    _too_little = 0.0  # bytes that no plan gets by with
    _best: _Lean | None = None

    def answer(self) -> Answer:
        """Search, then describe what was found. Raises InfeasibleError and OutOfTimeError."""
        self._close_in_on_the_least()
        if (best := self._best) is None:
            raise out_of_time(floored=True)
        self.evaluators = best.exploration.evaluators
        found = best.outcome.evaluated[best.point]
        shown = Shown(
            best.exploration.evaluations([best.point], best.outcome),
            [replace(found, lead=1.0 / best.memory_bytes)],
            [0],
        )
        return self.describe(shown, self._proof_of(best), lambda: None)

    # -- the search ----------------------------------------------------------------------------------------

    def _close_in_on_the_least(self) -> None:
        """Find the least memory in which a plan keeps the floors, as far as there is time."""
        least = self._least_bytes()
        self._too_little = least * (1 - BOUND_ROUNDING)
        if not self._try(least) and not self.clock.over:
            if not self._try(None, gap=ANY) and not self.clock.over:
                self._among(None).search()  # tells why there is none
            self._close_in()

    def _least_bytes(self) -> float:
        """Least memory that any plan needs."""
        configs, least = self.evaluator.configs, np.inf
        for done, config in enumerate(configs):
            self.progress.update("bounding", done, len(configs), "memory of plans")
            least = min(least, self.evaluator.least_bytes(config))
        return least

    def _close_in(self) -> None:
        """Try amounts between what is too little and what does, until none is left that a plan needs."""
        proven = False
        while self._best is not None and not self.clock.over and not proven:
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
        amounts = self.evaluator.amounts_between(little * (1 + SAME), enough * (1 - SAME))
        return float(amounts[len(amounts) // 2]) if len(amounts) else None

    def _try(self, most: float | None, gap: float = 0.0) -> bool:
        """Whether some plan gets by with so much memory: then it is the best one so far; otherwise it is too little.

        Not where time was over.
        """
        exploration = self._among(most)
        outcome = exploration.fastest(self.floor, gap)
        reached = {one.value: point for point, one in outcome.evaluated.items() if one.lead > 0}
        if reached:
            self._best = self._lean(outcome, exploration, reached[max(reached)])
        elif outcome.finished and most is not None:
            self._too_little = max(self._too_little, most)
        return bool(reached)

    def _among(self, most: float | None) -> Exploration:
        """The search for throughput among plans that need no more memory than that."""
        limit = None if most is None else most * (1 + SAME / 2)
        task = replace(self.request.task, memory_bytes=limit)
        request = replace(self.request, objective=Objective.THROUGHPUT, task=task)
        return Exploration(request, self.progress, self.clock, self.resources, self.evaluator)

    def _lean(self, outcome: Outcome, exploration: Exploration, point: Point) -> _Lean:
        """A point that was found, with the memory of its plan."""
        (row,) = exploration.evaluations([point], outcome)
        found = EvaluatedDesigns(self.candidates, exploration.evaluators, [row], self.reporting)
        return _Lean(outcome, exploration, point, found.frontier([0])[0].memory_bytes)

    # -- the answer ----------------------------------------------------------------------------------------

    def _proof_of(self, best: _Lean) -> Proof:
        """No plan of less memory keeps the floors; points that are faster in as much fall where they fell.

        Stopped early, all that was not evaluated is undecided.
        """
        proven = self._too_little >= best.memory_bytes * (1 - SAME)
        counts = PointCounts.of(best.outcome, self.candidates)
        if proven:
            return Proof([], counts, complete=True)
        left = {"open": counts.size - counts.over_budget - counts.evaluated}
        return Proof([1.0 / self._too_little], replace(counts, pruned_by=left), complete=False)

    def _expert(self, found: EvaluatedDesigns, best: int) -> AbstractContextManager[Beside]:
        return nullcontext(lambda: None)  # with the chips, once it is known how much memory all may have

    def _parts(self, found: EvaluatedDesigns, shown: Shown, best: Design, beside: Beside) -> dict[str, Any]:
        """Known chips and the expert plan in as much memory: of plans only those are looked at that may fit."""
        most = best.workloads[self.request.task.workload.name].memory_bytes * (1 + SAME)
        fitting = [s for s in self.evaluator.configs if self.evaluator.least_bytes(s) <= most]
        held = {name: tuple(dict.fromkeys(s.choices[name][0] for s in fitting)) for name in WIDTHS}
        task = replace(self.request.task, held={**self.request.task.held, **held}, memory_bytes=most)
        request = replace(self.request, task=task)
        builder = DesignBuilder(task, request.budgets.tdp_margin)
        others = comparisons(request, best, builder, self.reporting.left_s)
        return {"frontier": found.frontier(shown.frontier), "comparison": others}
