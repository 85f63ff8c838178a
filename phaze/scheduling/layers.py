"""Times of a model's unique layers over a table of architectures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.cost.cost_model import CostModel
from phaze.cost.latency_bound import (
    LowerTables,
    few_clocks_lower_s,
    lower_s,
    memory_lower_s,
    tensor_lower_s,
)
from phaze.digest import digest
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.memo import Memo
from phaze.scheduling.effort import ENDLESS, LimitsOver
from phaze.scheduling.known import KnownRows
from phaze.scheduling.passes import SolveLimits, TimeBounds, TimedPass, bound_together
from phaze.solvers.scheduling.batch.solve import BLOCK
from phaze.workload.work import LayerChain, Pass

_EMPTY = Pass((), ())


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Seconds one microbatch spends in each unique layer, (A, U) forward and backward."""

    forward_s: Floats
    backward_s: Floats

    def take(self, rows: Rows) -> LayerTimes:
        """Times on some of the architectures."""
        return LayerTimes(self.forward_s[rows], self.backward_s[rows])

    def differs(self, other: LayerTimes) -> NDArray[np.bool_]:
        """Architectures (A,) where some layer's time is not the same."""
        forward = (self.forward_s != other.forward_s).any(axis=1)
        return np.asarray(forward | (self.backward_s != other.backward_s).any(axis=1))


@dataclass(frozen=True)
class ScheduledLayers:
    """The unique layers of a chain, and how long the best schedules known of their passes take on the cores."""

    chain: LayerChain
    times: LayerTimes


