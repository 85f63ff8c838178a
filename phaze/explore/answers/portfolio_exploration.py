"""One common design for several workloads: every workload's own optimum, then the common one, its regret on each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from phaze.errors import InfeasibleError, OutOfTimeError
from phaze.explore.answers.answer_parts import Shown
from phaze.explore.answers.evaluated_designs import EvaluatedDesigns
from phaze.explore.answers.exploration import Beside, Exploration
from phaze.explore.answers.exploration_search import out_of_time
from phaze.explore.answers.searched_question import question_scope
from phaze.explore.certified.certified_search import CertifiedSearch
from phaze.explore.certified.common_points import CommonPoints
from phaze.explore.certified.search_state import Outcome, Point
from phaze.explore.documents.result_document import Cross, Design, OwnOptimum, PortfolioReport, Share
from phaze.explore.evaluation.evaluation_oracle import Evaluation, Oracle
from phaze.explore.request.common_score import CombinedScore
from phaze.explore.request.explore_request import Objective, Task, check_weights
from phaze.explore.request.objective_floor import below_floor, floor_throughput
from phaze.explore.request.search_progress import ClockShare


@dataclass(frozen=True)
class WorkloadOptimum:
    """One workload's own optimum, and the number of that design."""

    optimum: OwnOptimum
    number: int


