"""One evaluator for every search: bounds and exact values of points, for a table of architectures at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.digest import digest
from phaze.explore.evaluation.flops_utilisation import fastest_flops_per_s
from phaze.explore.evaluation.task_costs import CostedPoints, CostedTask
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import under_load
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.plan_batches.cut_pipelines import GroupTimes
from phaze.parallel.plan_batches.plan_outline import PlanTier, amounts_between, least_bytes, least_flops
from phaze.parallel.plan_search.fastest_plans import FastestPlans
from phaze.scheduling.effort import ENDLESS, LimitsOver, Patience
from phaze.scheduling.layers import LayerTimes
from phaze.scheduling.passes import NEVER_S, SolveLimits
from phaze.tolerances import BOUND_ROUNDING, FEW_STATES, SAME
from phaze.workload.operators.low_precision import Recipe


@dataclass(frozen=True, slots=True)
class PointBounds:
    """Proven bounds on the iteration time of one point per architecture, (A,) seconds; inf: does not fit.

    `judged_s`: what was held against the time at which the point is given up: no less than the lower bound.
    """

    lower_s: NDArray[np.float64]
    upper_s: NDArray[np.float64]
    judged_s: NDArray[np.float64]

    @classmethod
    def none(cls, count: int) -> PointBounds:
        """Of architectures on which nothing fits."""
        return cls(*(np.full(count, np.inf) for _ in range(3)))

    def put(self, at: NDArray[np.intp], others: PointBounds) -> None:
        """Take over what is known of the architectures at some positions."""
        self.lower_s[at], self.upper_s[at] = others.lower_s, others.upper_s
        self.judged_s[at] = others.judged_s


@dataclass(frozen=True)
class _HopefulPoints:
    """Points of a config at positions `at` of those asked for, with (lower, upper) times of their layers.

    `bound_s` (A,): at most their iteration time.
    """

    at: Rows
    points: CostedPoints
    times: tuple[LayerTimes, LayerTimes]
    bound_s: Floats

    def take(self, some: Rows) -> _HopefulPoints:
        """Some of them."""
        times = self.times[0].take(some), self.times[1].take(some)
        return _HopefulPoints(self.at[some], self.points.take(some), times, self.bound_s[some])


PROBED = 128  # architectures whose times are looked at
QUANTILES = np.array([0, 1, 3, 6, 12, 25, 50, 100])  # those of them that are taken
RECHECK = 64
MANY = 1 << 13  # architectures tightened together of which most are likely to be out of the question


@dataclass(frozen=True)
class FoundPlan:
    """A strategy of one architecture and the seconds of its iteration."""

    strategy: ParallelPlan
    iteration_s: float


class Evaluator(CostedTask):
    """Evaluates points of one task on one table of architectures."""

    def prepare(self, late: Callable[[], bool]) -> None:
        """Work out what all configs share, and what plans each has until it is late, so that copies know it as well."""
        self.model  # noqa: B018 - it is kept
        self.unlinked_model  # noqa: B018
        for config in self.configs:
            if late():
                break
            self.roofline_s(config)

    @property
    def plans_each(self) -> int:
        """Plans that every architecture has, over all configs."""
        return sum(map(self.plans_of, self.configs))

    def plans_of(self, config: TrainingConfig) -> int:
        """Plans of a config."""
        key = "plans", config
        if key not in self.shared:
            self.shared[key] = self.options(config).size
        found: int = self.shared[key]
        return found

    def across(self, config: TrainingConfig, capacity_bytes: float, link_bytes_per_s: float) -> FastestPlans:
        """The plans of a config on architectures of one memory and one link."""
        key = "across", config, capacity_bytes, link_bytes_per_s
        if key not in self.shared:
            options, probes = self.options(config), partial(self._probes, config)
            self.shared[key] = FastestPlans(options, capacity_bytes, link_bytes_per_s, probes)
        found: FastestPlans = self.shared[key]
        return found

    def _probes(self, config: TrainingConfig) -> Floats:
        """Terms of some architectures from fast to slow, (3 K + 2, P): bounds of strategies are made for such.

        They are those of the evaluator whose costs are shared, so that bounds do not depend on what is asked together.
        """
        key = "probes", config
        if key not in self.shared:
            known = self._base
            rows = np.unique(np.linspace(0, len(known.table) - 1, PROBED).astype(np.intp))
            terms = np.minimum(known.least_times(config, rows).terms, NEVER_S)
            forward, again, _ = np.split(terms[:-2], 3)
            again[:] = forward  # least times know nothing of it where software prunes what runs again
            order = np.argsort(terms[:-2].sum(axis=0), kind="stable")
            self.shared[key] = terms[:, order[(len(order) - 1) * QUANTILES // 100]]
        found: Floats = self.shared[key]
        return found

    def _classes(self, config: TrainingConfig, rows: Rows) -> list[tuple[FastestPlans, Rows]]:
        """Positions within `rows` by memory and link, with their plans."""
        links = self.link_bytes_per_s[rows]
        found = []
        for capacity, at in self.capacities(rows):
            for link in np.unique(links[at]).tolist():
                found.append((self.across(config, capacity, link), at[links[at] == link]))
        return found

    def roofline_s(self, config: TrainingConfig) -> Floats:
        """The first lower bound on the iteration time, (A,) seconds: FLOPs at peak; no layer is costed.

        Of the devices that end last, in the strategy where they do so first.
        """
        flops = self._least_flops(config)
        return np.asarray(flops * self.framework.stretch / self._peak_flops_per_s(config.recipe))

    def _least_flops(self, config: TrainingConfig) -> float:
        key = "least FLOPs", config
        if key not in self.shared:
            self.shared[key] = least_flops(self._tiers(config))
        found: float = self.shared[key]
        return found

    def _peak_flops_per_s(self, recipe: Recipe | None) -> Floats:
        """Fastest FLOP/s of every architecture under a recipe, (A,)."""
        if recipe not in self._peaks:
            self._peaks[recipe] = fastest_flops_per_s(self.table, self.task, recipe)
        return self._peaks[recipe]

    @cached_property
    def _peaks(self) -> dict[Recipe | None, Floats]:
        return {}

    def _tiers(self, config: TrainingConfig) -> tuple[PlanTier, ...]:
        """All plans of a config, whatever the memory; links are those of the first architecture."""
        link = float(self.link_bytes_per_s[0]) if len(self.table) else np.inf
        return self.across(config, np.inf, link).tiers

    def least_bytes(self, config: TrainingConfig) -> float:
        """Least bytes of the fullest device over the plans of a config; infinite where there are none."""
        key = "least bytes", config
        if key not in self.shared:
            each = (least_bytes(tier.sheet) for tier in self._tiers(config))
            self.shared[key] = min(each, default=np.inf)
        found: float = self.shared[key]
        return found

    def amounts_between(self, above: float, below: float) -> Floats:
        """Numbers of bytes between two, each once, ascending: all that plans may need of a device are among them."""
        sheets = (tier.sheet for config in self.configs for tier in self._tiers(config))
        return np.unique(np.concatenate([np.zeros(0), *(amounts_between(s, above, below) for s in sheets)]))

    def work_bound(self, config: TrainingConfig, rows: Rows) -> Floats:
        """The cheapest lower bound on the iteration time that costs layers, (A,) seconds: all of them, spread evenly.

        Memory does not count, but where plans are held to less of it than architectures have.
        """
        able = (self.takes(config) & self.holds(config))[rows]
        if not able.any():
            return np.full(len(rows), np.inf)
        return np.where(able, self._spread_s(config, self.timed(config).work(rows)), np.inf)

    def work_bound_at_few_clocks(self, config: TrainingConfig, rows: Rows) -> Floats | None:
        """At most that, (A,) seconds, from what layers take at a few of the clocks; None where there are no more."""
        work = self.timed(config).work_at_few_clocks(rows)
        return None if work is None else self._spread_s(config, work)

    def _spread_s(self, config: TrainingConfig, work_s: tuple[Floats, Floats]) -> Floats:
        """The forward and backward time of all layers, (A,) each, spread evenly over the devices."""
        share = self.options(config).least_share
        return share * self.framework.stretch * (work_s[0] + work_s[1]) * (1 - BOUND_ROUNDING)

    def exchange_bound(self, config: TrainingConfig, rows: Rows, give_up_s: Floats) -> Floats:
        """A lower bound on the iteration time, (A,) seconds, from least work and exchanges, however full memories get.

        No operator is costed, and plans are fitted once for all memories. It is something no less than `give_up_s` (A,)
        where it is no less.
        """
        times, found = self.least_times(config, rows), np.full(len(rows), np.inf)
        self.shared["fitted once", config] = True
        for plans, at in self._whatever_memory(config, rows):
            found[at] = plans.rough_bound_s(times.take(at), give_up_s[at])
        return found

    def fitted_once(self, config: TrainingConfig) -> bool:
        """Whether that was asked for, so that plans are fitted."""
        return ("fitted once", config) in self.shared

    def _whatever_memory(self, config: TrainingConfig, rows: Rows) -> list[tuple[FastestPlans, Rows]]:
        """Positions within `rows` by link, with plans that all fit."""
        links = self.link_bytes_per_s[rows]
        each = [(link, np.flatnonzero(links == link)) for link in np.unique(links).tolist()]
        return [(self.across(config, np.inf, link), at) for link, at in each]

    def least_s(self, config: TrainingConfig, *, exchanges: bool = False) -> float:
        """Lower bound on the iteration time of every architecture of the whole table, seconds.

        That of the best plan on the best memory and links, whatever the cores and the clock are. `exchanges`: with all
        of them, for which plans are fitted; else with those that nothing hides.
        """
        if self.base is not None:
            return self.base.least_s(config, exchanges=exchanges)
        key = config, exchanges
        if key not in self._least:
            self._least[key] = self._least_of_all_s(*key)
        return self._least[key]

    def _least_of_all_s(self, config: TrainingConfig, exchanges: bool) -> float:
        factors = self.model.factors
        if (factors.simt_of >= 0).any():
            return 0.0  # of architectures that run kernels memory tells too little
        rows = np.unique(factors.memory_of, return_index=True)[1]
        times = self.least_times(config, rows, self.timed(config).memory_bounds(rows))
        times = replace(times, optimizer_s=np.zeros(len(rows)))
        limit_s = np.full(len(rows), np.inf if exchanges else 0.0)
        each = (p.bound_s(times.take(at), limit_s[at]) for p, at in self._whatever_memory(config, rows))
        return min((float(seconds.min()) for seconds in each), default=np.inf)

    def known_least_s(self, which: Iterable[TrainingConfig], table: ArchitectureTable | None = None) -> float:
        """The same of several configs, as far as it was asked for, for all architectures of another table as well.

        0 where it was not asked of one of them, or some other buffers, memories or links are in that table.
        """
        least = self._base._least
        found = min((max(least.get((c, e), 0.0) for e in (False, True)) for c in which), default=np.inf)
        if table is None or found == 0:
            return found
        return found if self._base.model.factors.has_memories_of(under_load(table)) else 0.0

    @cached_property
    def _least(self) -> dict[tuple[TrainingConfig, bool], float]:
        return {}

    def holds(self, config: TrainingConfig) -> NDArray[np.bool_]:
        """Whether some plan may fit, (A,): looked at where memory is likely to be what is short."""
        if self.task.memory_bytes is None and not self._crowded:
            return np.ones(len(self.table), dtype=np.bool_)
        return self.capacity_bytes >= self.least_bytes(config)

    @cached_property
    def _crowded(self) -> bool:
        """Whether weights and their states, spread over all devices, fill half of the largest memory."""
        if len(self.task.plan_space.offloads) > 1:
            return False  # hosts may keep some of them
        workload, known = self.task.workload, self._base
        chain = workload.chain(1, 1)
        each = sum(chain.layers[u].parameters for u in chain.index) / self.task.devices
        return each * workload.numerics.state_bytes > 0.5 * float(known.capacity_bytes.max(initial=0.0))

    def iteration_bound(self, config: TrainingConfig, rows: Rows, give_up_s: Floats | None = None) -> Floats:
        """A lower bound on the iteration time, (A,) seconds; infinite where memory or formats do not fit.

        It does not count memory where the point does not get below `give_up_s` (A,) without it.
        """
        limit_s = np.full(len(rows), np.inf) if give_up_s is None else give_up_s
        if not self.holds(config)[rows].any():
            return np.full(len(rows), np.inf)
        found = self._bounded(config, rows, self.least_times(config, rows), limit_s)
        return np.where(self.takes(config)[rows], found, np.inf)

    def path_bound(self, config: TrainingConfig, rows: Rows, give_up_s: Floats) -> Floats:
        """A lower bound on the iteration time, (A,) seconds, from the work of devices alone.

        Neither memory nor exchanges count, so that no strategy has to be fitted. Where memory is what plans are held to
        they do, for points that get below `give_up_s` (A,) without them.
        """
        held = self.task.memory_bytes is not None
        return self.iteration_bound(config, rows, give_up_s if held else np.zeros(len(rows)))

    def unscheduled_bound(self, config: TrainingConfig, rows: Rows, give_up_s: Floats) -> Floats:
        """At most the iteration time, (A,), without a schedule of any layer; formats aside."""
        points, path = self.points(config, rows), self.timed(config).path_bounds(rows)
        return self._bounded(config, rows, points.times(path), give_up_s)

    def _bounded(
        self,
        config: TrainingConfig,
        rows: Rows,
        times: GroupTimes,
        limit_s: Floats,
        limits: SolveLimits = ENDLESS.ends,
    ) -> Floats:
        """At most the iteration time, (A,), where groups take these times or longer; see `FastestPlans.bound_s`."""
        found = np.full(len(rows), np.inf)
        for across, at in self._classes(config, rows):
            found[at] = across.bound_s(times.take(at), limit_s[at], limits)
        return found

    def bounds(
        self, config: TrainingConfig, rows: Rows, give_up_s: Floats, patience: Patience = ENDLESS
    ) -> PointBounds:
        """Bounds on the iteration time from schedule bounds per layer and the exact partition of each.

        Infinite where the point cannot get below `give_up_s` (A,). Looser where the time to tighten them is over in
        between; where all time is, points keep the lower bound that is known until then.
        """
        bounds = PointBounds.none(len(rows))
        hopeful = self._roughly(config, rows, give_up_s, patience.ends)
        if len(hopeful.at):
            limit_s = give_up_s[hopeful.at]
            alive = self._tightened(hopeful.points, hopeful.times, limit_s, patience.tightens)
            left = hopeful.take(alive)
            try:
                patience.ends.look()
                found = self._place(left.points, left.times, limit_s[alive], patience.ends)
            except LimitsOver:
                found = PointBounds(left.bound_s, np.full(len(alive), np.inf), left.bound_s)
            bounds.put(left.at, found)
        return bounds

    def hopeful(self, config: TrainingConfig, rows: Rows, give_up_s: Floats) -> NDArray[np.bool_]:
        """Whether a point may get below `give_up_s`, (A,), by bounds that schedule layers roughly at most."""
        hopeful = np.zeros(len(rows), dtype=np.bool_)
        hopeful[self._roughly(config, rows, give_up_s).at] = True
        return hopeful

    def _roughly(
        self, config: TrainingConfig, rows: Rows, give_up_s: Floats, limits: SolveLimits = ENDLESS.ends
    ) -> _HopefulPoints:
        """Points that may get below `give_up_s`, (A,); what comes after the limits rules out none."""
        at = np.flatnonzero(self.takes(config)[rows] & self.holds(config)[rows])
        if len(at) > MANY:  # most of so many fall before their operators are costed
            least = self.least_times(config, rows[at])
            at = at[self._bounded(config, rows[at], least, give_up_s[at], limits) < give_up_s[at]]
        points, path = self.points(config, rows[at]), self.timed(config).path_bounds(rows[at])
        bound_s = self._bounded(config, points.rows, points.times(path), give_up_s[at], limits)
        left = np.flatnonzero(bound_s < give_up_s[at])
        at, points = at[left], points.take(left)
        times = self.timed(config).rough(points.rows, path.take(left), limits)
        hopeful = _HopefulPoints(at, points, times, bound_s[left])
        if limits.over:
            return hopeful
        hopeful = replace(
            hopeful, bound_s=np.maximum(hopeful.bound_s, self._bound_s(points, times[0], limits))
        )
        return hopeful.take(np.flatnonzero(hopeful.bound_s < give_up_s[at]))

    def _tightened(
        self,
        points: CostedPoints,
        times: tuple[LayerTimes, LayerTimes],
        give_up_s: Floats,
        limits: SolveLimits,
    ) -> Rows:
        """Tighten (lower, upper) times pass by pass, the most uncertain first; positions of points still hopeful.

        A point that falls is let go before the rest of its passes; passes that come after the limits keep their bounds.
        """
        timed, alive, done = self.timed(points.config), np.arange(len(points)), 0
        for which in timed.open_passes(*times):
            if limits.over:
                break
            try:
                done += timed.tighten(which, points.rows, times, alive, limits)
            except LimitsOver:
                break
            if done >= len(alive) and not limits.over:
                bound_s = self._bound_s(points.take(alive), times[0].take(alive))
                alive, done = alive[bound_s < give_up_s[alive]], 0
        return alive

    def exact(
        self, config: TrainingConfig, rows: Rows, give_up_s: Floats, effort: SolveLimits
    ) -> PointBounds:
        """The same from exact schedules; the bounds are equal unless the effort ran out.

        The most uncertain passes are scheduled first; architectures that then cannot get below their
        `give_up_s` any more are let go without scheduling the rest.
        """
        timed, points = self.timed(config), self.points(config, rows)
        times = timed.bounds(rows)
        alive, solved = np.arange(len(rows)), 0
        for which in timed.open_passes(*times):
            solved += timed.narrow(which, rows, times, alive, effort)
            if solved >= RECHECK:
                hopeful = self._iteration_s(points.take(alive), times[0].take(alive), give_up_s[alive])
                alive, solved = alive[np.isfinite(hopeful)], 0
        left = times[0].take(alive), times[1].take(alive)
        bounds = PointBounds.none(len(rows))
        bounds.put(alive, self._place(points.take(alive), left, give_up_s[alive]))
        return bounds

    def _iteration_s(self, points: CostedPoints, times: LayerTimes, give_up_s: Floats) -> Floats:
        """The least iteration time for these layer times, (A,)."""
        given, shape = (times, give_up_s), (len(points),)
        return self._recalled(
            "iteration",
            points,
            given,
            shape,
            lambda: self._search(points, points.times(times), give_up_s)[0],
        )

    def _search(
        self, points: CostedPoints, every: GroupTimes, give_up_s: Floats, limits: SolveLimits = ENDLESS.ends
    ) -> tuple[Floats, NDArray[np.int64]]:
        best, choice = np.full(len(points), np.inf), np.full(len(points), -1, dtype=np.int64)
        for across, at in self._classes(points.config, points.rows):
            if limits.over:
                raise LimitsOver
            if len(at):
                best[at], choice[at] = across.best(every.take(at), give_up_s[at], limits)
        return best, choice

    def _place(
        self,
        points: CostedPoints,
        times: tuple[LayerTimes, LayerTimes],
        give_up_s: Floats,
        limits: SolveLimits = ENDLESS.ends,
    ) -> PointBounds:
        """Bounds on the iteration time from (lower, upper) layer times. Raises LimitsOver."""
        given, shape = (times, give_up_s), (3, len(points))
        found = self._recalled("place", points, given, shape, lambda: self._placed(points, *given, limits))
        return PointBounds(*found)

    def _recalled(
        self,
        what: str,
        points: CostedPoints,
        given: object,
        shape: tuple[int, ...],
        work_out: Callable[[], Floats],
    ) -> Floats:
        """Figures of placements that depend on `given`, the config and the architectures alone."""
        if self.memo is None:
            return work_out()
        config, rows = points.config, points.rows
        chain, hardware = (
            self.timed(config).content,
            (self.capacity_bytes[rows], (self.link_bytes_per_s[rows], self.optimizer_s[rows])),
        )
        key = digest(what, chain, self._rules, (config.recompute, config.grain), hardware, given)
        return self.memo.array(key, shape, work_out)

    @cached_property
    def content(self) -> str:
        """Digest of everything but the architectures that values of points depend on."""
        return digest(self._rules, [(config, self.timed(config).content) for config in self.configs])

    def _placed(
        self,
        points: CostedPoints,
        times: tuple[LayerTimes, LayerTimes],
        give_up_s: Floats,
        limits: SolveLimits,
    ) -> Floats:
        lower, upper = times
        every = points.times(lower)
        judged, choice = self._search(points, every, give_up_s, limits)
        low, high = judged.copy(), judged.copy()
        open_ = np.flatnonzero(lower.differs(upper) & (choice >= 0))
        if len(open_):
            some, never = points.take(open_), np.full(len(open_), np.inf)
            high[open_] = self._value(some, some.times(upper.take(open_)), choice[open_])
            if self.framework.hides_reduction or self.framework.hides_gathers:
                # Exchanges may hide behind what computation takes longer than it is known to.
                bound_s = self._bounded(points.config, some.rows, every.take(open_), never)
                low[open_] = np.minimum(low[open_], bound_s)
        return np.stack([low, high, judged])

    def _bound_s(self, points: CostedPoints, times: LayerTimes, limits: SolveLimits = ENDLESS.ends) -> Floats:
        """At most the iteration time where layers take these times or longer, (A,)."""
        never = np.full(len(points), np.inf)
        return self._bounded(points.config, points.rows, points.times(times), never, limits)

    def _value(self, points: CostedPoints, every: GroupTimes, choice: NDArray[np.int64]) -> Floats:
        found = np.full(len(points), np.inf)
        for across, at in self._classes(points.config, points.rows):
            found[at] = across.value(every.take(at), choice[at])
        return found

    @cached_property
    def _rules(self) -> str:
        """Digest of what plans depend on beside the chain and the architectures."""
        return digest(self.task.workload.numerics, self.task.cluster, self.task.plan_space, self.framework)

    def plans(
        self, config: TrainingConfig, rows: Rows, known_s: Floats, effort: SolveLimits
    ) -> list[FoundPlan | None]:
        """The best plan of each architecture in one config; None where nothing fits.

        `known_s` (A,): iteration times that are known to be reached (infinite: nothing is known). No more effort is
        spent on schedules than it takes to reach them again.
        """
        found: list[FoundPlan | None] = [None] * len(rows)
        limit_s, sure = known_s * (1 + SAME), np.isfinite(known_s)
        for states in (0, FEW_STATES, effort.states):
            self._find(found, config, rows, np.where(sure, limit_s, -np.inf), effort.at_most(states))
        self._find(found, config, rows, np.full(len(rows), np.inf), effort)
        return found

    def _find(
        self,
        found: list[FoundPlan | None],
        config: TrainingConfig,
        rows: Rows,
        limit_s: Floats,
        effort: SolveLimits,
    ) -> None:
        """Find plans within limits (A,) of architectures that have none yet."""
        left = np.flatnonzero([one is None and limit > 0 for one, limit in zip(found, limit_s, strict=True)])
        if not len(left):
            return
        every = self.times(config, rows[left], self.scheduled(config, rows[left], effort).times)
        for across, at in self._classes(config, rows[left]):
            best, choice = across.best(every.take(at), limit_s[left[at]])
            for i, seconds, number in zip(left[at].tolist(), best.tolist(), choice.tolist(), strict=True):
                found[i] = FoundPlan(across.found[number].plan, seconds) if number >= 0 else None

    def capacities(self, rows: Rows) -> list[tuple[float, Rows]]:
        """Positions within `rows` grouped by memory capacity."""
        values, group = self._capacity_groups
        if len(values) == 1:
            return [(float(values[0]), np.arange(len(rows)))] if len(rows) else []
        of = group[rows]
        found = ((float(v), np.flatnonzero(of == g)) for g, v in enumerate(values))
        return [(value, at) for value, at in found if len(at)]

    @cached_property
    def _capacity_groups(self) -> tuple[Floats, Rows]:
        return np.unique(self.capacity_bytes, return_inverse=True)
