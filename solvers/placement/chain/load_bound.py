"""Lower bounds on the largest load of a plan by its number of stages S; tables are (depth, A), at [S - 1]."""

from __future__ import annotations

import numpy as np
from phaze.solvers.arrays import Floats, Integers
from phaze.solvers.placement.chain.stage_memory import fewest_stages
from phaze.solvers.placement.chain.width import Width
from phaze.solvers.placement.stage_costs import DepthArray


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