class CommonExploration(Exploration):
    """One run of the main job for several workloads: the best common design, and what it costs each of them."""

    def chips(self) -> AbstractContextManager[Beside]:
        """Known chips are held against the best design for one workload, none here."""
        return nullcontext(lambda: None)

    # -- the search ----------------------------------------------------------------------------------------

    def search(self) -> Outcome:
        """The own optimum of every workload, then the frontier of the score.

        Raises InputError where two workloads have one name or weights do not fit the rule, InfeasibleError where a
        workload fits no architecture, or all of them together none, OutOfTimeError where nothing is known in time.
        """
        check_weights(self.request)
        caps = np.array([own.optimum.upper_bound_samples_per_s for own in self.own])
        self.points = CommonPoints(self.candidates, self.axes, self.evaluators, self.rule, caps, self.clock)
        first = list(dict.fromkeys(own.number for own in self.own))
        search = CertifiedSearch(self.points, self.clock, self.progress, gap=self.request.gap, first=first)
        outcome = search.run()
        if not outcome.frontier.keys:
            raise self._nothing(outcome)
        return outcome

    @cached_property
    def own(self) -> tuple[WorkloadOptimum, ...]:
        """The certified search for the highest throughput of every workload alone, in the same space and budgets.

        Each may take an even share of the time that is left, one more share being kept for the common design.
        """
        shares = range(len(self.request.tasks) + 1, 1, -1)
        return tuple(self._own(task, share) for task, share in zip(self.request.tasks, shares, strict=True))

    def _own(self, task: Task, share: int) -> WorkloadOptimum:
        alone = replace(
            self.request,
            task=task,
            others=(),
            weights=(),
            axes=(),
            objective=Objective.THROUGHPUT,
            min_throughput=None,
            max_latency_s=None,
        )
        clock = ClockShare(self.clock.left() / share, whole=self.clock)
        like = self.evaluators[self.request.tasks.index(task)]
        exploration = Exploration(alone, self.progress, clock, self.resources, like)
        outcome = exploration.fastest_proof()
        best = min(
            exploration.evaluations(list(outcome.evaluated), outcome),
            key=lambda one: (-one.value, one.tdp_w, one.area_mm2, one.number),
        )
        optimum = OwnOptimum(
            id=self.candidates.architecture(best.number).name,
            throughput_samples_per_s=best.value,
            upper_bound_samples_per_s=outcome.most,
            gap=(outcome.most - best.value) / best.value,
            area_mm2=best.area_mm2,
            tdp_w=best.tdp_w,
        )
        return WorkloadOptimum(optimum, best.number)

    @cached_property
    def rule(self) -> CombinedScore:
        """The rule, relative to the optimum of each workload."""
        request = self.request
        return CombinedScore(
            request.combine,
            check_weights(request),
            tuple(own.optimum.throughput_samples_per_s for own in self.own),
            tuple(floor_throughput(request, task) for task in request.tasks),
        )

    @property
    def scope(self) -> list[str]:
        """The model choices that proofs speak of, the rule, and what it is relative to."""
        return question_scope(self.request, self.rule, [own.optimum for own in self.own])

    def _nothing(self, outcome: Outcome) -> InfeasibleError | OutOfTimeError:
        request = self.request
        for task, own in zip(request.tasks, self.own, strict=True):
            if own.optimum.upper_bound_samples_per_s < floor_throughput(request, task):
                return below_floor(request, task, own.optimum.throughput_samples_per_s)
        if not outcome.finished:
            return out_of_time(floored=False)
        names = ", ".join(task.workload.name for task in request.tasks)
        return InfeasibleError(
            f"no architecture of space {request.space.name} within the budgets suits all of {names}; "
            "lower floors, more --devices or larger HBM stacks (--space) would help"
        )

    # -- what is shown -------------------------------------------------------------------------------------

    def evaluations(self, points: Sequence[Point], outcome: Outcome) -> list[Evaluation]:
        """Architectures that an outcome evaluated."""
        block = self.candidates.within(np.array([number for number, _ in points], dtype=np.int64))
        sizes = zip(block.tdp_w.tolist(), block.area_mm2.tolist(), strict=True)
        return [
            Evaluation(point[0], outcome.evaluated[point].value, *self.points.reached(point[0]), *size)
            for point, size in zip(points, sizes, strict=True)
        ]

    def _placed(self, shown: Shown) -> Sequence[int]:
        return ()

    def _expert(self, found: EvaluatedDesigns, best: int) -> AbstractContextManager[Beside]:
        return nullcontext(lambda: None)

    def _parts(self, found: EvaluatedDesigns, shown: Shown, best: Design, beside: Beside) -> dict[str, Any]:
        speeds = tuple(result.throughput_samples_per_s for result in best.workloads.values())
        score = float(self.rule.score(np.array(speeds)[:, None])[0])
        report = PortfolioReport(
            combine=self.rule.combine.value,
            score=score,
            workloads=self._shares(speeds),
            cross=[self._common(best, score), *self._winners()],
            frontier=found.steps(shown.frontier),
        )
        return {"frontier": [], "comparison": [], "portfolio": report}

    def _shares(self, speeds: Sequence[float]) -> dict[str, Share]:
        """What every workload gets from the common design."""
        return {
            task.workload.name: workload_share(weight, speed, own.optimum)
            for task, weight, speed, own in zip(
                self.request.tasks, self.rule.weights, speeds, self.own, strict=True
            )
        }

    def _common(self, best: Design, score: float) -> Cross:
        """The common design on all workloads."""
        return Cross(
            id=best.id,
            winner_for=[],
            score=score,
            throughputs_samples_per_s={
                name: result.throughput_samples_per_s for name, result in best.workloads.items()
            },
            tdp_w=best.tdp_w,
            area_mm2=best.area_mm2,
        )

    def _winners(self) -> list[Cross]:
        """Every workload's own best design on all workloads; each design once."""
        numbers = list(dict.fromkeys(own.number for own in self.own))
        oracle = Oracle(
            self.candidates,
            self.request.tasks,
            lambda speeds, _tdp_w, _area_mm2: self.rule.score(speeds),
            ClockShare(self.reporting.left_s()),
            self.resources,
            self.evaluators,
        )
        evaluated = oracle.evaluate(numbers)
        found = EvaluatedDesigns(self.candidates, self.evaluators, evaluated, self.reporting)
        names = [task.workload.name for task in self.request.tasks]
        return [
            found.cross(place, [n for n, own in zip(names, self.own, strict=True) if own.number == number])
            for place, number in enumerate(numbers)
        ]


def workload_share(weight: float, speed: float, own: OwnOptimum) -> Share:
    """What one workload gets from a common design on which it reaches some samples/s."""
    ratio = speed / own.throughput_samples_per_s if own.throughput_samples_per_s > 0 else 0.0
    return Share(weight=weight, throughput_samples_per_s=speed, ratio=ratio, regret=1.0 - ratio, own=own)
