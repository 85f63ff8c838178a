"""Parts of the points of one task on a table of architectures: layers with their costs, options of stages, and
the measured constants of links on the calibrated rung."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.cost.cost_model import CostModel, PassCosts
from phaze.cost.fidelity import Fidelity, check_fidelity
from phaze.cost.kernels.link_constants import with_laws
from phaze.cost.optimizer_step import optimizer_s_per_parameter
from phaze.errors import InputError
from phaze.explore.evaluation.flops_utilisation import counted_flops_per_s, takes_recipe
from phaze.explore.evaluation.training_config import Chain, TrainingConfig
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import hbm_bandwidth_bytes_per_s, hbm_capacity_bytes, under_load
from phaze.hardware.hardware_fields import field_table
from phaze.hardware.spaces.design_space import DesignSpace
from phaze.memo import Memo
from phaze.parallel.framework import Framework, TensorOverlap
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.plan_batches.cut_pipelines import GroupTimes
from phaze.parallel.plan_batches.shape_options import ShapeOptions
from phaze.parallel.training.layer_costs import layer_costs_of, without_links
from phaze.parallel.training.operator_costs import Operators, operators, with_score_passes
from phaze.parallel.training.plan_layouts import PlanLayouts
from phaze.parallel.training.stage_times import passes_of
from phaze.scheduling.layers import LayerTimes, ScheduledLayers, TimedChain
from phaze.scheduling.passes import SolveLimits, TimedPass
from phaze.workload.parallel_degrees import Parallel
from phaze.workload.work import Link, Pass


def measured_links(task: Task, table: ArchitectureTable) -> Task:
    """On the calibrated rung, the task on a network with the measured constants of the family of a table's chips."""
    if task.rung is not Fidelity.CALIBRATED or not len(table):
        return task
    network = with_laws(task.network, str(field_table()["family"].decode(table["family"][0])))
    return task if network == task.network else replace(task, network=network)


def check_measured(task: Task, space: DesignSpace) -> None:
    """Raises InputError where a task has a rung that the chips of a space do not have."""
    if task.rung in (Fidelity.IDEAL, Fidelity.ANALYTIC):
        return
    if any("family" in axis.fields for axis in space.axes):
        raise InputError(
            f"rung {task.rung} is that of one family of chips, and space {space.name} varies it: fix it "
            "(--fix family=...)"
        )
    check_fidelity(task.rung, space.architecture(0).replace(f"space {space.name}"))


@dataclass(frozen=True)
class CostedPoints:
    """Points of one config on the architectures at `rows` of a task; what their operators take is worked out once.

    `among`: more points and the positions of these among them: what is known of all is known of these.
    """

    costs: CostedTask
    config: TrainingConfig
    rows: Rows
    among: tuple[CostedPoints, Rows] | None = None

    def __len__(self) -> int:
        """How many."""
        return len(self.rows)

    def take(self, at: Rows) -> CostedPoints:
        """Some of them."""
        return CostedPoints(self.costs, self.config, self.rows[at], (self, at))

    @cached_property
    def operators(self) -> tuple[list[Operators], list[Operators]]:
        """Operators of every unique layer, forward and backward."""
        if self.among is None:
            return self.costs.operators(self.config, self.rows)
        points, at = self.among
        forward, backward = ([_taken(one, at) for one in some] for some in points.operators)
        return forward, backward

    def times(self, times: LayerTimes) -> GroupTimes:
        """Passes of the kinds of groups where layers take these times on the cores."""
        task, config = self.costs, self.config
        kinds, said = task.options(config).kinds[0], task.framework
        serial = task.model.factors.simt_of[self.rows] >= 0
        lasting = None if serial.all() else times
        chips = hbm_bandwidth_bytes_per_s(task.table.take(self.rows)), serial
        costs = layer_costs_of(task.timed(config).chain, *self.operators, lasting, chips, said)
        found = passes_of(costs, kinds, said)
        return GroupTimes(np.ascontiguousarray(np.moveaxis(found, 0, 1)), task.optimizer_s[self.rows])


def _taken(one: Operators, at: Rows) -> Operators:
    """Operators on some of the architectures."""
    return Operators(one.pass_, one.alone_s.take(at, axis=0), one.link_s.take(at, axis=0), one.longer[at])


