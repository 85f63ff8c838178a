"""One run of the main job: search a space, then describe what was found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.errors import LEFT_OUT, OutOfTimeError
from phaze.explore.answers.chip_comparison import chips_beside, plan_beside
from phaze.explore.answers.evaluated_candidates import EvaluatedCandidates
from phaze.explore.certified.certified_search import CertifiedSearch
from phaze.explore.certified.search_state import Outcome
from phaze.explore.documents.result_document import Certificate, Comparison, Design, ResultDocument
from phaze.explore.documents.result_manifest import describe_request, manifest, scope
from phaze.explore.evaluation.design_builder import DesignBuilder, out_of_memory
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.frontier.pareto_archive import ParetoArchive
from phaze.explore.request.explore_request import ExploreRequest
from phaze.explore.request.objective_floor import Goal, below_floor, floor_throughput
from phaze.explore.request.search_progress import Clock, Progress, ReportingClock
from phaze.explore.request.search_resources import ALONE, SearchResources, run_in_fork
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import FEW_STATES, SAME

Beside = Callable[[], list[Comparison] | None]
"""Tells what was worked out beside something else."""

NEXT_BEST = 5
REPORT_S = 10.0  # time for schedules of what is reported; almost all are known from the search already


@dataclass(frozen=True)
class Answer:
    """The result document, and every evaluated architecture as columns of equal length."""

    document: ResultDocument
    designs: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class SearchProof:
    """Findings of the certified search, and the evaluator that knows its costs and placements."""

    outcome: Outcome
    evaluator: Evaluator


class Exploration:
    """One run of the main job for one workload: search, then describe."""

    def __init__(
        self,
        request: ExploreRequest,
        progress: Progress,
        clock: Clock,
        resources: SearchResources = ALONE,
        like: Evaluator | None = None,
    ) -> None:
        """`like`: knows the same hardware and layers; what they cost is shared."""
        self._request = request
        self._progress = progress
        self._clock = clock
        self._resources = resources
        self._like = like
        self._started = datetime.now(UTC)
        self.goal = Goal(request.objective, floor_throughput(request, request.task))
        self.candidates = Candidates(request.space, request.budgets)
        self.reporting = SolveLimits(ReportingClock(clock, REPORT_S).left, FEW_STATES)

    def answer(self) -> Answer:
        """Search, then describe what was found. Raises InfeasibleError and OutOfTimeError."""
        with self.chips() as chips:
            proof = self.search()
            return self.describe(proof.outcome, proof, chips)

    def chips(self) -> AbstractContextManager[Beside]:
        """Known chips under the same budgets, worked out beside what happens meanwhile, as long as there is time."""
        request = self._request
        builder = DesignBuilder(request.task, request.budgets.tdp_margin, self.reporting.left_s)
        return run_in_fork(lambda: chips_beside(request, builder), self.reporting.left_s)

    def search(self) -> SearchProof:
        """The certified search.

        Raises InfeasibleError where nothing fits or keeps the floors, OutOfTimeError where nothing was evaluated
        that does.
        """
        return self._proof(self._certified(gap=self._request.gap, min_throughput=self.goal.floor).run())

    def fastest_proof(self) -> SearchProof:
        """The search for the highest throughput alone. Raises as `search`."""
        return self._proof(self.fastest(self.goal.floor, self._request.gap))

    def _proof(self, outcome: Outcome) -> SearchProof:
        if outcome.frontier.keys:
            return SearchProof(outcome, self.evaluator)
        if outcome.finished and self.goal.floor > 0:
            self._check_fastest()
        if outcome.finished:
            raise out_of_memory(self.evaluator, f"space {self._request.space.name}")
        raise _out_of_time()

    @cached_property
    def evaluator(self) -> Evaluator:
        """Knows the combinations of hardware of the whole space."""
        if self._like is not None:
            return self._like.of(self._request.task)
        return Evaluator(self._request.task, self.candidates.survey(), memo=self._resources.memo)

    def _certified(self, **options: Any) -> CertifiedSearch:  # noqa: ANN401 - those of CertifiedSearch
        task, resources, known = self._request.task, self._resources, self.evaluator
        return CertifiedSearch(
            self.candidates,
            task,
            self._clock,
            self._progress,
            resources=resources,
            evaluator=known,
            **options,
        )

    def fastest(self, least: float = 0.0, gap: float = 0.0) -> Outcome:
        """The search for the highest throughput alone, from `least` samples/s on, as far as a gap; floors aside."""
        alone = partial(ParetoArchive, 0)
        return self._certified(others=_nothing, archive=alone, min_throughput=least, gap=gap).run()

    def around(self, fastest: Outcome) -> Answer:
        """Answer with the fastest design that is known, and with the frontier as far as there is time."""
        with self.chips() as chips:
            whole = self._whole(fastest)
            if whole is not None:
                return self.describe(whole.outcome, whole, chips)
            hoped = fastest.undecided[1]
            alone = replace(fastest, undecided=(np.zeros((len(hoped), 1)), hoped))
            return self.describe(replace(alone), SearchProof(alone, self.evaluator), chips)

    def _whole(self, fastest: Outcome) -> SearchProof | None:
        """The frontier where the highest throughput is known; None where time does not let it come that far."""
        try:
            proof = self.search()
        except OutOfTimeError:
            return None
        best, (others, hoped) = max(fastest.evaluated.values()), proof.outcome.undecided
        most = max(best, float(fastest.undecided[1].max(initial=0.0)))
        known = replace(proof.outcome, undecided=(others, np.minimum(hoped, most)))
        return replace(proof, outcome=known) if max(known.evaluated.values()) * (1 + SAME) >= best else None

    def _check_fastest(self) -> None:
        """Raises InfeasibleError with the highest throughput there is, where something fits at all.

        OutOfTimeError where time is over before that is known.
        """
        fastest = self.fastest()
        if not fastest.finished:
            raise _out_of_time()
        if fastest.evaluated:
            raise below_floor(self._request, self._request.task, max(fastest.evaluated.values()))

    def describe(self, shown: Outcome, proof: SearchProof, chips: Beside) -> Answer:
        """The best of `shown`, its frontier and all its designs, held against what is proven and known chips."""
        request = self._request
        self._progress.update("describing", 0, 1, "the winner, the frontier and the comparison")
        found = EvaluatedCandidates(self.candidates, proof.evaluator, shown, self.reporting)
        ranked = self._ranked(found)
        found.place(ranked[: NEXT_BEST + 1])
        best = found.design(ranked[0])
        beside = partial(plan_beside, request, best, self.reporting.left_s)
        with run_in_fork(beside, self.reporting.left_s) as expert:
            document = ResultDocument(
                request=describe_request(request),
                best=best,
                certificate=self._certificate(shown, proof.outcome, best, proof.evaluator.plans_each),
                frontier=found.frontier(),
                next_best=self._next_best(found, ranked[1 : NEXT_BEST + 1]),
                comparison=[*(chips() or ()), *(expert() or ())],
                manifest=manifest(self._started, self._clock.elapsed_s, request.seed),
            )
        return Answer(document, found.columns())

    def _next_best(self, found: EvaluatedCandidates, rows: list[int]) -> list[Design]:
        """Designs as far as there is time; how many fall out is reported in a sentence."""
        told: list[Design] = []
        for row in rows:
            if self.reporting.left_s() <= 0:
                left = f"{len(rows) - len(told)} of the next best designs {LEFT_OUT}"
                self._progress.update("describing", len(told), len(rows), left)
                break
            told.append(found.design(row))
        return told

    # -- the objective -------------------------------------------------------------------------------------

    def _ranked(self, found: EvaluatedCandidates) -> list[int]:
        """Evaluated candidates that keep the floors, best first; ties by lower TDP, smaller area, then number."""
        value = [
            self.goal.value(t, w) for t, w in zip(found.throughput, found.block.tdp_w.tolist(), strict=True)
        ]
        tdp, area = found.block.tdp_w, found.block.area_mm2
        kept = (row for row in range(len(value)) if value[row] > 0)
        return sorted(kept, key=lambda row: (-value[row], tdp[row], area[row], row))

    def proven(self, outcome: Outcome) -> float:
        """The best objective that was reached."""
        found = self.candidates.within(np.array(sorted({n for n, _ in outcome.evaluated}), dtype=np.int64))
        tdp = dict(zip(found.numbers.tolist(), found.tdp_w.tolist(), strict=True))
        return max(self.goal.value(t, tdp[number]) for (number, _), t in outcome.evaluated.items())

    def _certificate(
        self, shown: Outcome, outcome: Outcome, best: Design, plans_each: int | None
    ) -> Certificate:
        """Certificate: what `outcome` proves of the best of what is shown."""
        result = best.workloads[self._request.task.workload.name]
        # It keeps the floor as the search worked it out, which may differ from what is told in the last place.
        value = replace(self.goal, floor=0.0).value(result.throughput_samples_per_s, best.tdp_w)
        others, optimistic = outcome.undecided
        undecided = zip(optimistic.tolist(), others.tolist(), strict=True)
        reached = value if shown is outcome else self.proven(outcome)
        if reached <= value * (1 + SAME):
            reached = value  # the same design, worked out in two ways
        upper = max([value, reached, *(self.goal.value(t, tdp) for t, (tdp,) in undecided)])
        size, configs = self.candidates.size, outcome.configs
        evaluated = len(outcome.evaluated)
        return Certificate(
            optimal=upper <= value,
            objective=self._request.objective.value,
            objective_value=value,
            upper_bound=upper,
            gap=(upper - value) / value,
            scope=scope(self._request.task),
            space_size=size * configs,
            over_budget=(size - outcome.in_budget) * configs,
            pruned=outcome.in_budget * configs - evaluated,
            evaluated=evaluated,
            pruned_by=outcome.pruned_by,
            frontier_complete=outcome.finished and shown is outcome,
            plans_per_architecture=plans_each,
        )


def _nothing(block: Block) -> Floats:
    """No columns beside the throughput, (A, 0)."""
    return np.zeros((len(block), 0))


def _out_of_time() -> OutOfTimeError:
    return OutOfTimeError(
        "the time limit passed before any architecture was evaluated that is fast enough; raise --time-limit"
    )
