"""Values of points on the axes of a search: bounds from a bound on the iteration time, and those of the best plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from phaze.arrays import Flags, Floats, Rows
from phaze.explore.evaluation.design_candidates import Block
from phaze.explore.evaluation.drawn_power import DrawnPower
from phaze.explore.evaluation.energy_and_memory import Measures
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.flops_utilisation import flops_utilisation
from phaze.explore.evaluation.sample_costs import SampleCosts
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.explore.frontier.search_axes import SearchAxes, maximised
from phaze.explore.request.design_metrics import PRICED, Needs
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.economics.package_price import price_usd
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import BOUND_ROUNDING


def known_columns(block: Block, economics: Economics) -> dict[str, Floats]:
    """Columns of every architecture that are known without evaluating it, (A,) each."""
    price = price_usd(block.table, block.area_mm2, economics)
    return {"tdp_w": block.tdp_w, "area_mm2": block.area_mm2, "price_usd": price}


@dataclass(frozen=True)
class PointValues:
    """Axes over the points of one evaluator. `known`: columns that need no evaluation, (A,) each.

    `longest_s`: iterations that take longer do not count, nor do plans under which devices draw more than
    `drawn_limit_w`: what leads is negative for them, and 0 where nothing fits.
    """

    evaluator: Evaluator
    known: Mapping[str, Floats]
    axes: SearchAxes
    longest_s: float = np.inf
    drawn_limit_w: float | None = None

    @property
    def asks_plans(self) -> bool:
        """Whether only its plan tells what a point comes to."""
        return self.axes.needs_plan or self.drawn_limit_w is not None

    @cached_property
    def drawn(self) -> DrawnPower | None:
        """What is drawn while plans run, where that is limited."""
        return None if self.drawn_limit_w is None else DrawnPower(self.measures, self.drawn_limit_w)

    @cached_property
    def measures(self) -> Measures:
        """Energy and memory of the points."""
        return Measures(self.evaluator)

    @cached_property
    def fixed(self) -> Floats:
        """The other axes where they are known, (A, k)."""
        return self.axes.values({**self.known, self.axes.leader.column: 1.0}, len(self.evaluator.table))[0]

    def optimistic(
        self, config: TrainingConfig, rows: Rows, least_s: Floats, *, work: bool = True
    ) -> tuple[Floats, Floats]:
        """What no plan is better than: the other axes, (A, k), and what leads, (A,).

        `least_s` (A,): bounds on iteration times. Without `work`, nothing is known of energy and memory.
        """
        fits = np.isfinite(least_s)
        seconds = np.where(fits, least_s, 1.0) * (1 - BOUND_ROUNDING)
        if self.drawn is not None:
            seconds = np.maximum(seconds, self.drawn.least_s(config, rows, work=work))
        if self.axes.fixed:
            others, lead = self.fixed[rows], self._batch / seconds
        else:
            energy = memory = np.zeros(len(rows))
            if work and self._asks_energy:
                energy = self.measures.least_energy_j(config, rows, seconds)
            if work and self._asks_memory:
                memory = np.full(len(rows), self.evaluator.least_bytes(config) * (1 - BOUND_ROUNDING))
            others, lead = self.axes.values(self.columns(config, rows, seconds, energy, memory), len(rows))
        return others, self._counted(lead, fits, seconds)

    def measured(
        self, config: TrainingConfig, rows: Rows, seconds: Floats, effort: SolveLimits | None = None
    ) -> tuple[Floats, Floats]:
        """The values of points that take these iteration times, (A,), under their best plans.

        Plans are looked for with some `effort` where axes depend on them; without one nothing leads there, as where
        nothing fits.
        """
        fits = np.isfinite(seconds)
        energy = memory = np.full(len(rows), np.nan)
        if self.asks_plans and effort is None:
            return np.zeros((len(rows), len(self.axes.others))), np.zeros(len(rows))
        if self.asks_plans and effort is not None:
            found = self.measures.exact(config, rows, effort, seconds)
            seconds, energy, memory = found.iteration_s, found.energy_per_sample_j, found.memory_bytes
        seconds = np.where(fits, seconds, 1.0)
        if self.axes.fixed:
            others, lead = self.fixed[rows], self._batch / seconds
        else:
            others, lead = self.axes.values(self.columns(config, rows, seconds, energy, memory), len(rows))
        return others, np.where(self.keeps(seconds, energy), self._counted(lead, fits, seconds), -1.0 * fits)

    def keeps(self, seconds: Floats, energy_per_sample_j: Floats) -> Flags:
        """Whether plans of such times and joules draw no more than the limit, (A,)."""
        if self.drawn is None:
            return np.ones(len(seconds), dtype=np.bool_)
        return self.drawn.kept(seconds, energy_per_sample_j)

    def give_up_s(self, config: TrainingConfig, rows: Rows, lead: Floats) -> Floats:
        """Iteration times above which what leads is less than this, or the point does not count, (A,)."""
        limit = np.full(len(rows), self.longest_s)
        wanted = np.flatnonzero(lead > 0)
        if len(wanted) and self.axes.leader.needs is not Needs.ARCHITECTURE:
            limit[wanted] = np.minimum(limit[wanted], self._longest_s(config, rows[wanted], lead[wanted]))
        return limit * (1 + BOUND_ROUNDING)

    def columns(
        self, config: TrainingConfig, rows: Rows, seconds: Floats, energy: Floats, memory: Floats
    ) -> dict[str, Any]:
        """Design columns of points of a config from iteration times, joules per sample and peak bytes, (A,) each."""
        evaluator = self.evaluator
        peak = evaluator.peak_flops_per_s(config)[rows]
        return {
            **{name: column[rows] for name, column in self.known.items()},
            "throughput_samples_per_s": self._batch / seconds,
            "mfu": flops_utilisation(evaluator.model_flops, seconds, evaluator.task.devices, peak),
            "energy_per_sample_j": energy,
            "memory_bytes": memory,
            **self._costs(rows, seconds, energy),
        }

    @property
    def _batch(self) -> int:
        return self.evaluator.task.cluster.global_batch

    @cached_property
    def _asks_energy(self) -> bool:
        return any(axis.linear for axis in self.axes.metrics)

    @cached_property
    def _asks_memory(self) -> bool:
        return any(axis.name == "memory" for axis in self.axes.metrics)

    def _costs(self, rows: Rows, seconds: Floats, energy: Floats) -> dict[str, Any]:
        """Columns of money and carbon from iteration times in s and joules per sample, where an axis asks for them."""
        asked = {axis.column for axis in self.axes.metrics if axis.name in PRICED}
        return self._sample_costs.columns(rows, seconds / self._batch, energy, asked) if asked else {}

    @cached_property
    def _sample_costs(self) -> SampleCosts:
        task, table = self.evaluator.task, self.evaluator.table
        return SampleCosts.of(task, table, self.known["area_mm2"], self.known["tdp_w"])

    def _counted(self, lead: Floats, fits: Flags, seconds: Floats) -> Floats:
        late = (seconds > self.longest_s) | np.isinf(seconds)
        return np.where(fits, np.where(late, -1.0, lead), 0.0)

    def _longest_s(self, config: TrainingConfig, rows: Rows, lead: Floats) -> Floats:
        """Iteration times at which what leads is no better than this, (A,); infinite where it follows from none.

        What is linear in time is what work takes and what goes on for all of it, as energy is; throughput, and what
        follows from it alone, falls as time grows.
        """
        if self.axes.leader.linear:
            wanted = maximised(self.axes.leader, lead)
            starts, more = (self._branches(config, rows, seconds) for seconds in (0.0, 1.0))
            each = [(wanted - start) / (end - start) for start, end in zip(starts, more, strict=True)]
            return np.asarray(np.maximum.reduce([*each, np.zeros(len(rows))]))
        if self.axes.leader.needs is Needs.PLAN:
            return np.full(len(rows), np.inf)
        return self._at(config, rows, 1.0, np.zeros(len(rows))) / lead

    def _branches(self, config: TrainingConfig, rows: Rows, seconds: float) -> tuple[Floats, ...]:
        """The leading metric where an iteration takes some seconds and least energy, by each law of that, (A,) each."""
        energies = self.measures.energy_branches_j(config, rows, np.full(len(rows), seconds))
        return tuple(self._at(config, rows, seconds, energy) for energy in energies)

    def _at(self, config: TrainingConfig, rows: Rows, seconds: float, energy: Floats) -> Floats:
        """The leading metric where an iteration takes some seconds and joules per sample, (A,)."""
        with np.errstate(divide="ignore"):
            columns = self.columns(config, rows, np.full(len(rows), seconds), energy, np.zeros(len(rows)))
        return np.asarray(self.axes.leader.of(columns))


def best_leads(values: PointValues, effort: SolveLimits) -> tuple[Floats, Floats]:
    """Throughput in samples/s and what leads, (A,) each, of the best point of every architecture; 0 without one.

    There are no other axes. Configs are evaluated in the order of what they promise.
    """
    evaluator, rows = values.evaluator, np.arange(len(values.evaluator.table))
    hoped = np.stack(
        [values.optimistic(s, rows, evaluator.iteration_bound(s, rows))[1] for s in evaluator.configs]
    )
    speed, best = np.zeros(len(rows)), np.zeros(len(rows))
    while (open_ := hoped > best).any():
        waiting, first = open_.any(axis=0), np.where(open_, hoped, 0.0).argmax(axis=0)
        k = int(np.bincount(first[waiting]).argmax())
        at, config = np.flatnonzero(waiting & (first == k)), evaluator.configs[k]
        seconds = evaluator.exact(config, at, values.give_up_s(config, at, best[at]), effort).upper_s
        _, lead = values.measured(config, at, seconds, effort)
        better = lead > best[at]
        best[at[better]] = lead[better]
        speed[at[better]] = evaluator.task.cluster.global_batch / seconds[better]
        hoped[k, at] = 0.0
    return speed, best