@dataclass
class CostedTask:
    """One task on one table of architectures; caches what points share.

    `shared` does not depend on the architectures: those of one task may share it. `base`: one whose costs this one
    shares, at the positions of its own architectures, with the models derived from it. `memo`: what earlier
    searches have found out.
    """

    task: Task
    table: ArchitectureTable
    _chains: dict[Chain, TimedChain] = field(default_factory=dict)
    shared: dict[Any, Any] = field(default_factory=dict)
    base: Self | None = None
    memo: Memo | None = None
    _whole: dict[Chain, TimedChain] = field(default_factory=dict)
    _linked: dict[Chain, list[tuple[PassCosts, PassCosts]]] = field(default_factory=dict)
    _timed_passes: dict[Pass, TimedPass] = field(default_factory=dict)
    _exposed: dict[Chain, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """On the calibrated rung, links are those of the family of the table's chips."""
        self.task = measured_links(self.task, self.table)

    def on(self, table: ArchitectureTable) -> Self:
        """The same task on other architectures; what does not depend on them is shared."""
        base, other = self._base, self.uncosted(table)
        model, ideal = base.model.on(under_load(table)), base.unlinked_model.on(other._unlinked_table)
        if model is not None and ideal is not None:
            other.base, other.model, other.unlinked_model = base, model, ideal
        return other

    def uncosted(self, table: ArchitectureTable) -> Self:
        """The same task on architectures of which only peaks are asked, no cost of a layer."""
        return type(self)(self.task, table, memo=self.memo, shared=self.shared)

    def of(self, task: Task) -> Self:
        """Another task with the same layers and framework on these architectures; what layers cost is shared.

        So are exchanges where the network is the same, and plans where they are the same, which may fill less memory.
        """
        other = type(self)(task, self.table, self._chains, memo=self.memo, _timed_passes=self._timed_passes)
        other.unlinked_model = self.unlinked_model
        if other.task.network != self.task.network:
            return other
        other._whole, other._linked, other.model = self._whole, self._linked, self.model
        if task.cluster == self.task.cluster:
            other.shared = self.shared
        return other

    @property
    def _base(self) -> Self:
        """The one whose costs this one shares."""
        return self.base or self

    @property
    def configs(self) -> tuple[TrainingConfig, ...]:
        """The shapes of the plan space under every recipe, in a fixed order."""
        if "configs" not in self.shared:
            self.shared["configs"] = tuple(self._configs())
        found: tuple[TrainingConfig, ...] = self.shared["configs"]
        return found

    def _configs(self) -> Iterator[TrainingConfig]:
        shapes = tuple(self.task.plan_space.shapes(self.task.workload, self.task.cluster))
        for recipe, shape in product(self.task.recipes, shapes):
            yield TrainingConfig(
                shape.microbatch,
                shape.sharding.tensor,
                shape.recompute,
                recipe,
                shape.sharding.sequence,
                shape.sharding.context,
                shape.sharding.expert,
                shape.grain,
            )

    @cached_property
    def capacity_bytes(self) -> Floats:
        """Bytes that plans may fill of the memory of every architecture, (A,)."""
        return self.task.usable_bytes(hbm_capacity_bytes(self.table))

    @cached_property
    def model(self) -> CostModel:
        """Operator costs over the table at the clocks that training leaves."""
        return CostModel(under_load(self.table), self.task.network, self.task.rung, self.task.own)

    @cached_property
    def unlinked_model(self) -> CostModel:
        """The same where collectives take no time."""
        return without_links(self.model, under_load(self.table))[1]

    @cached_property
    def link_bytes_per_s(self) -> Floats:
        """Bandwidth of the link of every architecture, (A,)."""
        return np.asarray(self.table["link_bandwidth_bytes_per_s"], dtype=np.float64)

    @cached_property
    def optimizer_s(self) -> Floats:
        """Seconds of an optimizer step per parameter on every architecture, (A,)."""
        return optimizer_s_per_parameter(self.table, self.task.workload.numerics)

    def peak_flops_per_s(self, config: TrainingConfig) -> Floats:
        """Peak that MFU counts against, (A,)."""
        return counted_flops_per_s(self.table, config.recipe)

    def takes(self, config: TrainingConfig) -> NDArray[np.bool_]:
        """Which architectures have the formats of a config, (A,)."""
        return takes_recipe(self.table, config.recipe)

    @cached_property
    def model_flops(self) -> float:
        """Model FLOPs of one iteration, all devices together."""
        return self.task.workload.chain(1, 1).model_flops * self.task.cluster.global_batch

    @cached_property
    def _unlinked_table(self) -> ArchitectureTable:
        loaded = under_load(self.table)
        return loaded.replace(link_bandwidth_bytes_per_s=np.full(len(loaded), 1e18))

    @property
    def framework(self) -> Framework:
        """Framework: what the software does."""
        return self.task.framework

    def layouts(self, config: TrainingConfig) -> PlanLayouts:
        """Layers and chunks of the workload as a config has it."""
        key = "layouts", config.recipe
        if key not in self.shared:
            workload = self.task.workload_in(config.recipe)
            self.shared[key] = PlanLayouts(workload, self.task.cluster, self.framework.running(workload))
        found: PlanLayouts = self.shared[key]
        return found

    def shape(self, config: TrainingConfig) -> ParallelPlan:
        """The strategy without a pipeline that a config stands for."""
        none = 0 if self.task.plan_space.frugal and config.recomputes else None
        return ParallelPlan(
            config.microbatch,
            sharding=config.sharding,
            recompute=config.recompute,
            recomputed=none,
            grain=config.grain,
        )

    def options(self, config: TrainingConfig) -> ShapeOptions:
        """The pipelines of a config."""
        key = "options", config
        if key not in self.shared:
            self.shared[key] = ShapeOptions(self.layouts(config), self.task.plan_space, self.shape(config))
        found: ShapeOptions = self.shared[key]
        return found

    def timed(self, config: TrainingConfig) -> TimedChain:
        """The layers on the cores, collectives aside."""
        key = config.chain
        if key not in self._chains:
            base = self.base
            if base is not None:
                found = base.timed(config).on(self.unlinked_model, self._unlinked_table)
            else:
                chain = self.layouts(config).chain(self.shape(config))
                found = TimedChain(
                    chain,
                    self.unlinked_model,
                    self._unlinked_table,
                    memo=self.memo,
                    passes=self._timed_passes,
                )
            self._chains[key] = found
        return self._chains[key]

    def scheduled(self, config: TrainingConfig, rows: Rows, effort: SolveLimits) -> ScheduledLayers:
        """The layers in the best schedules known on the architectures at `rows`; `effort`: for those not yet known."""
        timed = self.timed(config)
        return ScheduledLayers(timed.chain, timed.exact(rows, effort)[1])

    def linked(self, config: TrainingConfig) -> TimedChain:
        """The layers with all their operators, collectives among them, on the architectures as they are.

        Tied parameters count once, as where one device has both ends: no plan steps fewer.
        """
        key = config.chain
        if key not in self._whole:
            chain = self.layouts(config).joined(self.timed(config).chain)
            self._whole[key] = TimedChain(chain, self.model, self.table)
        return self._whole[key]

    def _passes(self, config: TrainingConfig) -> list[tuple[PassCosts, PassCosts]]:
        """Costs of the operators of every unique layer, forward and backward, collectives among them."""
        key = config.chain
        if key not in self._linked:
            if self.base is not None:
                base = self._base._passes(config)
                self._linked[key] = [(f.on(self.model), b.on(self.model)) for f, b in base]
            else:
                none, said = Pass((), ()), self.framework
                self._linked[key] = [
                    (
                        self.model.costs(with_score_passes(layer.forward, said)),
                        self.model.costs(with_score_passes(layer.backward or none, said)),
                    )
                    for layer in self.timed(config).chain.layers
                ]
        return self._linked[key]

    def operators(self, config: TrainingConfig, rows: Rows) -> tuple[list[Operators], list[Operators]]:
        """Operators of every unique layer on the architectures at `rows`, forward and backward."""
        layers, links = self.timed(config).chain.layers, self.link_bytes_per_s[rows]
        costed: tuple[list[Operators], list[Operators]] = ([], [])
        for side, found in enumerate(costed):
            each = zip(layers, (both[side] for both in self._passes(config)), strict=True)
            for layer, costs in each:
                latencies = costs.latencies(rows)
                alone = np.fmin(latencies.single_s, latencies.parallel_s)
                experts = layer.expert_parameters > 0
                linked = self.task.network, links
                found.append(operators((costs.pass_,), alone, self.framework, linked, experts=experts))
        return costed

    def points(self, config: TrainingConfig, rows: Rows) -> CostedPoints:
        """Points of a config on the architectures at `rows`, whose operators are costed once."""
        return CostedPoints(self, config, rows)

    def times(self, config: TrainingConfig, rows: Rows, times: LayerTimes) -> GroupTimes:
        """Passes of the kinds of groups on the architectures at `rows`, whose layers take these times."""
        return self.points(config, rows).times(times)

    def least_times(self, config: TrainingConfig, rows: Rows, known: LayerTimes | None = None) -> GroupTimes:
        """Less than that, for next to nothing: least times on the cores, and collectives that nothing hides.

        `known`: what layers take on the cores at least; by default what the cheapest bounds tell.
        """
        least = self.timed(config).lower_bounds(rows) if known is None else known
        options, chain = self.options(config), self.timed(config).chain
        stretch, index = self.framework.stretch, np.array(chain.index)
        found = np.zeros((len(rows), 7, len(options.kinds[0])))
        exposed = self._exposed_s(config)[:, self.model.factors.memory_of[rows]]
        for row, seconds, link_s in ((0, least.forward_s, exposed[0]), (2, least.backward_s, exposed[1])):
            every = seconds * stretch + link_s
            for k, (first, last) in enumerate(options.kinds[0]):
                found[:, row, k] = every[:, index[first : last + 1]].sum(axis=1)
        if not (self.framework.prunes_recompute or self.framework.stops_early):
            found[:, 1] = found[:, 0]
        return GroupTimes(found, self.optimizer_s[rows])

    def _exposed_s(self, config: TrainingConfig) -> Floats:
        """Seconds of collectives that nothing can hide in each unique layer, forward and backward, (2, M, U).

        M are the distinct sides of memory and links, which are those of the base as well.
        """
        known, key = self._base._exposed, config.chain
        if key not in known:
            layers, none = self.timed(config).chain.layers, Pass((), ())
            turns = [layer.forward for layer in layers], [layer.backward or none for layer in layers]
            each = [[self._unhidden_s(p, turned=t > 0) for p in turn] for t, turn in enumerate(turns)]
            known[key] = np.ascontiguousarray(np.moveaxis(np.array(each), 1, 2))
        return known[key]

    def _unhidden_s(self, pass_: Pass, *, turned: bool) -> Floats:
        """The same of one pass, (M,); `turned`: in backward."""
        links = [w.link for w in pass_.works if w.link]
        shares = np.array([self._shown(link, turned=turned) for link in links])
        if not shares.any():
            return np.zeros(len(self.model.factors.memory.link_bytes_per_s))
        return np.asarray((np.ascontiguousarray(self.model.links_s(links)) * shares).sum(axis=1))

    def _shown(self, link: Link, *, turned: bool) -> float:
        """Share of a collective that computation does not hide at least; `turned`: in backward."""
        said, group = self.framework, link.group
        hides = {Parallel.CONTEXT: said.hides_context, Parallel.EXPERT: said.hides_experts}
        if said.merges_copies and link.copies.count > 1:
            return 0.0
        if group.parallel in hides or said.tensor_overlap is TensorOverlap.NONE:
            return 1.0 - hides.get(group.parallel, 0.0)
        pieces = said.tensor_overlap in (TensorOverlap.CHUNKED, TensorOverlap.EITHER)
        beside = said.tensor_overlap in (TensorOverlap.WEIGHT_GRADIENT, TensorOverlap.EITHER)
        # Gradients of weights are not made in forward; of pieces the last one hides behind nothing.
        return 0.0 if beside and turned else 1 / group.size if pieces else 1.0
