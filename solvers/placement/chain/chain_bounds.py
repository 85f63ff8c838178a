"""A lower bound on the time of the best plan that costs microseconds per architecture.

From lower bounds on the largest load of a plan by its number of stages S, in tables (depth, A) at [S - 1], and from
what the pipeline makes of a largest load.

A plan of S stages over d pipelines takes x * (q + S - 1) + C * (1 - 1/d), where x is its largest load, q =
ceil(m / d) and C * (d - 1) / d the all-reduce. Here C is what reducing the first layer takes (all layers if S =
1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from phaze.solvers.arrays import Floats, Integers
from phaze.solvers.placement.chain.chain_batch import PlacementBatch
from phaze.solvers.placement.chain.chain_widths import Width, fewest_stages, widths
from phaze.solvers.placement.stage_costs import DepthArray

# Hides the rounding of sums of many terms, so that a bound is one in floating point too.
SLACK = 1e-9
# More than the time of any plan, and sums of many are finite.
LONGEST_S = 1e300


class TimeBound:
    """Seconds per batch of plans of one width in which so many stages, a range, are narrow."""

    def __init__(self, width: Width, narrow: range) -> None:
        """Find the fewest microbatches per pipeline for every number of stages."""
        problem, degrees = width.problem, width.degrees
        self._fewest_narrow = narrow[0]
        stages = np.arange(1, width.depth + 1)
        count = np.minimum(width.devices.most_narrow[1 : width.depth + 1], narrow[-1])
        fitting = np.where(count >= narrow[0], degrees.admitting(width.devices.of(stages, count)), 0)
        total = problem.microbatches_per_batch
        fewest = np.where(fitting > 0, degrees.microbatches[fitting - 1], np.inf)[:, None]
        self._filling = np.arange(width.depth, dtype=np.float64)[:, None]
        self._most_steps, self._fewest_steps = total + self._filling, fewest + self._filling
        reduced = np.full((width.depth, 1), width.first_bytes[0])
        reduced[0] = width.first_bytes[-1]
        # d >= m / q, hence 1 - 1/d >= 1 - q/m.
        unshared = np.where(fitting[:, None] > 0, 1 - fewest / total, 1.0)
        self._reduce_s = 4 * reduced / problem.link_bandwidth_bytes_per_s * unshared
        self._limit_steps, self._limit_reduce_s = _least_from(self._fewest_steps), _least_from(self._reduce_s)

    def times(self, of_all_s: Floats, of_wide_s: Floats, device_time_s: Floats, out: Floats) -> None:
        """Write bounds (depth, A) for largest loads by numbers of all stages and of wide ones (depth, A).

        `device_time_s` (A,): seconds that all microbatches keep all devices busy. The all-reduce grows by less
        than C/m with each microbatch less per pipeline, so that either all of them pass one pipeline or as few as
        can be.
        """
        # Row S - 1 of all stages meets row S - n - 1 of wide ones; the first rows may admit no plan.
        first = max(self._fewest_narrow, int(np.count_nonzero(np.isinf(of_all_s[:, 0]))))
        rows = slice(first, None)
        wide = slice(first - self._fewest_narrow, len(of_all_s) - self._fewest_narrow)
        out[:first] = np.inf
        load_s = np.maximum(of_all_s[rows], of_wide_s[wide])
        with np.errstate(invalid="ignore"):
            found_s = np.multiply(load_s, self._fewest_steps[rows], out=out[rows])
            found_s += self._reduce_s[rows]
            np.fmin(found_s, load_s * self._most_steps[rows], out=found_s)
            load_s *= self._filling[rows]
        load_s += device_time_s
        np.fmax(found_s, load_s, out=found_s)
        found_s *= 1 - SLACK

    def load_limit(self, stages: int, time_s: Floats, device_time_s: Floats) -> Floats:
        """Loads (A,) above which plans of S > 1 stages or more, if any, take longer than `time_s` (A,)."""
        time_s, row = time_s * (1 + SLACK), stages - 1
        with np.errstate(invalid="ignore"):
            limit = (time_s - self._limit_reduce_s[row]) / self._limit_steps[row]
        limit = np.fmax(time_s / self._most_steps[row], limit)
        return np.asarray(np.minimum(limit, (time_s - device_time_s) / self._filling[row]))


def _least_from(values: Floats) -> Floats:
    """The least of values[i], values[i + 1], ... at [i]."""
    return np.minimum.accumulate(values[::-1])[::-1]


class LoadBound:
    """Seconds per microbatch of the slowest stage, if a device has at most so many bytes.

    By the number of stages: they share all work and the transfers between them, and one holds the largest layer.
    By the number of wide ones: they share the work of the layers that need wide stages; and one holds its share,
    rounded up, of those among them that are large. How large a share follows from what memory lets stages hold,
    so it is the same for all architectures; what it takes is the least time of so many large layers in a row.
    """

    def __init__(self, width: Width, capacity_bytes: float, forward_s: Floats, backward_s: Floats) -> None:
        """Count; the latencies (L,) tell large layers from small ones, and any would give bounds."""
        self._recompute = width.problem.activation_recomputation
        self._layers, self._depth = width.layers, width.depth
        into, back = width.transfers.into_s[0, 1:], width.transfers.back_s[0, :-1]
        # A recomputing stage may hide the gradient that comes in.
        cut_s = into.min(initial=np.inf) + (0.0 if self._recompute else back.min(initial=np.inf))
        self._cut_s = cut_s if self._layers > 1 else 0.0
        deepest = width.memory.deepest(np.array([capacity_bytes]))[..., 0]
        self._fewest_stages = fewest_stages(deepest, self._depth)
        plain_s = forward_s + backward_s
        self._is_wide = np.where(width.devices.narrow[0], 0.0, 1.0)
        wide = np.flatnonzero(self._is_wide)
        self._large = wide[plain_s[wide] >= plain_s[wide].mean() / 2]
        longer = 1 + forward_s.sum() / plain_s.sum() if self._recompute and plain_s.any() else 1.0
        self._inner_share, self._last_share = self._shares(deepest, longer)

    def loads(self, forward_s: Floats, backward_s: Floats) -> tuple[Floats, Floats]:
        """Bounds for so many stages, and for so many wide ones (depth, A), infinite where memory admits no plan.

        The latencies are (L, A).
        """
        plain = forward_s + backward_s
        last, wide = _suffix_sums(plain), self._is_wide @ plain
        inner, inner_wide = last, wide
        stages = divisor = np.arange(1, self._depth + 1)[:, None]
        if self._recompute:
            recomputed = _suffix_sums(forward_s)
            inner, inner_wide = last + recomputed, wide + self._is_wide @ forward_s
            # The last stage recomputes nothing, which saves at most this part of its load.
            saved = np.divide(recomputed, last, out=np.zeros_like(last), where=last > 0).max(axis=0)
            divisor = stages + saved
        of_all: Floats = (inner[0] + (stages - 1) * self._cut_s) / divisor
        of_wide: Floats = inner_wide / divisor
        np.maximum(of_all, plain.max(axis=0), out=of_all)
        np.maximum(of_wide[1:], self._of_shares(last, inner), out=of_wide[1:])
        of_all[0], of_wide[0] = last[0], wide
        of_all[: self._fewest_stages - 1] = np.inf
        return of_all, of_wide

    def _shares(self, deepest: DepthArray, longer: float) -> tuple[Integers, Integers]:
        """(k, l), both (depth - 1,): of w > 1 wide stages, one inner holds k large layers, or the last one l.

        A count that no stage holds is given as one more than there are. The k is the least with which k layers per
        inner stage and `longer` times as many in the last, but no more than fit, make all of them.
        """
        large, wide = self._large.size, np.arange(self._depth - 1)
        in_last, inner = self._most_large(deepest)
        counts = np.arange(large + 1)[:, None]
        together = np.cumsum(np.minimum(counts, inner[:-1]), axis=1)
        # If the last stage is narrow, there is one more inner stage among the wide ones.
        one_more = np.minimum(counts, inner[1:] if not self._is_wide.all() else 0)
        last = np.minimum(np.floor(longer * counts), in_last)
        share = np.count_nonzero(together + np.maximum(last, one_more) < large, axis=0)
        left = large - together[share - 1, wide]
        return share, np.where(left <= in_last, left, large + 1)

    def _most_large(self, deepest: DepthArray) -> tuple[int, Integers]:
        """Most large layers in a last stage, and in inner ones of index 2..depth + 1 from the end (depth,)."""
        before = np.zeros(2 * self._layers, dtype=np.int64)
        before[1:] = np.searchsorted(self._large, np.arange(2 * self._layers - 1), side="right")
        held = np.lib.stride_tricks.sliding_window_view(before[1:], self._layers) - before[: self._layers]
        ends = np.arange(self._layers)[:, None] + np.arange(self._layers)
        last = held[(ends == self._layers - 1) & (deepest >= 1)].max(initial=0)
        # Which counts of large layers there are in stages that fit at most at each index.
        index = np.where(ends < self._layers - 1, deepest, 0).astype(np.int64)
        counts = np.arange(self._large.size + 1)
        found = np.bincount((index * counts.size + held).ravel(), minlength=(self._layers + 2) * counts.size)
        most = np.where(found.reshape(-1, counts.size) > 0, counts, 0).max(axis=1)
        return int(last), np.maximum.accumulate(most[::-1])[::-1][2 : self._depth + 2]

    def _of_shares(self, last: Floats, inner: Floats) -> Floats:
        """Load of the stage that holds its share (depth - 1, A), from sums over the layers from each one on."""
        large = self._large.size
        counts, which = np.unique(self._inner_share, return_inverse=True)
        starts, behind = inner[self._large], inner[self._large + 1]
        runs = np.full((counts.size, inner.shape[1]), np.inf)
        for row, count in enumerate(counts[counts <= large]):
            runs[row] = (starts[: large - count + 1] - behind[count - 1 :]).min(axis=0)
        shares: Floats = runs[which]
        fits = self._last_share <= large
        shares[fits] = np.minimum(shares[fits], last[self._large[large - self._last_share[fits]]])
        return shares


def _suffix_sums(values: Floats) -> Floats:
    """Sums of values[i], values[i + 1], ... at [i], with a zero at the end."""
    sums = np.zeros((len(values) + 1, values.shape[1]))
    for row in range(len(values) - 1, -1, -1):  # cumsum along the first axis would jump through memory
        np.add(sums[row + 1], values[row], out=sums[row])
    return sums


# Memories of a batch are rounded up to so many different ones, for each of which stages are counted.
_MEMORIES = 4
# Plans are bounded apart by their narrow stages: with none, with one, ..., with so many or more.
_NARROW_RANGES = 4
# Architectures bounded at once: their arrays stay in the cache.
_BLOCK = 512


@dataclass(frozen=True)
class Candidates:
    """R architectures of one width, and what is known of them before the search.

    `forward_s`, `backward_s` (L, R); `memory_bytes` (R,), or (1,) if all have the same; `bound_s` (n, depth, R):
    seconds that plans of S stages take at least, at [:, S - 1], for n ranges of narrow stages;
    `device_time_s` (R,): see TimeBound.
    """

    forward_s: Floats
    backward_s: Floats
    memory_bytes: Floats
    bound_s: Floats
    device_time_s: Floats

    @property
    def least_s(self) -> Floats:
        """Seconds (R,) that any plan takes at least."""
        least: Floats = self.bound_s.min(axis=(0, 1))
        return least

    def __getitem__(self, rows: Integers) -> Candidates:
        """Some of them."""
        memory_bytes = self.memory_bytes if self.memory_bytes.size == 1 else self.memory_bytes[rows]
        arrays = (self.forward_s, self.backward_s, self.bound_s, self.device_time_s)
        forward_s, backward_s, bound_s, device_time_s = (array[..., rows] for array in arrays)
        return Candidates(forward_s, backward_s, memory_bytes, bound_s, device_time_s)


class WidthBound:
    """The bounds of one width for the architectures of a batch, one `times` for each range of narrow stages."""

    def __init__(self, batch: PlacementBatch, width: Width) -> None:
        """Prepare what all architectures share."""
        self.width = width
        most = int(width.devices.most_narrow[width.depth])
        ranges = [range(count, count + 1) for count in range(min(most + 1, _NARROW_RANGES))]
        ranges[-1] = range(ranges[-1][0], most + 1)
        self.times = [TimeBound(width, narrow) for narrow in ranges]
        self._forward_s, self._backward_s = batch.forward_s[:, width.index], batch.backward_s[:, width.index]
        self._memory_bytes = batch.device_memory_bytes
        self._typical_s = self._forward_s.sum(axis=0), self._backward_s.sum(axis=0)
        self._loads: dict[float, LoadBound] = {}
        wide = np.array(width.model.is_tensor_parallel)
        devices = np.where(wide, width.devices.wide, 1.0)
        self._share = devices * (width.problem.microbatches_per_batch / width.problem.num_devices)

    def candidates(self, rows: Integers, most_bytes: float) -> Candidates:
        """Bounds of some architectures, none of which has more than so much memory."""
        if most_bytes not in self._loads:
            self._loads[most_bytes] = LoadBound(self.width, most_bytes, *self._typical_s)
        forward_s, backward_s = (
            np.ascontiguousarray(latency[rows].T) for latency in (self._forward_s, self._backward_s)
        )
        # x * q is no less, whatever the degree.
        device_time_s = self._share @ (forward_s + backward_s)
        loads = self._loads[most_bytes].loads(forward_s, backward_s)
        bound_s = np.empty((len(self.times), *loads[0].shape))
        for bound, out in zip(self.times, bound_s, strict=True):
            bound.times(*loads, device_time_s, out)
        memory_bytes = np.unique(self._memory_bytes[rows])
        if memory_bytes.size > 1:
            memory_bytes = self._memory_bytes[rows]
        return Candidates(forward_s, backward_s, memory_bytes, bound_s, device_time_s)


def width_bounds(batch: PlacementBatch) -> list[WidthBound]:
    """The bounds of all widths that can be placed at all."""
    return [WidthBound(batch, width) for width in widths(batch.problem)]


def lower_bound(batch: PlacementBatch) -> Floats:
    """Seconds per batch (A,) that no plan beats; infinite only where no plan fits.

    For every width and number of stages, the largest load is bounded by the work and the transfers that the
    stages share, by the largest layer, and by the share of the large layers that one stage must hold in view of
    memory. The time follows from the fewest microbatches per pipeline that the devices allow, the filling of the
    pipeline, the all-reduce of the first layer, and the work that all devices share.
    """
    bounds, best_s = width_bounds(batch), np.full(batch.architectures, np.inf)
    for rows, most_bytes in _memory_groups(batch.device_memory_bytes):
        for bound in bounds:
            best_s[rows] = np.minimum(best_s[rows], bound.candidates(rows, most_bytes).least_s)
    return best_s


def _memory_groups(memory_bytes: Floats) -> Iterator[tuple[Integers, float]]:
    """Blocks of architectures of similar memory, and the most that any of their group has."""
    levels = np.unique(memory_bytes)
    if levels.size > _MEMORIES:
        levels = levels[np.linspace(0, levels.size - 1, _MEMORIES + 1).astype(np.int64)[1:]]
    level = np.searchsorted(levels, memory_bytes)
    for group, most_bytes in enumerate(levels.tolist()):
        rows = np.flatnonzero(level == group)
        for begin in range(0, rows.size, _BLOCK):
            yield rows[begin : begin + _BLOCK], most_bytes
