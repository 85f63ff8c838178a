"""One run of the main job: search a space, then describe what was found; for one workload or for several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Any

import numpy as np

from phaze.errors import LEFT_OUT, OutOfTimeError
from phaze.explore.answers.answer_parts import Answer, Proof, Shown
from phaze.explore.answers.certificate_counts import PointCounts, certificate
from phaze.explore.answers.chip_comparison import chips_beside, plan_beside
from phaze.explore.answers.evaluated_designs import TOLD_TOGETHER, EvaluatedDesigns, ToldAside, ToldPiece
from phaze.explore.answers.searched_question import (
    best_kept,
    design_columns,
    fastest_axes,
    hoped_worth,
    question_scope,
    search_axes,
    worth,
    worth_of,
)
from phaze.explore.certified.block_screening import half_over
from phaze.explore.certified.certified_search import CertifiedSearch
from phaze.explore.certified.dealt_configs import DealtConfigs, dealt
from phaze.explore.certified.search_points import WorkloadPoints
from phaze.explore.certified.search_state import Outcome, Point, Reached
from phaze.explore.documents.result_document import Certificate, Comparison, Design, ResultDocument
from phaze.explore.documents.result_manifest import describe_request, manifest
from phaze.explore.evaluation.best_points import best_points
from phaze.explore.evaluation.design_builder import DesignBuilder, out_of_memory
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.drawn_power import drawn_w
from phaze.explore.evaluation.evaluation_oracle import Evaluation
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.frontier.search_axes import SearchAxes
from phaze.explore.request.common_score import CombinedScore
from phaze.explore.request.design_metrics import Needs
from phaze.explore.request.explore_request import ExploreRequest, objective_of
from phaze.explore.request.objective_floor import below_floor, draws_more, floor_throughput
from phaze.explore.request.partner_process import may_work_beside, partner_process
from phaze.explore.request.search_progress import Clock, ClockShare, Progress, ReportingClock
from phaze.explore.request.search_resources import ALONE, SearchResources, run_in_fork
from phaze.hardware.silicon.package_power import tdp_w
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import FEW_STATES, POINT_STATES, SAME

Beside = Callable[[], list[Comparison] | None]
"""Tells what was worked out beside something else."""

NEXT_BEST = 5

WORTH_PARTNER = 1 << 22  # points of which half are worth a process

SMALLEST = 32  # architectures of least power that are looked at where none draws little enough


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
        self.request = request
        self.progress = progress
        self.clock = clock
        self.resources = resources
        self._like = like
        self._dealt: DealtConfigs | None = None
        self._started = datetime.now(UTC)
        self.axes = search_axes(request)
        self.objective = objective_of(request)
        self.candidates = Candidates(request.space, request.budgets)
        self._whole_clock = clock.whole if isinstance(clock, ClockShare) and clock.whole else clock
        self.reporting = SolveLimits(ReportingClock(self._whole_clock).left, FEW_STATES)

    def answer(self) -> Answer:
        """Search, then describe what was found. Raises InfeasibleError and OutOfTimeError."""
        with self.chips() as chips, self._with_partner():
            outcome = self.search()
            return self.describe(self.shown(outcome), self.proof(outcome), chips)

    @contextmanager
    def _with_partner(self) -> Iterator[None]:
        """Deal the configs with a copy of this process, where there is enough to do for two."""
        if not self._worth_partner:
            yield
            return
        context = self._points(self.axes, self.floor, self.clock).context
        evaluator = self.evaluator
        evaluator.prepare(half_over(self.clock))
        with partner_process(context.do, self.clock) as partner:
            self._dealt = DealtConfigs(context, partner, dealt(evaluator.configs))
            try:
                yield
            finally:
                self._dealt = None

    @property
    def _worth_partner(self) -> bool:
        """Whether one workload has many points whose values follow from the time they take."""
        if len(self.request.tasks) > 1 or not self.axes.fixed or self._drawn:
            return False
        if self.resources.executor.workers > 1 or not may_work_beside():
            return False
        return self.candidates.size * len(self.evaluator.configs) >= WORTH_PARTNER

    def chips(self) -> AbstractContextManager[Beside]:
        """Known chips under the same budgets, worked out beside what happens meanwhile, as long as there is time."""
        request = self.request
        builder = DesignBuilder(request.task, request.budgets.tdp_margin, self.reporting.left_s)
        return run_in_fork(lambda: chips_beside(request, builder), self.reporting.left_s)

    # -- the search ----------------------------------------------------------------------------------------

    def search(self) -> Outcome:
        """The certified search for the frontier.

        Raises InfeasibleError where nothing fits or keeps the floors, OutOfTimeError where nothing was evaluated
        that does.
        """
        if not self.request.over_axes or not self.axes.others:
            return self._checked(self._certified(self.axes, self.floor, self.request.gap))
        return self._after_the_best(self._checked(self._objective_alone()))

    def _objective_alone(self) -> Outcome:
        """The search for the objective: proven, it bounds what a frontier on more axes leaves undecided."""
        half = ClockShare(self.clock.left() / 2, whole=self.clock)
        return self._certified(SearchAxes((self.objective,)), self.floor, self.request.gap, half)

    def _after_the_best(self, alone: Outcome) -> Outcome:
        """The search for the frontier, where the best of the objective is known."""
        ((number, config),) = alone.members
        outcome = self._certified(self.axes, self.floor, self.request.gap, first=[number])
        if outcome.finished:
            return self._checked(outcome)
        known = best_kept(self.axes, self.objective, outcome, alone)
        if known.frontier.keys and self.proven(known) * (1 + SAME) >= alone.most_reached:
            return known
        return self._with(known, (number, config), alone.evaluated[number, config].value)

    def _with(self, outcome: Outcome, point: Point, value: float) -> Outcome:
        """An outcome that was stopped before it evaluated a point of a throughput in samples/s."""
        points = self._points(self.axes, self.floor, self.clock)
        block = self.candidates.within(np.array([point[0]]))
        pool = points.hopes(block, np.zeros(1, dtype=np.intp), np.array([point[1]]), np.array([value]))
        others, lead = points.measured(pool, np.array([value]), self.reporting)
        found = Reached(value, float(lead[0]), tuple(others[0].tolist()), float(block.area_mm2[0]))
        outcome.frontier.add(found.others, found.lead, points.key(point, found))
        left = {**outcome.pruned_by, "open": outcome.pruned_by["open"] - 1}
        return replace(
            outcome,
            evaluated={**outcome.evaluated, point: found},
            pruned_by={name: count for name, count in left.items() if count},
        )

    def fastest(self, least: float = 0.0, gap: float = 0.0) -> Outcome:
        """The search for the highest throughput alone, from `least` samples/s on, as far as a gap; floors aside."""
        return self._certified(fastest_axes(), least, gap)

    def beyond(self, known: float) -> Outcome:
        """The search for the objective alone and what is better than `known`, as certificates tell it, above floors.

        Nothing is evaluated where nothing is better.
        """
        return self._certified(SearchAxes((self.objective,)), self.floor, self.request.gap, known=known)

    def told(self, outcome: Outcome) -> Answer:
        """Answer of an outcome of the search for the objective alone."""
        with self.chips() as chips:
            return self.describe(self.shown(outcome), self.proof(outcome), chips)

    def fastest_proof(self) -> Outcome:
        """The same above the floors. Raises as `search`."""
        return self._checked(self.fastest(self.floor, self.request.gap))

    def around(self, fastest: Outcome) -> Answer:
        """Answer with the fastest design that is known, and with the frontier as far as there is time."""
        with self.chips() as chips:
            whole = self._whole(fastest)
            outcome = whole or self._with_power(fastest)
            proof = replace(self.proof(outcome), complete=whole is not None and whole.finished)
            return self.describe(self.shown(outcome), proof, chips)

    def _whole(self, fastest: Outcome) -> Outcome | None:
        """The frontier where the highest throughput is known; None where time does not let it come that far."""
        try:
            outcome = self.search()
        except OutOfTimeError:
            return None
        others, hoped = outcome.undecided
        known = replace(outcome, undecided=(others, np.minimum(hoped, fastest.most)))
        best = max(one.value for one in known.evaluated.values())
        return known if best * (1 + SAME) >= max(one.value for one in fastest.evaluated.values()) else None

    def _with_power(self, fastest: Outcome) -> Outcome:
        """A search for the highest throughput as one that knows of power, but nothing of slower designs."""
        numbers = np.array([number for number, _ in fastest.evaluated], dtype=np.int64)
        tdp = self.candidates.within(numbers).tdp_w.tolist()
        evaluated = {
            point: replace(one, others=(power,))
            for (point, one), power in zip(fastest.evaluated.items(), tdp, strict=True)
        }
        frontier = self.axes.archive()
        for point, key in zip(fastest.members, fastest.frontier.keys, strict=True):
            frontier.add(evaluated[point].others, evaluated[point].lead, key)
        hoped = fastest.undecided[1]
        return replace(
            fastest, evaluated=evaluated, frontier=frontier, undecided=(np.zeros((len(hoped), 1)), hoped)
        )

    @property
    def _drawn(self) -> bool:
        """Whether a plan has to keep a limit of what is drawn."""
        return self.request.budgets.drawn_limit_w is not None

    @cached_property
    def floor(self) -> float:
        """The least throughput asked for, samples/s."""
        return floor_throughput(self.request, self.request.task)

    @cached_property
    def evaluators(self) -> list[Evaluator]:
        """One for each workload, which know the combinations of hardware of the whole space."""
        if self._like is not None:
            return [self._like.of(self.request.task)]
        survey = self.candidates.survey()
        return [Evaluator(task, survey, memo=self.resources.memo) for task in self.request.tasks]

    @property
    def evaluator(self) -> Evaluator:
        """That of the first workload."""
        return self.evaluators[0]

    def _certified(
        self,
        axes: SearchAxes,
        least: float,
        gap: float,
        clock: Clock | None = None,
        first: Sequence[int] = (),
        known: float = 0.0,
    ) -> Outcome:
        timer = clock or self.clock
        points = self._points(axes, least, timer)
        return CertifiedSearch(points, timer, self.progress, gap=gap, first=first, known=known).run()

    def _points(self, axes: SearchAxes, least: float, clock: Clock) -> WorkloadPoints:
        points = WorkloadPoints.of(
            self.candidates,
            self.request.task,
            clock,
            axes,
            least=least,
            resources=self.resources,
            evaluator=self.evaluator,
        )
        points.dealt = self._dealt
        return points

    def _checked(self, outcome: Outcome) -> Outcome:
        """An outcome with a frontier; else it raises why there is none."""
        if outcome.frontier.keys:
            return outcome
        if outcome.finished and self.floor > 0:
            self._check_fastest()
        if outcome.finished and self._drawn:
            self._check_drawn()
        if outcome.finished:
            raise out_of_memory(self.evaluator, f"space {self.request.space.name}")
        raise out_of_time(floored=self.floor > 0)

    def _check_fastest(self) -> None:
        """Raises InfeasibleError with the highest throughput there is, where something fits at all.

        OutOfTimeError where time is over before that is known.
        """
        fastest = self.fastest()
        if not fastest.finished:
            raise out_of_time(floored=True)
        if fastest.frontier.keys:
            raise below_floor(self.request, self.request.task, fastest.most)

    def _check_drawn(self) -> None:
        """Raises InfeasibleError with the power that small architectures draw, where the workload fits on any."""
        table, limit_w = self.candidates.survey(), self.request.budgets.drawn_limit_w
        smallest = np.argsort(tdp_w(table), kind="stable")[:SMALLEST]
        watts = drawn_w(self.evaluator.on(table.take(smallest)), self.reporting)
        if limit_w is not None and watts.any():
            raise draws_more(self.request, limit_w, float(watts[watts > 0].min()))

    # -- what is shown -------------------------------------------------------------------------------------

    def shown(self, outcome: Outcome) -> Shown:
        """The best point of every candidate that was evaluated, or the frontier where axes depend on more."""
        members = outcome.members
        best = outcome.best_per_candidate()
        shown = [(number, best[number]) for number in sorted(best)]
        if not self.axes.fixed or self._drawn:
            shown = members
        elif members:
            members = [(number, best[number]) for number, _ in members]
        places = {point: place for place, point in enumerate(shown)}
        rows = self._fastest_rows(self.evaluations(shown, outcome))
        return Shown(
            rows, [outcome.evaluated[point] for point in shown], [places[point] for point in members]
        )

    def evaluations(self, points: Sequence[Point], outcome: Outcome) -> list[Evaluation]:
        """Points that an outcome evaluated."""
        block = self.candidates.within(np.array([number for number, _ in points], dtype=np.int64))
        sizes = zip(block.tdp_w.tolist(), block.area_mm2.tolist(), strict=True)
        configs, reached = self.evaluator.configs, [outcome.evaluated[point] for point in points]
        return [
            Evaluation(number, one.value, (one.value,), (configs[k],), *size)
            for (number, k), one, size in zip(points, reached, sizes, strict=True)
        ]

    def _fastest_rows(self, rows: list[Evaluation]) -> list[Evaluation]:
        """The fastest plan of each architecture, where no axis prefers one plan to another."""
        if self._drawn or any(axis.needs is not Needs.ARCHITECTURE for axis in self.axes.metrics):
            return rows
        table = self.candidates.table(np.array([row.number for row in rows]))
        found = best_points(self.evaluator.on(table), np.arange(len(rows)), self.reporting)
        speeds = (self.request.task.cluster.global_batch / found.upper_s).tolist()
        return [
            replace(row, value=speed, throughputs=(speed,), configs=(config,)) if config else row
            for row, speed, config in zip(rows, speeds, found.configs, strict=True)
        ]

    # -- the answer ----------------------------------------------------------------------------------------

    def proof(self, outcome: Outcome, *, shown: bool = True) -> Proof:
        """What an outcome proves, what it evaluated being hoped for; `shown`: whether its points are what is told."""
        hoped = [*hoped_worth(self.objective, self.axes, *outcome.undecided).tolist(), self.proven(outcome)]
        return Proof(hoped, PointCounts.of(outcome, self.candidates), complete=outcome.finished and shown)

    def proven(self, outcome: Outcome) -> float:
        """The best objective that an outcome reached."""
        return max(worth_of(self.objective, self.axes, one) for one in outcome.evaluated.values())

    def ranked(self, shown: Shown) -> list[int]:
        """Rows that keep the floors, best first; ties by lower TDP, smaller area, then number."""
        value = [worth_of(self.objective, self.axes, one) for one in shown.reached]

        def order(place: int) -> tuple[float, ...]:
            row = shown.rows[place]
            return -value[place], row.tdp_w, row.area_mm2, row.number, -row.value

        return sorted((place for place in range(len(value)) if value[place] > 0), key=order)

    def describe(self, shown: Shown, proof: Proof, chips: Beside) -> Answer:
        """The best of `shown`, its frontier and all its rows, held against what is proven and known chips."""
        self.progress.update("describing", 0, 1, "the winner, the frontier and the comparison")
        # What workers have scheduled is scheduled here again, as long as they took, to reach the same times.
        effort = replace(self.reporting, states=POINT_STATES)
        best, *others = distinct_kinds(self.ranked(shown), lambda place: self._figures(shown, place))
        ranked = [best, *others[: 0 if self.request.over_axes else NEXT_BEST]]
        aside = self._told_aside(shown, ranked)
        found = EvaluatedDesigns(self.candidates, self.evaluators, shown.rows, effort, aside)
        with self._expert(found, best) as expert:
            found.place([best])
            shown, proof = self._in_time(found, shown, proof)
            if not self._whole_clock.interrupted:
                found.place(ranked)
            winner = found.design(best)
            parts = self._parts(found, shown, winner, lambda: [*(chips() or ()), *(expert() or ())])
        document = ResultDocument(
            request=describe_request(self.request),
            best=winner,
            certificate=self._certificate(winner, proof),
            next_best=self._next_best(found, ranked[1:]),
            manifest=manifest(self._started, self._whole_clock.elapsed_s, self.request.seed),
            **parts,
        )
        return Answer(document, found.columns(() if self.axes.fixed else document.frontier))

    def _in_time(self, found: EvaluatedDesigns, shown: Shown, proof: Proof) -> tuple[Shown, Proof]:
        """What is shown, its plans worked out, and what is proven.

        Once somebody has ended the search, the frontier is told as far as there is time, the best points first; how
        many fall out is reported in a sentence. Where axes need plans, these are known already.
        """
        members = self._placed(shown)
        if not (members and self.axes.fixed and self._whole_clock.interrupted):
            found.place(members)
            return shown, proof
        here = [row for row in self._in_turn(shown) if not found.is_elsewhere(row)]
        told = set[int]()
        while len(told) < len(here) and (not told or self.reporting.left_s() > 0):
            some = here[len(told) : len(told) + TOLD_TOGETHER]
            found.place(some)
            told.update(some)
        told |= found.told_elsewhere
        if left := len(members) - len(told):
            note = f"{left} points of the frontier {LEFT_OUT}"
            self.progress.update("describing", len(told), len(members), note)
        frontier = [row for row in shown.frontier if row in told]
        return replace(shown, frontier=frontier), replace(proof, complete=proof.complete and not left)

    def _in_turn(self, shown: Shown) -> list[int]:
        """Rows whose plans are told beside those of the best, the best ones first."""
        members = self._placed(shown)
        return [row for row in dict.fromkeys([*self.ranked(shown), *members]) if row in members]

    def _told_aside(self, shown: Shown, ranked: Sequence[int]) -> ToldAside | None:
        """What the other process tells of rows in its configs, of which this one knows no plans."""
        hurried = self._whole_clock.interrupted
        if self._dealt is None or (hurried and not self.axes.fixed):
            return None
        self._dealt.await_partner()
        configs = [c for c, away in zip(self.evaluator.configs, self._dealt.away, strict=True) if away]
        frontier, designs = (
            [row for row in rows if shown.rows[row].configs[0] in configs]
            for rows in (self._in_turn(shown), ranked)
        )
        clock = Clock(self.reporting.left_s())
        rows = {row: shown.rows[row] for row in (*frontier, *designs)}
        return ToldAside.of(self._dealt.partner, ToldPiece(rows, frontier, designs, clock, hurried))

    def _figures(self, shown: Shown, place: int) -> Sequence[float]:
        """Objective, power and area of a row."""
        row = shown.rows[place]
        return worth_of(self.objective, self.axes, shown.reached[place]), row.tdp_w, row.area_mm2

    def _certificate(self, best: Design, proof: Proof) -> Certificate:
        several = len(self.request.tasks) > 1
        return certificate(
            self.objective.name,
            float(worth(self.objective, design_columns(best, self.request.task, self.rule))),
            proof.hoped,
            proof.counts,
            self.scope,
            complete=proof.complete,
            plans_each=None if several else self.evaluator.plans_each,
        )

    @property
    def rule(self) -> CombinedScore | None:
        """The rule of several workloads."""
        return None

    @property
    def scope(self) -> list[str]:
        """The model choices that proofs speak of."""
        return question_scope(self.request)

    def _placed(self, shown: Shown) -> Sequence[int]:
        """Rows whose plans are told beside those of the best."""
        return shown.frontier

    def _expert(self, found: EvaluatedDesigns, best: int) -> AbstractContextManager[Beside]:
        """The expert plan on the best row, worked out while plans of all others are told."""
        fields, left_s = found.architecture(best).fields, self.reporting.left_s
        return run_in_fork(partial(plan_beside, self.request, fields, left_s), left_s)

    def _parts(self, found: EvaluatedDesigns, shown: Shown, best: Design, beside: Beside) -> dict[str, Any]:
        """Parts of the document that differ between one workload and several."""
        return {"frontier": found.frontier(shown.frontier), "comparison": beside()}

    def _next_best(self, found: EvaluatedDesigns, rows: list[int]) -> list[Design]:
        """Designs as far as there is time; how many fall out is reported in a sentence."""
        told: list[Design] = []
        for row in rows:
            if self.reporting.left_s() <= 0:
                left = f"{len(rows) - len(told)} of the next best designs {LEFT_OUT}"
                self.progress.update("describing", len(told), len(rows), left)
                break
            if found.tells(row):
                told.append(found.design(row))
        return told


def distinct_kinds(places: Sequence[int], figures: Callable[[int], Sequence[float]]) -> list[int]:
    """The first of every kind, in order: chips with the same figures are one, their cores in other groups."""
    kinds: dict[tuple[str, ...], int] = {}
    for place in places:
        kinds.setdefault(tuple(f"{figure:.9g}" for figure in figures(place)), place)
    return list(kinds.values())


def out_of_time(*, floored: bool) -> OutOfTimeError:
    """Nothing is known yet; `floored`: that is fast enough."""
    first = (
        "an architecture was found that is fast enough" if floored else "the first architecture was evaluated"
    )
    return OutOfTimeError(f"the time limit passed before {first}; raise --time-limit")
