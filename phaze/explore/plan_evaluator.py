"""The evaluator of points whose plans are those of a plan space: bounds and exact values, for a table of architectures.

A point is an architecture with a shape of layers (microbatch, sharding, kind of recompute, recipe); pipelines,
schedules, stage cuts, what ranks divide and what is recomputed are optimised inside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from phaze.cost.model import CostModel, PassCosts
from phaze.digest import digest
from phaze.explore.evaluator import Evaluator
from phaze.explore.setting import Chain, Setting
from phaze.hardware.derived import hbm_bandwidth_bytes_per_s, hbm_capacity_bytes, under_load
from phaze.hardware.table import ArchitectureTable
from phaze.placement.options import NEVER_S
from phaze.placement.strategy.figures import LayerFigures, figures_of, unlinked
from phaze.placement.strategy.framework import Framework, TensorOverlap
from phaze.placement.strategy.layouts import Layouts
from phaze.placement.strategy.operators import Operators, measured, operators
from phaze.placement.strategy.passes import passes_of
from phaze.placement.strategy.search.across import Across
from phaze.placement.strategy.search.options import ShapeOptions
from phaze.placement.strategy.search.outline import least_flops
from phaze.placement.strategy.search.pipeline import Times
from phaze.placement.strategy.strategy import Strategy
from phaze.scheduling.layers import LayerTimes, TimedChain
from phaze.scheduling.passes import Effort
from phaze.workload.degrees import Parallel
from phaze.workload.work import Link, Pass

FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]
FEW = 2048  # strategies of a setting that are sooner fitted than points are tightened
PROBED = 128  # architectures whose times are looked at
QUANTILES = np.array([0, 1, 3, 6, 12, 25, 50, 100])  # those of them that are taken


@dataclass(frozen=True)
class FoundPlan:
    """A strategy of one architecture and the seconds of its iteration."""

    strategy: Strategy
    iteration_s: float


@dataclass
class PlanEvaluator(Evaluator):
    """Evaluates points of one task with a plan space on one table of architectures."""

    _whole: dict[Chain, TimedChain] = field(default_factory=dict)
    _linked: dict[Chain, list[tuple[PassCosts, PassCosts]]] = field(default_factory=dict)

    def on(self, table: ArchitectureTable) -> Self:
        """The same task on other architectures; what does not depend on them is shared."""
        base = self._base
        other = type(self)(self.task, table, recall=self.recall, shared=self.shared)
        model, ideal = base.model.on(under_load(table)), base.unlinked_model.on(other._unlinked_table)
        if model is not None and ideal is not None:
            other.base, other.model, other.unlinked_model = base, model, ideal
        return other

    @property
    def _base(self) -> PlanEvaluator:
        """The one whose costs this one shares."""
        return self.base if isinstance(self.base, PlanEvaluator) else self

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """The shapes of the plan space under every recipe, in a fixed order."""
        return tuple(
            Setting(
                shape.microbatch,
                shape.sharding.tensor,
                shape.recompute,
                recipe,
                shape.sharding.sequence,
                shape.sharding.context,
                shape.sharding.expert,
            )
            for recipe in self.task.recipes
            for shape in self.task.plan_space.shapes(self.task.workload, self.task.cluster)
        )

    # -- costs -----------------------------------------------------------------------------------------------

    @cached_property
    def capacity_bytes(self) -> FloatArray:
        """What plans may fill of the memory of every architecture, (A,)."""
        return self.framework.usable_memory * hbm_capacity_bytes(self.table)

    @cached_property
    def model(self) -> CostModel:
        """Operator costs over the table at the clocks that training leaves."""
        return CostModel(under_load(self.table), self.task.network, self.task.rung, self.task.own)

    @cached_property
    def unlinked_model(self) -> CostModel:
        """The same where collectives take no time."""
        return unlinked(self.model, under_load(self.table))[1]

    @cached_property
    def _unlinked_table(self) -> ArchitectureTable:
        loaded = under_load(self.table)
        return loaded.replace(link_bandwidth_bytes_per_s=np.full(len(loaded), 1e18))

    @property
    def framework(self) -> Framework:
        """What the software does."""
        return self.task.framework

    def layouts(self, setting: Setting) -> Layouts:
        """Layers and chunks of the workload as a setting has it."""
        key = "layouts", setting.recipe
        if key not in self.shared:
            workload = self.task.workload_in(setting.recipe)
            self.shared[key] = Layouts(workload, self.task.cluster, self.framework.running(workload))
        found: Layouts = self.shared[key]
        return found

    def shape(self, setting: Setting) -> Strategy:
        """The strategy without a pipeline that a setting stands for."""
        none = 0 if self.task.plan_space.frugal and setting.recomputes else None
        return Strategy(
            setting.microbatch, sharding=setting.sharding, recompute=setting.recompute, recomputed=none
        )

    def timed(self, setting: Setting) -> TimedChain:
        """The layers on the cores, collectives aside."""
        key = setting.chain
        if key not in self._chains:
            base = self.base
            if base is not None:
                found = base.timed(setting).on(self.unlinked_model, self._unlinked_table)
            else:
                chain = self.layouts(setting).chain(self.shape(setting))
                found = TimedChain(chain, self.unlinked_model, self._unlinked_table, recall=self.recall)
            self._chains[key] = found
        return self._chains[key]

    def linked(self, setting: Setting) -> TimedChain:
        """The layers with all their operators, collectives among them, on the architectures as they are."""
        key = setting.chain
        if key not in self._whole:
            self._whole[key] = TimedChain(self.timed(setting).chain, self.model, self.table)
        return self._whole[key]

    def _passes(self, setting: Setting) -> list[tuple[PassCosts, PassCosts]]:
        """Costs of the operators of every unique layer, forward and backward, collectives among them."""
        key = setting.chain
        if key not in self._linked:
            if self.base is not None:
                base = self._base._passes(setting)
                self._linked[key] = [(f.on(self.model), b.on(self.model)) for f, b in base]
            else:
                none, said = Pass((), ()), self.framework
                self._linked[key] = [
                    (
                        self.model.costs(measured(layer.forward, said)),
                        self.model.costs(measured(layer.backward or none, said)),
                    )
                    for layer in self.timed(setting).chain.layers
                ]
        return self._linked[key]

    def figures(self, setting: Setting, rows: Rows, times: LayerTimes) -> LayerFigures:
        """What the layers take on the architectures at `rows`, whose passes take these times on their cores."""
        chain, said = self.timed(setting).chain, self.framework
        links = self.rates.link_bytes_per_s[rows]
        costed: list[list[Operators]] = []
        for side in (0, 1):
            each = zip(chain.layers, (both[side] for both in self._passes(setting)), strict=True)
            found = []
            for layer, costs in each:
                latencies = costs.latencies(rows)
                alone = np.fmin(latencies.single_s, latencies.parallel_s)
                found.append(
                    operators(
                        costs.pass_,
                        alone,
                        said,
                        (self.task.network, links),
                        experts=layer.expert_parameters > 0,
                    )
                )
            costed.append(found)
        serial = self.model.factors.simt_of[rows] >= 0
        lasting = None if serial.all() else times
        chips = hbm_bandwidth_bytes_per_s(self.table.take(rows)), serial
        return figures_of(chain, costed[0], costed[1], lasting, chips, said)

    def times(self, setting: Setting, rows: Rows, times: LayerTimes) -> Times:
        """Passes of the kinds of groups on the architectures at `rows`, whose layers take these times."""
        kinds, _ = self.options(setting).kinds
        found = passes_of(self.figures(setting, rows, times), kinds, self.framework)
        return Times(np.ascontiguousarray(np.moveaxis(found, 0, 1)), self.rates.optimizer_s[rows])

    def least_times(self, setting: Setting, rows: Rows) -> Times:
        """Less than that, for next to nothing: least times on the cores, and collectives that nothing hides."""
        least, options, chain = (
            self.timed(setting).least(rows),
            self.options(setting),
            self.timed(setting).chain,
        )
        stretch, index = self.framework.stretch, np.array(chain.index)
        found = np.zeros((len(rows), 7, len(options.kinds[0])))
        exposed = self._exposed_s(setting, rows)
        for row, seconds, link_s in ((0, least.forward_s, exposed[0]), (2, least.backward_s, exposed[1])):
            every = seconds * stretch + link_s
            for k, (first, last) in enumerate(options.kinds[0]):
                found[:, row, k] = every[:, index[first : last + 1]].sum(axis=1)
        if not (self.framework.prunes_recompute or self.framework.stops_early):
            found[:, 1] = found[:, 0]
        return Times(found, self.rates.optimizer_s[rows])

    def _exposed_s(self, setting: Setting, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """Seconds of collectives that nothing can hide in each unique layer, (A, U) forward and backward."""
        layers, none = self.timed(setting).chain.layers, Pass((), ())
        found = np.zeros((2, len(rows), len(layers)))
        for u, layer in enumerate(layers if len(rows) else ()):
            for turned, pass_ in enumerate((layer.forward, layer.backward or none)):
                links = [w.link for w in pass_.works if w.link]
                shares = np.array([self._shown(link, turned=turned > 0) for link in links])
                if shares.any():
                    found[turned, :, u] = (self.model.links_s(links, rows) * shares).sum(axis=1)
        return found[0], found[1]

    def _shown(self, link: Link, *, turned: bool) -> float:
        """Share of a collective that computation does not hide at least; `turned`: in backward."""
        said, group = self.framework, link.group
        hides = {Parallel.CONTEXT: said.hides_context, Parallel.EXPERT: said.hides_experts}
        if said.merges_copies and link.copies > 1:
            return 0.0
        if group.parallel in hides or said.tensor_overlap is TensorOverlap.NONE:
            return 1.0 - hides.get(group.parallel, 0.0)
        pieces = said.tensor_overlap in (TensorOverlap.CHUNKED, TensorOverlap.EITHER)
        beside = said.tensor_overlap in (TensorOverlap.WEIGHT_GRADIENT, TensorOverlap.EITHER)
        # Gradients of weights are not made in forward; of pieces the last one hides behind nothing.
        return 0.0 if beside and turned else 1 / group.size if pieces else 1.0

    @property
    def plans_each(self) -> int:
        """Plans that every architecture has, over all settings."""
        return sum(self.options(setting).size for setting in self.settings)

    # -- plans -----------------------------------------------------------------------------------------------

    def options(self, setting: Setting) -> ShapeOptions:
        """The pipelines of a setting."""
        key = "options", setting
        if key not in self.shared:
            self.shared[key] = ShapeOptions(self.layouts(setting), self.task.plan_space, self.shape(setting))
        found: ShapeOptions = self.shared[key]
        return found

    def across(self, setting: Setting, capacity_bytes: float, link_bytes_per_s: float) -> Across:
        """The plans of a setting on architectures of one memory and one link."""
        key = "across", setting, capacity_bytes, link_bytes_per_s
        if key not in self.shared:
            options, probes = self.options(setting), partial(self._probes, setting)
            self.shared[key] = Across(options, capacity_bytes, link_bytes_per_s, probes)
        found: Across = self.shared[key]
        return found

    def _probes(self, setting: Setting) -> FloatArray:
        """Terms of some architectures from fast to slow, (3 K + 2, P): bounds of strategies are made for such.

        They are those of the evaluator whose costs are shared, so that bounds do not depend on what is asked together.
        """
        key = "probes", setting
        if key not in self.shared:
            known = self._base
            rows = np.unique(np.linspace(0, len(known.table) - 1, PROBED).astype(np.intp))
            terms = np.minimum(known.least_times(setting, rows).terms, NEVER_S)
            order = np.argsort(terms[:-2].sum(axis=0), kind="stable")
            self.shared[key] = terms[:, order[(len(order) - 1) * QUANTILES // 100]]
        found: FloatArray = self.shared[key]
        return found

    def _classes(self, setting: Setting, rows: Rows) -> list[tuple[Across, Rows]]:
        """Positions within `rows` by memory and link, with their plans."""
        links = self.rates.link_bytes_per_s[rows]
        found = []
        for capacity, at in self.capacities(rows):
            for link in np.unique(links[at]).tolist():
                found.append((self.across(setting, capacity, link), at[links[at] == link]))
        return found

    def roofline_s(self, setting: Setting) -> FloatArray:
        """The first lower bound on the iteration time, (A,) seconds: FLOPs at peak; no layer is costed.

        Of the devices that end last, in the strategy where they do so first.
        """
        key = "least FLOPs", setting
        if key not in self.shared:
            link = float(self.rates.link_bytes_per_s[0]) if len(self.table) else np.inf
            self.shared[key] = least_flops(self.across(setting, np.inf, link).tiers)
        flops: float = self.shared[key]
        return np.asarray(flops * self.framework.stretch / self._peak(setting))

    def _peak(self, setting: Setting) -> FloatArray:
        from phaze.explore.formats import fastest_flops_per_s

        return fastest_flops_per_s(self.table, self.task, setting.recipe)

    def work_bound(self, setting: Setting, work_s: tuple[FloatArray, FloatArray]) -> FloatArray:
        """The cheapest lower bound on the iteration time, (A,) seconds, from `work_s` of the setting's chain.

        Memory does not count.
        """
        share = self.options(setting).least_share
        seconds = share * self.framework.stretch * (work_s[0] + work_s[1]) * (1 - 1e-11)
        return np.where(self.takes(setting), seconds, np.inf)

    def quick_bound(self, setting: Setting, rows: Rows, give_up_s: FloatArray | None = None) -> FloatArray:
        """A lower bound on the iteration time, (A,) seconds; infinite where memory or formats do not fit.

        It does not count memory where the point does not get below `give_up_s` (A,) without it.
        """
        limit_s = np.full(len(rows), np.inf) if give_up_s is None else give_up_s
        times, found = self.least_times(setting, rows), np.full(len(rows), np.inf)
        for across, at in self._classes(setting, rows):
            found[at] = across.bound_s(times.take(at), limit_s[at])
        return np.where(self.takes(setting)[rows], found, np.inf)

    def path_bound(self, setting: Setting, rows: Rows) -> FloatArray:
        """A lower bound on the iteration time, (A,) seconds, from the work of devices alone where strategies are many.

        Neither memory nor exchanges count then, so that no strategy has to be fitted.
        """
        few = self.options(setting).size <= FEW
        return self.quick_bound(setting, rows, np.full(len(rows), np.inf if few else 0.0))

    def _hopeful(self, setting: Setting, rows: Rows, give_up_s: FloatArray) -> NDArray[np.bool_]:
        hopeful = self.quick_bound(setting, rows, give_up_s) < give_up_s
        at = np.flatnonzero(hopeful)
        if len(at):
            hopeful[at] = (
                self._bound_s(setting, rows[at], self.timed(setting).rough(rows[at])) < give_up_s[at]
            )
        return hopeful

    def _least_s(self, setting: Setting, rows: Rows, times: LayerTimes, give_up_s: FloatArray) -> FloatArray:
        return self._search(setting, rows, times, give_up_s)[0]

    def _search(
        self, setting: Setting, rows: Rows, times: LayerTimes, give_up_s: FloatArray
    ) -> tuple[FloatArray, NDArray[np.int64]]:
        best, choice = np.full(len(rows), np.inf), np.full(len(rows), -1, dtype=np.int64)
        for across, at in self._classes(setting, rows):
            if len(at):
                some = self.times(setting, rows[at], times.take(at))
                best[at], choice[at] = across.best(some, give_up_s[at])
        return best, choice

    def _placed(
        self, setting: Setting, rows: Rows, times: tuple[LayerTimes, LayerTimes], give_up_s: FloatArray
    ) -> FloatArray:
        lower, upper = times
        low, choice = self._search(setting, rows, lower, give_up_s)
        high, open_ = low.copy(), np.flatnonzero(lower.differs(upper) & (choice >= 0))
        if len(open_):
            high[open_] = self._value(setting, rows[open_], upper.take(open_), choice[open_])
            if self.framework.hides_reduction or self.framework.hides_gathers:
                # Exchanges may hide behind what computation takes longer than it is known to.
                low[open_] = np.minimum(low[open_], self._bound_s(setting, rows[open_], lower.take(open_)))
        return np.stack([low, high])

    def _bound_s(self, setting: Setting, rows: Rows, times: LayerTimes) -> FloatArray:
        """At most the iteration time where layers take these times or longer, (A,)."""
        found = np.full(len(rows), np.inf)
        for across, at in self._classes(setting, rows):
            some = self.times(setting, rows[at], times.take(at))
            found[at] = across.bound_s(some, np.full(len(at), np.inf))
        return found

    def _value(
        self, setting: Setting, rows: Rows, times: LayerTimes, choice: NDArray[np.int64]
    ) -> FloatArray:
        found = np.full(len(rows), np.inf)
        for across, at in self._classes(setting, rows):
            found[at] = across.value(self.times(setting, rows[at], times.take(at)), choice[at])
        return found

    @cached_property
    def _rules(self) -> str:
        """Digest of what plans depend on beside the chain and the architectures."""
        return digest(self.task.workload.numerics, self.task.cluster, self.task.plan_space, self.framework)

    def plans(  # type: ignore[override]
        self, setting: Setting, rows: Rows, known_s: FloatArray, effort: Effort
    ) -> list[FoundPlan | None]:
        """The best plan of each architecture in one setting; None where nothing fits.

        `known_s` (A,): iteration times that are known to be reached (infinite: nothing is known).
        """
        _, times = self.timed(setting).exact(rows, effort)
        found: list[FoundPlan | None] = [None] * len(rows)
        for limit_s in (known_s * (1 + 1e-9), np.full(len(rows), np.inf)):
            left = np.flatnonzero([one is None for one in found])
            for across, at in self._classes(setting, rows[left]) if len(left) else []:
                some = self.times(setting, rows[left[at]], times.take(left[at]))
                best, choice = across.best(some, limit_s[left[at]])
                for i, seconds, number in zip(left[at].tolist(), best.tolist(), choice.tolist(), strict=True):
                    found[i] = FoundPlan(across.found[number].strategy, seconds) if number >= 0 else None
        return found