@dataclass(frozen=True)
class TimedChain:
    """A chain of layers whose passes are costed over a table of architectures.

    `base`: the same chain on the table that the costs were worked out for (None: this one). `memo`: what earlier
    searches have found out. `passes`: those of other chains with this model and table, of which some may be the same.
    """

    chain: LayerChain
    model: CostModel
    table: ArchitectureTable
    base: TimedChain | None = None
    memo: Memo | None = None
    passes: dict[Pass, TimedPass] = field(default_factory=dict)
    _known: KnownRows = field(default_factory=KnownRows)

    def on(self, model: CostModel, table: ArchitectureTable) -> TimedChain:
        """The same chain on other architectures, at a model derived from this one's; costs are shared."""
        return replace(self, model=model, table=table, base=self.base or self)

    @cached_property
    def forward(self) -> tuple[TimedPass, ...]:
        """Forward pass of each unique layer."""
        if self.base is not None:
            return tuple(p.on(self.model, self.table) for p in self.base.forward)
        return tuple(self._timed(layer.forward) for layer in self.chain.layers)

    @cached_property
    def backward(self) -> tuple[TimedPass, ...]:
        """Backward pass of each unique layer (empty in inference)."""
        if self.base is not None:
            return tuple(p.on(self.model, self.table) for p in self.base.backward)
        return tuple(self._timed(layer.backward or _EMPTY) for layer in self.chain.layers)

    def _timed(self, pass_: Pass) -> TimedPass:
        if pass_ not in self.passes:
            self.passes[pass_] = TimedPass.of(self.model.costs(pass_), self.table, self.memo)
        return self.passes[pass_]

    @cached_property
    def content(self) -> str:
        """Digest of everything but the architectures that times depend on."""
        if self.base is not None:
            return self.base.content
        return digest(self.chain, self.model.network, self.model.rung, self.model.own)

    @cached_property
    def operators(self) -> int:
        """Different operators of all different layers, forward and backward."""
        if self.base is not None:
            return self.base.operators
        return sum(len(p.costs.tables.kinds.first) for p in (*self.forward, *self.backward))

    @cached_property
    def _lower(self) -> LowerTables:
        """Bounds of all forward passes, then of all backward passes."""
        if self.base is not None:
            return self.base._lower
        return LowerTables.join([self._tables(p) for p in (*self.forward, *self.backward)])

    def _tables(self, timed: TimedPass) -> LowerTables:
        return self.model.lower_tables(timed.work, timed.blocks)

    @cached_property
    def _lower_work(self) -> LowerTables:
        """Bounds of the sums over the chain, forward and backward."""
        if self.base is not None:
            return self.base._lower_work
        repeats = np.bincount(self.chain.index, minlength=len(self.chain.layers)).astype(np.float64)
        none = np.zeros_like(repeats)
        return self._lower.weighted(np.array([[*repeats, *none], [*none, *repeats]]).T)

    def lower_bounds(self, rows: Rows) -> LayerTimes:
        """Cheap lower bounds on layer times for the architectures at `rows`."""
        found, layers = lower_s(self.model.factors, self._lower, rows), len(self.chain.layers)
        return LayerTimes(found[:, :layers], found[:, layers:])

    def tensor_bounds(self, rows: Rows) -> LayerTimes:
        """Bounds below these that are the same whatever the vector cores are."""
        found, layers = tensor_lower_s(self.model.factors, self._lower, rows), len(self.chain.layers)
        return LayerTimes(found[:, :layers], found[:, layers:])

    def memory_bounds(self, rows: Rows) -> LayerTimes:
        """Bounds below these that are the same whatever all cores and the clock are."""
        found, layers = memory_lower_s(self.model.factors, self._lower, rows), len(self.chain.layers)
        return LayerTimes(found[:, :layers], found[:, layers:])

    def work(self, rows: Rows) -> tuple[Floats, Floats]:
        """Cheaper lower bounds on the forward and backward time of all layers together, (A,) seconds each."""
        found = lower_s(self.model.factors, self._lower_work, rows)
        return found[:, 0], found[:, 1]

    def work_at_few_clocks(self, rows: Rows) -> tuple[Floats, Floats] | None:
        """At most that, from what layers take at a few of the clocks; None where there are no more."""
        found = few_clocks_lower_s(self.model.factors, self._lower_work, rows)
        return None if found is None else (found[:, 0], found[:, 1])

    def path_bounds(self, rows: Rows) -> LayerTimes:
        """Lower bounds on layer times for the architectures at `rows` from what each of their operators takes there."""
        found, least = self.least(rows), self.lower_bounds(rows)
        return LayerTimes(
            np.maximum(found.forward_s, least.forward_s), np.maximum(found.backward_s, least.backward_s)
        )

    def least(self, rows: Rows) -> LayerTimes:
        """The same without what `lower_bounds` tells: cheaper for a few architectures."""
        each = [[p.least_s(rows) for p in passes] for passes in (self.forward, self.backward)]
        return LayerTimes(*(np.ascontiguousarray(np.array(some).T) for some in each))

    def rough(
        self, rows: Rows, path: LayerTimes | None = None, limits: SolveLimits = ENDLESS.ends
    ) -> tuple[LayerTimes, LayerTimes]:
        """Proven (lower, upper) layer times for the architectures at `rows` from one list schedule of each pass.

        `path`: their `path_bounds`, where these are known. Passes that come after the limits have no upper bound.
        """

        def bounds(one: TimedPass) -> TimeBounds:
            try:
                limits.look()
                return one.bounds(rows, rough=True, limits=limits)
            except LimitsOver:
                return TimeBounds(np.zeros(len(rows)), np.full(len(rows), np.inf))

        found = [[bounds(one) for one in passes] for passes in (self.forward, self.backward)]
        upper = LayerTimes(*(np.ascontiguousarray(np.array([b.upper_s for b in some]).T) for some in found))
        # Neither of the two lower bounds knows all that the other one knows.
        least = self._open_paths(rows, found) if path is None else path
        forward, backward = (np.ascontiguousarray(np.array([b.lower_s for b in some]).T) for some in found)
        lower = LayerTimes(np.maximum(forward, least.forward_s), np.maximum(backward, least.backward_s))
        np.minimum(lower.forward_s, upper.forward_s, out=lower.forward_s)
        np.minimum(lower.backward_s, upper.backward_s, out=lower.backward_s)
        return lower, upper

    def _open_paths(self, rows: Rows, found: Sequence[Sequence[TimeBounds]]) -> LayerTimes:
        """`path_bounds`, but no time for passes whose bounds meet everywhere where these are most of all."""
        open_ = [[bool((one.lower_s < one.upper_s).any()) for one in some] for some in found]
        if 2 * sum(map(sum, open_)) > sum(map(len, open_)):
            return self.path_bounds(rows)
        each = np.zeros((2, len(rows), len(self.chain.layers)))
        left = [(side, layer) for side, some in enumerate(open_) for layer, one in enumerate(some) if one]
        passes = [(self.forward, self.backward)[side][layer] for side, layer in left]
        if left:
            least = lower_s(self.model.factors, LowerTables.join([self._tables(p) for p in passes]), rows)
            for (side, layer), one, bound_s in zip(left, passes, least.T, strict=True):
                each[side, :, layer] = np.maximum(one.least_s(rows), bound_s)
        return LayerTimes(*each)

    def bounds(self, rows: Rows) -> tuple[LayerTimes, LayerTimes]:
        """Proven (lower, upper) layer times for the architectures at `rows`: those of `rough`, every pass tightened."""
        found = self._known.get(self.model.factors.shown(rows), lambda new: self._bands(rows[new]))
        lower, upper = (LayerTimes(found[:, side, 0], found[:, side, 1]) for side in (0, 1))
        return lower, upper

    def _bands(self, rows: Rows) -> Floats:
        """Lower and upper times of forward and backward passes, (A, 2, 2, U)."""
        if len(rows) <= BLOCK:
            bound_together([*self.forward, *self.backward], rows)
        times = self.rough(rows)
        for which in self.open_passes(*times):
            self.tighten(which, rows, times, np.arange(len(rows)))
        return np.stack([np.stack([one.forward_s, one.backward_s], axis=1) for one in times], axis=1)

    def tighten(
        self,
        which: tuple[int, int],
        rows: Rows,
        times: tuple[LayerTimes, LayerTimes],
        at: Rows,
        limits: SolveLimits = ENDLESS.ends,
    ) -> int:
        """Bound one pass for the architectures `rows[at]` where it is open, in place; for how many that was.

        Raises LimitsOver where the time is over before: then nothing has changed.
        """
        timed, low, high, open_ = self._open(which, times, at)
        if len(open_):
            found, layer = timed.bounds(rows[open_], limits=limits), which[1]
            high[open_, layer] = np.minimum(high[open_, layer], found.upper_s)
            low[open_, layer] = np.minimum(np.maximum(low[open_, layer], found.lower_s), high[open_, layer])
        return len(open_)

    def open_passes(self, lower: LayerTimes, upper: LayerTimes) -> list[tuple[int, int]]:
        """(direction, unique layer) of the passes whose bounds differ somewhere, most uncertain time first.

        Direction 0 is forward, 1 backward.
        """
        repeats = np.bincount(self.chain.index, minlength=len(self.chain.layers))
        both = ((upper.forward_s, lower.forward_s), (upper.backward_s, lower.backward_s))
        # Where both are infinite, on chips without links, there is nothing to find out.
        apart = [np.subtract(u, s, out=np.zeros_like(u), where=u != s) for u, s in both]
        slack = np.stack([one.sum(axis=0) * repeats for one in apart])
        order = np.argsort(-slack, axis=None, kind="stable")
        return [divmod(int(flat), slack.shape[1]) for flat in order if slack.flat[flat] > 0]

    def narrow(
        self,
        which: tuple[int, int],
        rows: Rows,
        times: tuple[LayerTimes, LayerTimes],
        at: Rows,
        limits: SolveLimits,
    ) -> int:
        """Schedule one pass exactly for the architectures `rows[at]`, in place; how many problems that took."""
        timed, low, high, open_ = self._open(which, times, at)
        if len(open_):
            known, layer = TimeBounds(low[open_, which[1]], high[open_, which[1]]), which[1]
            bounds = timed.exact(rows[open_], known, limits)
            low[open_, layer], high[open_, layer] = bounds.lower_s, bounds.upper_s
        return len(open_)

    def _open(
        self, which: tuple[int, int], times: tuple[LayerTimes, LayerTimes], at: Rows
    ) -> tuple[TimedPass, Floats, Floats, Rows]:
        """A pass, the (lower, upper) times (A, U) of its direction, and where of `at` its bounds differ."""
        direction, layer = which
        low, high = ((t.forward_s, t.backward_s)[direction] for t in times)
        passes = (self.forward, self.backward)[direction]
        return passes[layer], low, high, at[low[at, layer] < high[at, layer]]

    def exact(self, rows: Rows, limits: SolveLimits) -> tuple[LayerTimes, LayerTimes]:
        """(lower, upper) layer times after exact scheduling of what the bounds leave open.

        They are equal unless the exact solver ran out of the time or the states it may take.
        """
        times = self.bounds(rows)
        for which in self.open_passes(*times):
            self.narrow(which, rows, times, np.arange(len(rows)), limits)
        return times
