"""Figures of one architecture under its best placement, without the report of a whole design; worked out, or remembered
from another sweep."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np

from phaze.digest import digest
from phaze.explore.documents.result_document import Design
from phaze.explore.evaluation.best_points import best_points
from phaze.explore.evaluation.design_builder import DesignBuilder
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.energy_and_memory import time_energy_memory
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.flops_utilisation import flops_utilisation
from phaze.explore.evaluation.sample_costs import SampleCosts
from phaze.explore.evaluation.training_config import TrainingConfig, config_of_row, config_row
from phaze.explore.request.explore_request import Task
from phaze.explore.request.search_resources import NoStore, Store, never
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.budgets import Limit
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.scheduling.effort import LimitsOver, SolveLimits
from phaze.tolerances import SETTLED_STATES

Row = dict[str, Any]
_MOST = 16  # doublings of memory that are tried
_ONE = np.array([0])


@dataclass
class Assessor:
    """Evaluates candidates, each by itself: an answer does not depend on what else is asked, or by whom.

    `candidates`: those of the whole grid, whose numbers are asked for. `stop`: whether nothing is wanted any more,
    looked at while a candidate is evaluated. It is work that other processes can do, whose copies know no end.
    """

    task: Task
    candidates: Candidates
    stop: Callable[[], bool] = field(default=never, compare=False)
    _shared: list[Evaluator] = field(default_factory=list)
    _misfits: dict[float, float] = field(default_factory=dict)

    def do(self, piece: int) -> Row:
        """Figures of one candidate, by its number.

        The columns of a design table that the best placement decides, its config, and `memory_missed`: by what
        share the memory is too small (at most 0 where the workload fits). Where it does not fit, that alone.
        Raises LimitsOver where it is stopped before.
        """
        table = self.candidates.table(np.array([piece], dtype=np.int64))
        evaluator = self._on(table)
        found = best_points(evaluator, _ONE, _effort(self.stop), told=lambda _: self._look())
        self._look()
        if (config := found.configs[0]) is None:
            return {"memory_missed": self._misfit(table)}
        row = self._row(evaluator, config, float(found.upper_s[0]))
        self._look()
        return row

    def __getstate__(self) -> dict[str, Any]:
        """What another process gets: all but the end, which this one alone hears of."""
        return {**vars(self), "stop": never}

    def _look(self) -> None:
        if self.stop():
            raise LimitsOver

    @property
    def content(self) -> str:
        """Digest of everything but the hardware that figures depend on."""
        return self._on(self.candidates.table(range(1))).content

    def size(self, number: int) -> Row:
        """TDP in W and area in mm2 of a candidate, known without evaluating it."""
        table = self.candidates.table(np.array([number], dtype=np.int64))
        tdp = tdp_w(table, self.candidates.budgets.tdp_margin)
        return {"tdp_w": float(tdp[0]), "area_mm2": float(area_mm2(table)[0])}

    def costs(self, number: int, figures: Row) -> Row:
        """Price, and money and carbon of a sample, of a candidate from its figures; nothing where it does not fit."""
        if "throughput_samples_per_s" not in figures:
            return {}
        table = self.candidates.table(np.array([number], dtype=np.int64))
        power = tdp_w(table, self.candidates.budgets.tdp_margin)
        costs = SampleCosts.of(self.task, table, area_mm2(table), power)
        seconds, joules = 1.0 / figures["throughput_samples_per_s"], figures["energy_per_sample_j"]
        return {"price_usd": float(costs.rates.price_usd[0])} | costs.of_plan(0, seconds, joules)

    def design(self, number: int, figures: Row) -> Design:
        """Everything that is reported of a candidate, from its figures."""
        evaluator = self._on(self.candidates.table(np.array([number], dtype=np.int64)))
        config = config_of_row(figures)
        seconds = self.task.cluster.global_batch / figures["throughput_samples_per_s"]
        builder = DesignBuilder(self.task, self.candidates.budgets.tdp_margin)
        architecture = self.candidates.architecture(number)
        return builder.placed(architecture, evaluator, 0, config, seconds, _effort())

    def _on(self, table: ArchitectureTable) -> Evaluator:
        if not self._shared:
            self._shared.append(Evaluator(self.task, self.candidates.survey()))
        return self._shared[0].on(table)

    def _row(self, evaluator: Evaluator, config: TrainingConfig, seconds: float) -> Row:
        """The columns of a design table that its placement decides, and the config."""
        task = self.task
        plan = evaluator.plans(config, _ONE, np.array([seconds]), _effort(self.stop))[0]
        if plan is None:
            self._look()
            msg = f"no plan in the setting {config} that an iteration time was found for"
            raise AssertionError(msg)
        ((seconds, joules, memory_bytes),) = time_energy_memory(evaluator, config, {0: plan})
        peak = float(evaluator.peak_flops_per_s(config)[0])
        return {
            "throughput_samples_per_s": task.cluster.global_batch / seconds,
            "energy_per_sample_j": joules / task.cluster.global_batch,
            "memory_bytes": float(memory_bytes),
            "mfu": flops_utilisation(evaluator.model_flops, seconds, task.cluster.devices, peak),
            **config_row(task, config),
            "memory_missed": float(memory_bytes / evaluator.capacity_bytes[0]) - 1.0,
        }

    def drawn_missed(self, figures: Row) -> dict[str, float]:
        """By what share a candidate draws more than it may under its plan, at most 0 where it keeps that.

        Nothing where that is not limited; a candidate without a plan draws nothing.
        """
        limit_w = self.candidates.budgets.drawn_limit_w
        if limit_w is None:
            return {}
        watts = figures.get("throughput_samples_per_s", 0.0) * figures.get("energy_per_sample_j", 0.0)
        return {str(Limit.POWER): watts / self.task.devices / limit_w - 1.0}

    def _misfit(self, one: ArchitectureTable) -> float:
        """By what share a memory is too small: something may fit in its least doubling that is not ruled out."""
        capacity = float(self._on(one).capacity_bytes[0])
        if capacity not in self._misfits:
            sizes = [capacity * 2.0**k for k in range(1, _MOST)]
            fitting = (size for size in sizes if self._may_fit(one, size))
            self._misfits[capacity] = next(fitting, sizes[-1]) / capacity - 1.0
        return self._misfits[capacity]

    def _may_fit(self, one: ArchitectureTable, capacity_bytes: float) -> bool:
        evaluator = self._on(one.replace(hbm_capacity_bytes=np.array([capacity_bytes])))
        return any(np.isfinite(evaluator.iteration_bound(config, _ONE)[0]) for config in evaluator.configs)


def _effort(stop: Callable[[], bool] = never) -> SolveLimits:
    return SolveLimits(lambda: 0.0 if stop() else np.inf, SETTLED_STATES)


Assess = Callable[[Sequence[int]], Iterable[Row]]


@dataclass
class RememberedFigures:
    """Known figures of an assessor's candidates, under the digest of their hardware and of the task.

    Those in which a workload does not fit are not kept: they cost nothing.
    """

    assessor: Assessor
    store: Store

    def rows(self, numbers: Sequence[int], assess: Assess) -> Iterator[Row]:
        """Figures of some candidates, in the order asked for; `assess` tells those that are not known."""
        if not numbers or isinstance(self.store, NoStore):
            yield from assess(numbers)
            return
        keys = self._keys(numbers)
        known = {key: row for key, data in self.store.get(keys).items() if (row := _read(data))}
        left = [number for number, key in zip(numbers, keys, strict=True) if key not in known]
        found = iter(assess(left)) if left else iter(())
        for key in keys:
            if key in known:
                yield known[key]
                continue
            row = next(found)
            if "throughput_samples_per_s" in row:
                self.store.put({key: json.dumps(row).encode()})
            yield row

    def _keys(self, numbers: Sequence[int]) -> list[str]:
        columns = self.assessor.candidates.table(np.array(numbers, dtype=np.int64)).columns
        hardware = [{name: column[i] for name, column in columns.items()} for i in range(len(numbers))]
        return [digest("assess", self._task, float(SETTLED_STATES), fields) for fields in hardware]

    @cached_property
    def _task(self) -> str:
        return self.assessor.content


def _read(data: bytes) -> Row | None:
    """A row that was kept; None where it is none."""
    try:
        return cast("Row", json.loads(data))
    except ValueError:
        return None
