"""Lower bounds on the largest load of a plan by its number of stages S; tables are (depth, A), at [S - 1]."""

from __future__ import annotations

import numpy as np
from phaze.solvers.placement.stage_costs import FloatArray, IntArray
from phaze.solvers.placement.stage_memory import fewest_stages
from phaze.solvers.placement.width import Width


class LoadBound:
    """Seconds per microbatch of the slowest stage, if a device has at most so many bytes.

    Three arguments: the stages share all work and the transfers between them; a stage holds the largest layer; and
    some stage holds its share, rounded up, of those layers that are large. How large a share follows from what
    memory lets stages hold, so it is the same for all architectures; what it takes is the least time of so many
    large layers in a row.
    """

    def __init__(
        self, width: Width, capacity_bytes: float, forward_s: FloatArray, backward_s: FloatArray
    ) -> None:
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
        self._large = np.flatnonzero(plain_s >= plain_s.mean() / 2)
        longer = 1 + forward_s.sum() / plain_s.sum() if self._recompute and plain_s.any() else 1.0
        self._inner_share, self._last_share = self._shares(deepest, longer)

    def loads(self, forward_s: FloatArray, backward_s: FloatArray) -> FloatArray:
        """Bounds (depth, A) for latencies (L, A); infinite where memory admits no plan."""
        plain = forward_s + backward_s
        inner = plain + forward_s if self._recompute else plain
        shared = inner.sum(axis=0) + np.arange(self._depth)[:, None] * self._cut_s
        # The last stage recomputes nothing, which saves at most this part of its load.
        saved = _largest_part(forward_s, plain) if self._recompute else np.zeros(1)
        bounds: FloatArray = shared / (np.arange(1, self._depth + 1)[:, None] + saved)
        np.maximum(bounds, plain.max(axis=0), out=bounds)
        np.maximum(bounds[1:], self._of_shares(plain, inner), out=bounds[1:])
        bounds[0] = plain.sum(axis=0)
        bounds[: self._fewest_stages - 1] = np.inf
        return bounds

    def _shares(self, deepest: IntArray, longer: float) -> tuple[IntArray, IntArray]:
        """(k, l), both (depth - 1,): of S > 1 stages, one inner holds k large layers, or the last one l.

        A count that no stage holds is given as one more than there are. The k is the least with which k layers per
        inner stage and `longer` times as many in the last, but no more than fit, make all of them.
        """
        large = self._large.size
        before = np.zeros(2 * self._layers, dtype=np.int64)
        before[1 : self._layers + 1] = np.bincount(self._large, minlength=self._layers).cumsum()
        before[self._layers + 1 :] = large
        held = np.lib.stride_tricks.sliding_window_view(before[1:], self._layers) - before[: self._layers]
        ends = np.arange(self._layers)
        in_last = held[ends[::-1], ends][deepest[ends[::-1], ends] >= 1].max(initial=0)
        # The deepest index at which some stage holds so many or more; the last stage is not an inner one.
        deep = np.zeros(large + 1, dtype=np.int64)
        inner = np.add.outer(ends, ends) < self._layers - 1
        np.maximum.at(deep, held[inner], deepest[inner])
        deep = np.maximum.accumulate(deep[::-1])[::-1]
        most = np.searchsorted(-deep[1:], -np.arange(2, self._depth + 1), side="right")
        together = np.cumsum(np.minimum(np.arange(large + 1)[:, None], most), axis=1)
        short = together + np.minimum(np.floor(longer * np.arange(large + 1)), in_last)[:, None] < large
        share = np.count_nonzero(short, axis=0)
        left = large - together[np.maximum(share - 1, 0), np.arange(self._depth - 1)]
        return share, np.where(left <= in_last, left, large + 1)

    def _of_shares(self, plain: FloatArray, inner: FloatArray) -> FloatArray:
        """Load of the stage that holds its share (depth - 1, A)."""
        large = self._large.size
        counts, which = np.unique(self._inner_share, return_inverse=True)
        sums, starts, ends = _prefix(inner), self._large, self._large + 1
        runs = np.full((counts.size, plain.shape[1]), np.inf)
        for row, count in enumerate(counts[counts <= large]):
            runs[row] = (sums[ends[count - 1 :]] - sums[starts[: large - count + 1]]).min(axis=0)
        suffix = _prefix(plain[::-1])
        last = np.full((self._depth - 1, plain.shape[1]), np.inf)
        fits = self._last_share <= large
        last[fits] = suffix[self._layers - self._large[large - self._last_share[fits]]]
        shares: FloatArray = np.minimum(runs[which], last)
        return shares


def _prefix(values: FloatArray) -> FloatArray:
    """Running sums along the first axis, with a leading zero."""
    sums = np.zeros((len(values) + 1, values.shape[1]))
    np.cumsum(values, axis=0, out=sums[1:])
    return sums


def _largest_part(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Largest quotient of the sums over any last layers (A,)."""
    parts, wholes = np.cumsum(part[::-1], axis=0), np.cumsum(whole[::-1], axis=0)
    return np.divide(parts, wholes, out=np.zeros_like(parts), where=wholes > 0).max(axis=0)
