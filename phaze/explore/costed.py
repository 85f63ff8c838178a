"""What points of one task on a table of architectures are made of: layers with costs, placements, peaks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from phaze.cost.model import CostModel
from phaze.cost.optimizer import optimizer_s_per_parameter
from phaze.explore.formats import counted_flops_per_s, fastest_flops_per_s, takes
from phaze.explore.request import Task
from phaze.explore.setting import Chain, Setting
from phaze.hardware.derived import hbm_capacity_bytes
from phaze.hardware.table import ArchitectureTable
from phaze.placement.cluster import busy_share
from phaze.placement.planner import Planner, Rates
from phaze.recall import Recall
from phaze.scheduling.layers import TimedChain

FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass
class Costed:
    """One task on one table of architectures; caches what points share.

    `shared` does not depend on the architectures: those of one task may share it. `base`: one whose costs this one
    shares, at the positions of its own architectures, with the `model` derived from it. `recall`: what earlier
    searches have found out.
    """

    task: Task
    table: ArchitectureTable
    _chains: dict[Chain, TimedChain] = field(default_factory=dict)
    shared: dict[Any, Any] = field(default_factory=dict)
    base: Costed | None = None
    recall: Recall | None = None

    def on(self, table: ArchitectureTable) -> Self:
        """The same task on other architectures; what does not depend on them is shared.

        Costs are shared where every architecture combines tensor cores, vector cores and memories in a way that
        this one knows; otherwise they are worked out anew.
        """
        base = self.base or self
        other = type(self)(self.task, table, shared=self.shared, recall=self.recall)
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

    def roofline_s(self, setting: Setting) -> FloatArray:
        """The first lower bound on the iteration time, (A,) seconds: FLOPs at peak; no layer is built or costed for it.

        On as many devices as can be at work at a time: some wait while pipelines fill.
        """
        cluster = self.task.cluster
        share = busy_share(cluster, setting.microbatch, setting.tensor_parallel)
        peak = fastest_flops_per_s(self.table, self.task, setting.recipe)
        return np.asarray(self.model_flops / (peak * cluster.devices * share))

    def timed(self, setting: Setting) -> TimedChain:
        """The costed chain of layers behind a setting."""
        key = setting.chain
        if key not in self._chains:
            if self.base is not None:
                self._chains[key] = self.base.timed(setting).on(self.model, self.table)
            else:
                microbatch, sharding, selective, recipe = key
                chain = self.task.workload_in(recipe).chain(microbatch, sharding, selective=selective)
                self._chains[key] = TimedChain(chain, self.model, self.table, recall=self.recall)
        return self._chains[key]

    def linked(self, setting: Setting) -> TimedChain:
        """The layers with all their operators, collectives among them: what energy counts."""
        return self.timed(setting)

    def planner(self, setting: Setting, capacity_bytes: float) -> Planner:
        """The placement of a setting within one memory capacity."""
        key = (setting, capacity_bytes)
        if key not in self.shared:
            self.shared[key] = Planner(
                chain=self.timed(setting).chain,
                numerics=self.task.workload.numerics,
                cluster=self.task.cluster,
                recompute=setting.recompute,
                memory_bytes=capacity_bytes,
                fixed=self.task.fixed,
            )
        found: Planner = self.shared[key]
        return found

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
