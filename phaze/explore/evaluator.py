"""One evaluator for every strategy: bounds and exact values of points, for a table of architectures.

A point is an architecture with a microbatch size, a tensor-parallel width, a recompute choice and a recipe of linear
layers; data and pipeline degrees, stage cuts and operator schedules are optimised inside it (definitions: search).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.cost.model import CostModel
from phaze.cost.optimizer import optimizer_s_per_parameter
from phaze.digest import digest
from phaze.explore.formats import counted_flops_per_s, takes
from phaze.explore.request import Task
from phaze.explore.setting import Chain, Setting
from phaze.hardware.derived import hbm_capacity_bytes
from phaze.hardware.table import ArchitectureTable
from phaze.placement.plan import Plan
from phaze.placement.planner import Planner, Rates
from phaze.recall import Recall
from phaze.scheduling.layers import LayerTimes, TimedChain
from phaze.scheduling.passes import Effort

FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]
RECHECK = 64


@dataclass(frozen=True, slots=True)
class PointBounds:
    """Proven bounds on the iteration time of one point per architecture, (A,) seconds; inf: does not fit."""

    lower_s: FloatArray
    upper_s: FloatArray


@dataclass
class Evaluator:
    """Evaluates points of one task on one table of architectures; caches what they share.

    `planners` does not depend on the architectures: evaluators of one task may share it. `base`: an evaluator
    whose costs this one shares, at the positions of its own architectures, with the `model` derived from it.
    `recall`: what earlier searches have found out.
    """

    task: Task
    table: ArchitectureTable
    _chains: dict[Chain, TimedChain] = field(default_factory=dict)
    planners: dict[tuple[Setting, float], Planner] = field(default_factory=dict)
    base: Evaluator | None = None
    recall: Recall | None = None

    def on(self, table: ArchitectureTable) -> Evaluator:
        """The same task on other architectures; what does not depend on them is shared.

        Costs are shared where every architecture combines tensor cores, vector cores and memories in a way that
        this evaluator knows; otherwise they are worked out anew.
        """
        base = self.base or self
        other = Evaluator(self.task, table, planners=self.planners, recall=self.recall)
        if (model := base.model.on(table)) is not None:
            other.base, other.model = base, model
        return other

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """The points of every architecture, in a fixed order."""
        return tuple(
            Setting(b, t, r, recipe)
            for recipe in self.task.recipes
            for b in self.task.microbatches
            for t in self.task.widths
            for r in self.task.recomputes
        )

    @cached_property
    def model(self) -> CostModel:
        """Operator costs over the table."""
        return CostModel(self.table, self.task.network, self.task.rung, self.task.own)

    @cached_property
    def capacity_bytes(self) -> FloatArray:
        """HBM capacity of every architecture, (A,)."""
        return hbm_capacity_bytes(self.table)

    @cached_property
    def rates(self) -> Rates:
        """Link bandwidth and optimizer speed of every architecture, (A,) each."""
        return Rates(
            np.asarray(self.table["link_bandwidth_bytes_per_s"], dtype=np.float64),
            optimizer_s_per_parameter(self.table, self.task.workload.numerics),
        )

    def peak_flops_per_s(self, setting: Setting) -> FloatArray:
        """What MFU counts against, (A,)."""
        return counted_flops_per_s(self.table, setting.recipe)

    def takes(self, setting: Setting) -> NDArray[np.bool_]:
        """Which architectures have the formats of a setting, (A,)."""
        return takes(self.table, setting.recipe)

    @cached_property
    def model_flops(self) -> float:
        """Model FLOPs of one iteration, all devices together."""
        b = self.task.microbatches[0]
        return self.task.workload.chain(b, 1).model_flops * (self.task.cluster.global_batch // b)

    def timed(self, setting: Setting) -> TimedChain:
        """The costed chain of layers behind a setting."""
        key = setting.chain
        if key not in self._chains:
            if self.base is not None:
                self._chains[key] = self.base.timed(setting).on(self.model, self.table)
            else:
                microbatch, width, selective, recipe = key
                chain = self.task.workload_in(recipe).chain(microbatch, width, selective=selective)
                self._chains[key] = TimedChain(chain, self.model, self.table, recall=self.recall)
        return self._chains[key]

    def planner(self, setting: Setting, capacity_bytes: float) -> Planner:
        """The placement of a setting within one memory capacity."""
        key = (setting, capacity_bytes)
        if key not in self.planners:
            self.planners[key] = Planner(
                chain=self.timed(setting).chain,
                numerics=self.task.workload.numerics,
                cluster=self.task.cluster,
                recompute=setting.recompute,
                memory_bytes=capacity_bytes,
                fixed=self.task.fixed,
            )
        return self.planners[key]

    def capacities(self, rows: Rows) -> list[tuple[float, Rows]]:
        """Positions within `rows` grouped by memory capacity."""
        values, group = self._capacity_groups
        if len(values) == 1:
            return [(float(values[0]), np.arange(len(rows)))] if len(rows) else []
        of = group[rows]
        found = ((float(v), np.flatnonzero(of == g)) for g, v in enumerate(values))
        return [(value, at) for value, at in found if len(at)]

    @cached_property
    def _capacity_groups(self) -> tuple[FloatArray, Rows]:
        return np.unique(self.capacity_bytes, return_inverse=True)

    def work_s(self, setting: Setting) -> tuple[FloatArray, FloatArray]:
        """Cheap lower bounds on the forward and backward time of all layers together, (A,) each."""
        return self.timed(setting).work(np.arange(len(self.table)))

    def work_bound(self, setting: Setting, work_s: tuple[FloatArray, FloatArray]) -> FloatArray:
        """The cheapest lower bound on the iteration time, (A,) seconds, from `work_s` of the setting's chain.

        It is at most `quick_bound` (rounding aside), and infinite in the same places.
        """
        seconds = np.empty(len(self.table))
        for capacity, at in self.capacities(np.arange(len(self.table))):
            seconds[at] = self.planner(setting, capacity).work_bound(work_s[0][at], work_s[1][at])
        return np.where(self.takes(setting), seconds, np.inf)

    def quick_bound(self, setting: Setting, rows: Rows) -> FloatArray:
        """A cheap lower bound on the iteration time, (A,) seconds; infinite where memory or formats do not fit."""
        times, seconds = self.timed(setting).least(rows), np.empty(len(rows))
        for capacity, at in self.capacities(rows):
            planner = self.planner(setting, capacity)
            seconds[at] = planner.quick_bound(times.take(at), self.rates.take(rows[at]))
        return np.where(self.takes(setting)[rows], seconds, np.inf)

    def bounds(self, setting: Setting, rows: Rows, give_up_s: FloatArray) -> PointBounds:
        """Bounds on the iteration time from schedule bounds per layer and the exact partition of each.

        Infinite where the point cannot get below `give_up_s` (A,).
        """
        bounds = PointBounds(np.full(len(rows), np.inf), np.full(len(rows), np.inf))
        at = np.flatnonzero(self._hopeful(setting, rows, give_up_s))
        if len(at):
            times = self.timed(setting).bands(rows[at])
            found = self._place(setting, rows[at], times, give_up_s[at])
            bounds.lower_s[at], bounds.upper_s[at] = found.lower_s, found.upper_s
        return bounds

    def _hopeful(self, setting: Setting, rows: Rows, give_up_s: FloatArray) -> NDArray[np.bool_]:
        """Whether the least times of the layers, and bounds on their placement, leave it open to beat `give_up_s`."""
        times, open_ = self.timed(setting).least(rows), np.zeros(len(rows), dtype=np.bool_)
        for capacity, at in self.capacities(rows):
            planner, rates = self.planner(setting, capacity), self.rates.take(rows[at])
            open_[at] = planner.hopeful(times.take(at), rates, give_up_s[at])
        return open_

    def exact(self, setting: Setting, rows: Rows, give_up_s: FloatArray, effort: Effort) -> PointBounds:
        """The same from exact schedules; the bounds are equal unless the effort ran out.

        The most uncertain passes are scheduled first; architectures that then cannot get below their
        `give_up_s` any more are let go without scheduling the rest.
        """
        timed = self.timed(setting)
        times = timed.bands(rows)
        alive, solved = np.arange(len(rows)), 0
        for which in timed.open_passes(*times):
            solved += timed.narrow(which, rows, times, alive, effort)
            if solved >= RECHECK:
                hopeful = self._iteration_s(setting, rows[alive], times[0].take(alive), give_up_s[alive])
                alive, solved = alive[np.isfinite(hopeful)], 0
        found = self._place(
            setting, rows[alive], (times[0].take(alive), times[1].take(alive)), give_up_s[alive]
        )
        bounds = PointBounds(np.full(len(rows), np.inf), np.full(len(rows), np.inf))
        bounds.lower_s[alive], bounds.upper_s[alive] = found.lower_s, found.upper_s
        return bounds

    def _iteration_s(
        self, setting: Setting, rows: Rows, times: LayerTimes, give_up_s: FloatArray
    ) -> FloatArray:
        """The least iteration time for these layer times, (A,)."""
        given, shape = (times, give_up_s), (len(rows),)
        return self._recalled(
            "iteration", setting, rows, given, shape, lambda: self._least_s(setting, rows, *given)
        )

    def _least_s(self, setting: Setting, rows: Rows, times: LayerTimes, give_up_s: FloatArray) -> FloatArray:
        seconds = np.empty(len(rows))
        for capacity, at in self.capacities(rows):
            planner, rates = self.planner(setting, capacity), self.rates.take(rows[at])
            seconds[at], _ = planner.iteration_s(times.take(at), rates, give_up_s[at])
        return seconds

    def _place(
        self, setting: Setting, rows: Rows, times: tuple[LayerTimes, LayerTimes], give_up_s: FloatArray
    ) -> PointBounds:
        """Bounds on the iteration time from (lower, upper) layer times."""
        given, shape = (times, give_up_s), (2, len(rows))
        low, high = self._recalled(
            "place", setting, rows, given, shape, lambda: self._placed(setting, rows, *given)
        )
        return PointBounds(low, high)

    def _recalled(
        self,
        what: str,
        setting: Setting,
        rows: Rows,
        given: object,
        shape: tuple[int, ...],
        work_out: Callable[[], FloatArray],
    ) -> FloatArray:
        """Figures of placements that depend on `given`, the setting and the architectures alone."""
        if self.recall is None:
            return work_out()
        chain, hardware = self.timed(setting).content, (self.capacity_bytes[rows], self.rates.take(rows))
        key = digest(what, chain, self._rules, setting.recompute, hardware, given)
        return self.recall.array(key, shape, work_out)

    @cached_property
    def content(self) -> str:
        """Digest of everything but the architectures that values of points depend on."""
        return digest(self._rules, [(setting, self.timed(setting).content) for setting in self.settings])

    @cached_property
    def _rules(self) -> str:
        """Digest of what placements depend on beside the chain and the architectures."""
        return digest(self.task.workload.numerics, self.task.cluster, self.task.fixed)

    def _placed(
        self, setting: Setting, rows: Rows, times: tuple[LayerTimes, LayerTimes], give_up_s: FloatArray
    ) -> FloatArray:
        lower, upper = times
        low, high = np.empty(len(rows)), np.empty(len(rows))
        for capacity, at in self.capacities(rows):
            planner, rates = self.planner(setting, capacity), self.rates.take(rows[at])
            low[at], choice = planner.iteration_s(lower.take(at), rates, give_up_s[at])
            high[at] = low[at]
            open_ = np.flatnonzero(lower.take(at).differs(upper.take(at)) & (choice >= 0))
            if len(open_):
                open_times = upper.take(at[open_])
                high[at[open_]] = planner.value(open_times, rates.take(open_), choice[open_])
        return np.stack([low, high])

    def plans(self, setting: Setting, rows: Rows, known_s: FloatArray, effort: Effort) -> list[Plan | None]:
        """The best plan of each architecture in one setting, with its stages; None where nothing fits.

        `known_s` (A,): iteration times that are known to be reached (infinite: nothing is known).
        """
        plans = self._plans(setting, rows, known_s * (1 + 1e-9), effort)
        # What is known may come from schedules that were searched for longer, perhaps in another process.
        longer = Effort(effort.left_s)
        for limit_s, spent in ((known_s * (1 + 1e-9), longer), (np.full(len(rows), np.inf), effort)):
            left = np.flatnonzero([plan is None for plan in plans] & np.isfinite(known_s))
            if not len(left):
                break
            for i, plan in zip(left, self._plans(setting, rows[left], limit_s[left], spent), strict=True):
                plans[i] = plan
        return plans

    def _plans(self, setting: Setting, rows: Rows, limit_s: FloatArray, effort: Effort) -> list[Plan | None]:
        """The best plan of each architecture; None where nothing fits or gets below `limit_s` (A,)."""
        _, times = self.timed(setting).exact(rows, effort)
        plans: list[Plan | None] = [None] * len(rows)
        for capacity, at in self.capacities(rows):
            planner, rates = self.planner(setting, capacity), self.rates.take(rows[at])
            for i, plan in zip(at, planner.plans(times.take(at), rates, limit_s[at]), strict=True):
                plans[i] = plan
        return plans
