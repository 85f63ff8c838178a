"""Evaluated candidates of a search, as they are reported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.explore.certified.search_state import Outcome
from phaze.explore.documents.result_document import Design, FrontierPoint
from phaze.explore.evaluation.design_builder import DesignBuilder
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluator import Evaluator, FoundPlan
from phaze.explore.evaluation.flops_utilisation import flops_utilisation
from phaze.explore.evaluation.planned_iteration import PlannedIteration, estimators
from phaze.explore.evaluation.sample_costs import SampleCosts
from phaze.explore.evaluation.training_config import TrainingConfig, config_columns
from phaze.hardware.architecture import Architecture, from_rows, from_table
from phaze.hardware.architecture_naming import architecture_id, architecture_ids, decoded
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.scheduling.passes import SolveLimits


class EvaluatedCandidates:
    """The evaluated candidates, by rows in the order of their numbers, each in its best config.

    `block`: their hardware; `throughput`: samples per second.
    """

    def __init__(
        self, candidates: Candidates, evaluator: Evaluator, outcome: Outcome, effort: SolveLimits
    ) -> None:
        """`evaluator` shares what it knows; `effort` limits the schedules that are not known yet."""
        best = outcome.best_per_candidate()
        self.block = candidates.within(np.array(sorted(best), dtype=np.int64))
        self.throughput = [best[number][0] for number in self.block.numbers.tolist()]
        self._configs = [best[number][1] for number in self.block.numbers.tolist()]
        self._candidates = candidates
        self._outcome = outcome
        self._evaluator = evaluator.on(self.block.table)
        self._task = evaluator.task
        self._effort = effort
        self._plans: dict[int, FoundPlan] = {}
        self._costs: dict[int, Estimator] = {}
        self._told: dict[int, PlannedIteration] = {}
        self._builder = DesignBuilder(self._task, candidates.budgets.tdp_margin)

    def place(self, rows: Sequence[int]) -> None:
        """Find the plans of some candidates and of the frontier, all of one config together."""
        for config, members in self._by_config([*dict.fromkeys([*self._frontier, *rows])]).items():
            known_s = self._task.cluster.global_batch / np.array([self.throughput[row] for row in members])
            plans = self._evaluator.plans(config, np.array(members), known_s, self._effort)
            found = {row: plan for row, plan in zip(members, plans, strict=True) if plan is not None}
            self._plans.update(found)
            self._costs.update(zip(found, estimators(self._evaluator, config, list(found)), strict=True))

    def design(self, row: int) -> Design:
        """The full report of one candidate. Raises InfeasibleError where no plan of it was found."""
        told = self._planned(row) if row in self._plans else None
        return self._builder.told(self._architecture(row), self._evaluator, row, self._configs[row], told)

    def frontier(self) -> list[FrontierPoint]:
        """The frontier in the order in which the archive keeps it, its plans being found."""
        varied, margin = self._candidates.varied, self._candidates.budgets.tdp_margin
        points: dict[int, FrontierPoint] = {}
        for config, members in self._by_config(self._frontier).items():
            plans = {row: self._planned(row) for row in members if row in self._plans}
            told = frontier_points(self._evaluator, config, plans, varied, margin)
            points.update(zip(plans, told, strict=True))
        return [points[row] for row in self._frontier]

    def _planned(self, row: int) -> PlannedIteration:
        """The plan of one candidate, worked out once."""
        if row not in self._told:
            self._told[row] = PlannedIteration.found(self._costs[row], self._plans[row])
        return self._told[row]

    @cached_property
    def _frontier(self) -> list[int]:
        """Its rows."""
        numbers = [number for _, number in self._outcome.frontier.keys]
        rows: list[int] = np.searchsorted(self.block.numbers, numbers).tolist()
        return rows

    def _by_config(self, rows: Sequence[int]) -> dict[TrainingConfig, list[int]]:
        found: dict[TrainingConfig, list[int]] = {}
        for row in rows:
            found.setdefault(self._configs[row], []).append(row)
        return found

    def columns(self) -> dict[str, NDArray[Any]]:
        """The design table: every candidate as columns of equal length."""
        table, throughput, task = self.block.table, np.array(self.throughput), self._task
        per_sample = self._evaluator.model_flops / task.cluster.global_batch
        columns: dict[str, NDArray[Any]] = {
            "id": np.array(architecture_ids(table, self._candidates.varied)),
            "number": self.block.numbers,
            "throughput_samples_per_s": throughput,
            "mfu": throughput * per_sample / (task.devices * self._peaks),
            "tdp_w": self.block.tdp_w,
            "area_mm2": self.block.area_mm2,
            **config_columns(task, self._configs),
        }
        for name in self._candidates.differing:
            columns[name] = np.array(decoded(table, name))
        return columns

    @property
    def _peaks(self) -> NDArray[np.float64]:
        """Peaks that the MFU of every candidate counts against, (A,) FLOP/s."""
        peaks = {s: self._evaluator.peak_flops_per_s(s) for s in dict.fromkeys(self._configs)}
        return np.array([peaks[config][row] for row, config in enumerate(self._configs)])

    def _architecture(self, row: int) -> Architecture:
        table = self.block.table
        return from_table(table, row, architecture_id(table, row, self._candidates.varied))


def frontier_points(
    evaluator: Evaluator,
    config: TrainingConfig,
    plans: Mapping[int, PlannedIteration],
    varied: Iterable[str],
    margin: float,
) -> list[FrontierPoint]:
    """Frontier points of architectures at some rows of the evaluator's table, each under a plan in one config.

    `varied`: the fields that their names show. TDP is that at full load times `margin`. Plans pass the checker.
    """
    for planned in plans.values():
        planned.check(kinds=False)
    task, rows = evaluator.task, np.array(list(plans), dtype=np.intp)
    batch = task.cluster.global_batch
    table = evaluator.table.take(rows)
    power, area = tdp_w(table, margin), area_mm2(table)
    costs = SampleCosts.of(task, table, area, power)
    figures = zip(
        plans.values(),
        from_rows(table, architecture_ids(table, varied)),
        power.tolist(),
        area.tolist(),
        evaluator.peak_flops_per_s(config)[rows].tolist(),
        strict=True,
    )
    return [
        FrontierPoint(
            id=architecture.name,
            throughput_samples_per_s=batch / planned.iteration.iteration_s,
            tdp_w=tdp,
            area_mm2=mm2,
            energy_per_sample_j=planned.energy_j / batch,
            memory_bytes=planned.iteration.memory_bytes,
            mfu=flops_utilisation(evaluator.model_flops, planned.iteration.iteration_s, task.devices, peak),
            **costs.of_plan(row, planned.iteration.iteration_s / batch, planned.energy_j / batch),
            architecture=dict(architecture.fields),
        )
        for row, (planned, architecture, tdp, mm2, peak) in enumerate(figures)
    ]
