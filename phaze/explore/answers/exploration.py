"""One run of the main job: search a space, then describe what was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from phaze.errors import LEFT_OUT
from phaze.explore.answers.answer_parts import Answer, Proof, Shown
from phaze.explore.answers.certificate_counts import PointCounts, certificate
from phaze.explore.answers.chip_comparison import chips_beside, plan_beside
from phaze.explore.answers.evaluated_designs import TOLD_TOGETHER, EvaluatedDesigns, ToldAside, ToldPiece
from phaze.explore.answers.exploration_search import ExplorationSearch
from phaze.explore.answers.searched_question import (
    design_columns,
    hoped_worth,
    question_scope,
    worth,
    worth_of,
)
from phaze.explore.certified.search_state import Outcome, Point
from phaze.explore.documents.result_document import Certificate, Comparison, Design, ResultDocument
from phaze.explore.documents.result_manifest import describe_request, manifest
from phaze.explore.evaluation.best_points import best_points
from phaze.explore.evaluation.design_builder import DesignBuilder
from phaze.explore.evaluation.evaluation_oracle import Evaluation
from phaze.explore.request.common_score import CombinedScore
from phaze.explore.request.design_metrics import Needs
from phaze.explore.request.search_progress import Clock
from phaze.explore.request.search_resources import GIVE_WAY_S, run_in_fork
from phaze.tolerances import POINT_STATES

Beside = Callable[[], list[Comparison] | None]
"""Tells what was worked out beside something else."""

NEXT_BEST = 5


class Exploration(ExplorationSearch):
    """One run of the main job for one workload: search, then describe."""

    def answer(self) -> Answer:
        """Search, then describe what was found. Raises InfeasibleError and OutOfTimeError."""
        with self.chips() as chips, self._with_partner():
            outcome = self.search()
            return self.describe(self.shown(outcome), self.proof(outcome), chips)

    def chips(self) -> AbstractContextManager[Beside]:
        """Known chips under the same budgets, worked out beside what happens meanwhile, as long as there is time."""
        request = self.request
        builder = DesignBuilder(request.task, request.budgets.tdp_margin, self.reporting.left_s)
        return run_in_fork(lambda: chips_beside(request, builder), self.reporting.left_s, GIVE_WAY_S)

    def told(self, outcome: Outcome) -> Answer:
        """Answer of an outcome of the search for the objective alone."""
        with self.chips() as chips:
            return self.describe(self.shown(outcome), self.proof(outcome), chips)

    def around(self, fastest: Outcome) -> Answer:
        """Answer with the fastest design that is known, and with the frontier as far as there is time."""
        with self.chips() as chips:
            whole = self._whole(fastest)
            outcome = whole or self._with_power(fastest)
            proof = replace(self.proof(outcome), complete=whole is not None and whole.finished)
            return self.describe(self.shown(outcome), proof, chips)

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
        """What the other process tells of rows whose plans it knows, and this one does not."""
        hurried = self._whole_clock.interrupted
        if self._dealt is None or (hurried and not self.axes.fixed):
            return None
        self._dealt.await_partner()
        place = {config: k for k, config in enumerate(self.evaluator.configs)}
        points = {row: (one.number, one.configs[0]) for row, one in enumerate(shown.rows)}
        there = {
            row
            for row, (number, config) in points.items()
            if config is not None and self._dealt.knows_there((number, place[config]))
        }
        frontier, designs = ([row for row in rows if row in there] for rows in (self._in_turn(shown), ranked))
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
