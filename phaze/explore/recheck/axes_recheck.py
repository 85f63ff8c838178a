"""The claims of a run over any axes worked out again: the winner, every point of the frontier, and other points.

A point is an architecture in one config. Every point of the frontier is evaluated anew; then architectures are
picked as for other runs, and evaluated in the configs that are most frequent on the frontier, in those of their own
highest rooflines, and in some drawn at random.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from phaze.arrays import Floats
from phaze.errors import InfeasibleError, InputError
from phaze.explore.answers.main_job import only_point
from phaze.explore.documents.certify_document import Check, Sample
from phaze.explore.documents.result_document import FrontierPoint
from phaze.explore.evaluation.design_builder import DesignBuilder
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.training_config import TrainingConfig, config_of_placement, config_of_row
from phaze.explore.recheck.architecture_sample import Population, pick_sample
from phaze.explore.recheck.common_recheck import Recheck, Sampled
from phaze.explore.recheck.elementary_checks import (
    bound_agrees,
    counts_agree,
    same_figure,
    throughput_reached,
)
from phaze.explore.recheck.rechecked_points import (
    BLIND,
    WHOLE,
    AxesPoints,
    beaten,
    by_config,
    claimed_values,
    drawn_configs,
    objective,
)
from phaze.explore.request.design_metrics import Needs
from phaze.explore.request.explore_request import axes_of
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.economics.package_price import price_usd
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.tolerances import SAME

FREQUENT = 4  # configs of the frontier in which every sampled architecture is evaluated
HOPEFUL = 3  # configs of every sampled architecture with the highest rooflines, wherever they are


class AxesRecheck(Recheck):
    """The re-check of a run over any axes."""

    def checks(self) -> Iterator[Check]:
        """Its claims, its winner, its counts, and its points."""
        yield from self._claims()
        yield from self._winner()
        yield counts_agree(self.parts(), self.document.certificate)
        yield from self._frontier()

    @cached_property
    def _candidates(self) -> Candidates:
        return Candidates(self.request.space, self.request.budgets)

    @cached_property
    def _claimed(self) -> Floats:
        """The frontier as the run tells it, (A, axes), less being better."""
        return claimed_values(self.request, [self._row(point) for point in self.document.frontier])

    def _row(self, point: FrontierPoint) -> dict[str, Any]:
        """A point of the frontier as a row of a design table, its price worked out."""
        table = to_table([Architecture(name=point.id, fields=point.architecture)])
        price = price_usd(table, np.array([point.area_mm2]), self.request.task.economics)
        return {**dict(point), "price_usd": float(price[0])}

    # -- checks ---------------------------------------------------------------------------------------------

    def _claims(self) -> Iterator[Check]:
        """The certificate and the frontier in themselves."""
        c, best = self.document.certificate, self.document.best
        own = claimed_values(self.request, [self._row(only_point(best, self.request.task))])
        yield same_figure(
            "objective value is the winner's", c.objective_value, float(objective(self.request, own)[0])
        )
        yield bound_agrees(c)
        most = float(objective(self.request, self._claimed).max(initial=0.0))
        yield same_figure("no point of the frontier is better than the winner", c.objective_value, most)
        others = [np.delete(self._claimed, i, axis=0) for i in range(len(self._claimed))]
        spare = sum(bool(beaten(self._claimed[i : i + 1], rest)[0]) for i, rest in enumerate(others))
        yield Check(
            name="no point of the frontier beats another", passed=not spare, note=f"{spare} of {len(others)}"
        )

    def _winner(self) -> Iterator[Check]:
        """The winner's plan in its config built anew and checked, its size and power from its hardware fields."""
        best, margin = self.document.best, self.request.budgets.tdp_margin
        name = self.request.task.workload.name
        chip = Architecture(name=best.id, fields=best.architecture)
        table = to_table([chip])
        yield same_figure("TDP of the winner", best.tdp_w, float(tdp_w(table, margin)[0]))
        yield same_figure("area of the winner", best.area_mm2, float(area_mm2(table)[0]))
        claimed = best.workloads[name]
        task = self.request.task
        placed, evaluator = config_of_placement(task, claimed.placement), Evaluator(task, table)
        try:
            built = DesignBuilder(task, margin).placed(chip, evaluator, 0, placed, np.inf, WHOLE)
            again = built.workloads[name]
        except InfeasibleError:
            yield Check(name=f"{name} fits on the winner", passed=False, note="no placement is left")
            return
        yield throughput_reached(
            f"throughput of the winner on {name}",
            claimed.throughput_samples_per_s,
            again.throughput_samples_per_s,
            exactly=self.document.certificate.optimal,
        )
        if self.document.certificate.optimal:  # stopped early, it may have a plan that is not its best
            yield same_figure(
                "energy of the winner", claimed.energy_per_iteration_j, again.energy_per_iteration_j
            )
            yield same_figure("memory of the winner", claimed.memory_bytes, again.memory_bytes)

    def _frontier(self) -> Iterator[Check]:
        """Every point of the frontier in the design table, in the space, and evaluated anew."""
        points, rows = self.document.frontier, self.designs
        alike = len(points) == len(rows) and all(
            point.id == row["id"] and bool(np.isclose(own, told, rtol=SAME, atol=0.0).all())
            for point, row, own, told in zip(
                points, rows, self._claimed, claimed_values(self.request, list(rows)), strict=True
            )
        )
        yield Check(
            name="the design table holds the frontier",
            passed=alike,
            note=f"{len(points)} points, {len(rows)} rows",
        )
        block = self._block_of([point.architecture for point in points])
        inside = block is not None
        yield Check(
            name="the frontier is in the space and within budget", passed=inside, note=f"{len(points)} points"
        )
        if block is not None and alike:
            yield self._reached(block)

    def _block_of(self, designs: Sequence[dict[str, Any]]) -> Block | None:
        """Some architectures as candidates, in their order; None where one is not."""
        try:
            numbers = np.array([self._candidates.number(fields) for fields in designs], dtype=np.int64)
        except InputError:
            return None
        block = self._candidates.within(numbers)
        return block if len(block) == len(numbers) else None

    def _reached(self, block: Block) -> Check:
        """The points of the frontier, on their axes."""
        points, chosen = AxesPoints(self.request, block), [config_of_row(row) for row in self.designs]
        batch = self.request.task.cluster.global_batch
        known_s = np.array([batch / row["throughput_samples_per_s"] for row in self.designs])
        found = np.empty_like(self._claimed)
        for count, (config, at) in enumerate(by_config(chosen)):
            self.progress.update("checking the frontier", count, len(set(chosen)), f"{len(chosen)} points")
            found[at] = points.reached(config, at, known_s[at])
        wrong = ~np.isclose(found, self._claimed, rtol=SAME, atol=0.0)
        if not self.document.certificate.frontier_complete:  # faster plans may exist, with other needs
            alike = [axis.needs is not Needs.PLAN for axis in axes_of(self.request)]
            wrong &= (found > self._claimed) & alike
        count = int(wrong.any(axis=1).sum())
        return Check(
            name="every point of the frontier is reached",
            passed=not count,
            note=f"{count} of {len(found)} not",
        )

    def sampled(self) -> Sampled:
        """Architectures that were picked, in several configs each."""
        population = Population(self._candidates, self.request.tasks)
        frontier = [point.architecture for point in self.document.frontier]
        strata = population.strata(self.document.best.architecture, frontier, self.seed)
        chosen = pick_sample(strata, self.samples, set())
        block = self._candidates.within(np.array(list(chosen), dtype=np.int64))
        values, row = self._evaluated(block) if len(block) else (np.zeros((0, self._claimed.shape[1])), [])
        worth, found = objective(self.request, values), []
        for i, number in enumerate(block.numbers.tolist()):
            most = float(worth[np.array(row) == i].max(initial=0.0))
            name = self._candidates.architecture(number).name
            found.append(Sample(id=name, stratum=chosen[number], value=most, tdp_w=float(block.tdp_w[i])))
        return Sampled(found, [self._below_the_bound(worth), self._none_missing(values)])

    def _evaluated(self, block: Block) -> tuple[Floats, list[int]]:
        """Values of all points of the sample that fit and are settled, and the architecture of each."""
        points, random = AxesPoints(self.request, block), np.random.default_rng(self.seed)
        configs = points.evaluator.configs
        often = [config for config, _ in Counter(map(config_of_row, self.designs)).most_common(FREQUENT)]
        drawn = drawn_configs(len(configs), random)
        wanted = {(i, config) for i in range(len(block)) for config in often}
        wanted |= {(i, configs[int(k)]) for i in range(len(block)) for k in random.choice(drawn, size=BLIND)}
        wanted |= set(_hopeful(points.evaluator))
        ordered = sorted(wanted, key=lambda one: (one[0], one[1].order))
        values = np.empty((len(ordered), self._claimed.shape[1]))
        kinds = len({config for _, config in ordered})
        for count, (config, at) in enumerate(by_config([config for _, config in ordered])):
            self.progress.update("checking samples", count, kinds, f"{len(ordered)} points")
            values[at] = points.settled(config, np.array([ordered[int(k)][0] for k in at], dtype=np.intp))
        kept = np.flatnonzero(np.isfinite(values).all(axis=1))
        return values[kept], [ordered[int(k)][0] for k in kept]

    def _below_the_bound(self, worth: Floats) -> Check:
        limit, best = self.document.certificate.upper_bound, float(worth.max(initial=0.0))
        return Check(
            name="no sampled point beats the bound",
            passed=best <= limit * (1 + SAME),
            note=f"best of {len(worth)}: {best:.9g}, at most {limit:.9g}",
        )

    def _none_missing(self, values: Floats) -> Check:
        name = "no sampled point is missing from the frontier"
        if not self.document.certificate.frontier_complete:
            return Check(name=name, passed=True, note="the frontier is not said to be complete")
        missing = int((~beaten(values, self._claimed)).sum())
        return Check(name=name, passed=not missing, note=f"{missing} of {len(values)}")


def _hopeful(evaluator: Evaluator) -> Iterator[tuple[int, TrainingConfig]]:
    """Architectures with the configs whose work alone takes the least time: there a missed point would be best."""
    least = np.stack([evaluator.roofline_s(config) for config in evaluator.configs])
    first = np.argsort(least, axis=0, kind="stable")[:HOPEFUL]
    for k, i in np.ndindex(first.shape):
        if np.isfinite(least[first[k, i], i]):
            yield i, evaluator.configs[int(first[k, i])]
