"""A lower bound on the iteration time that is cheap enough for every point of a space.

With the average load as bound for the slowest stage, the time of an option (data degree d, S stages) is at least

    max(c0 W + c1 x, c2 w) + c3 / bandwidth(tier) + c4 optimizer + c5

for W the summed layer times, x the cheapest cut, w the slowest layer, and coefficients that depend on the
option alone. Options whose coefficients are nowhere smaller than another's are dropped and similar ones share
their smaller coefficients, which leaves a handful.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.cost.collective import send_s
from phaze.placement.basis import Basis, Rates
from phaze.placement.options import tier_of
from phaze.scheduling.layers import LayerTimes

FloatArray = NDArray[np.float64]
Coefficients = tuple[bool, int, int, FloatArray]
_SPARES = 20  # forward shares are rounded up to a multiple of 1 / _SPARES, so that coefficients can be kept
_ELEMENTS = 1 << 14  # coefficients x architectures looked at together
_GRID = 1.02  # similar options share coefficients that are at most this factor too small


class QuickBound:
    """The bound for one basis; its coefficients are kept."""

    def __init__(self, basis: Basis) -> None:
        """Nothing is worked out yet."""
        self._basis = basis
        self._known: dict[float, list[Coefficients]] = {}

    def seconds(self, times: LayerTimes, rates: Rates) -> FloatArray:
        """(A,) seconds that no placement beats; infinite where nothing can fit in memory."""
        basis = self._basis
        best = np.full(len(times.forward_s), np.inf)
        if not len(basis.roomy.stages):
            return best
        counts = np.bincount(basis.index, minlength=times.forward_s.shape[1]).astype(np.float64)
        forward, backward = times.forward_s @ counts, times.backward_s @ counts
        once = times.forward_s + times.backward_s
        slowest = once.max(axis=1)
        redo = basis.memory.recompute
        share = float((times.forward_s / np.maximum(once, 1e-300)).max()) if redo else 0.0
        total = forward + backward + (forward if redo else 0.0)
        cuts = {t: basis.least_transfer_s(rates, t) for t in range(len(basis.cluster.network.tiers))}
        step = rates.optimizer_s if basis.training else 0.0
        for several, pipeline, data, rows in self._coefficients(math.ceil(share * _SPARES) / _SPARES):
            work = total if several else forward + backward
            cut = cuts[pipeline] if several else 0.0
            bandwidth, _ = tier_of(basis.cluster, data, rates.link_bytes_per_s)
            # Of few architectures all rows at once, of many one row at a time.
            together = max(1, _ELEMENTS // max(1, len(best)))
            for begin in range(0, len(rows), together):
                c0, c1, c2, c3, c4, c5 = rows[begin : begin + together].T[:, :, None]
                seconds = (
                    np.maximum(c0 * work + c1 * cut, c2 * slowest) + send_s(c3, bandwidth, c5) + c4 * step
                )
                np.minimum(best, seconds.min(axis=0), out=best)
        return np.maximum(best * (1 - 1e-12), self.work_seconds(forward, backward))

    def work_seconds(self, forward_s: FloatArray, backward_s: FloatArray) -> FloatArray:
        """(A,) seconds from the forward and backward time of all layers together; at most `seconds`.

        No device idles, nothing is sent, and the last stage may spare all of its layers the second forward pass.
        """
        once = forward_s + backward_s
        redone = once + forward_s if self._basis.memory.recompute else once
        best = np.full(len(once), np.inf)
        for share, work in zip(self._least_share, (once, redone), strict=True):
            if math.isfinite(share):
                np.minimum(best, share * work, out=best)
        return best * (1 - 1e-12)

    @cached_property
    def _least_share(self) -> tuple[float, float]:
        """Least slots over the stages that share the work, with one stage and with more; infinite without any."""
        o = self._basis.roomy
        spare = 1 if self._basis.memory.recompute else 0
        share = o.slots / np.where(o.stages > 1, o.stages + spare, 1)
        return float(share[o.stages == 1].min(initial=np.inf)), float(share[o.stages > 1].min(initial=np.inf))

    def _coefficients(self, spare: float) -> list[Coefficients]:
        if spare not in self._known:
            self._known[spare] = coefficients(self._basis, spare)
        return self._known[spare]


def coefficients(basis: Basis, spare: float) -> list[Coefficients]:
    """(more than one stage, pipeline tier, data tier, coefficients (n, 6)) of the options that can matter.

    `spare` is at least the forward share of any layer: the last stage need not recompute.
    """
    o = basis.roomy
    share = np.where(o.stages > 1, o.stages + spare, 1.0)
    d, weight = o.data_parallel, basis.least_weight[o.stages - 1]
    exact = np.stack(
        [
            o.slots / share,
            2 * (o.stages - 1) * o.slots / share,
            o.slots.astype(np.float64),
            2 * (d - 1) / d * basis.numerics.gradient_bytes * weight,
            weight,
            np.zeros(len(d)),
        ],
        axis=1,
    )
    found = []
    for several in (False, True):
        for pipeline in range(len(basis.cluster.network.tiers)):
            for data in range(pipeline + 1):
                here = ((o.stages > 1) == several) & (o.pipeline_tier == pipeline) & (o.data_tier == data)
                found.append((several, pipeline, data, _undominated(exact[here])))
    return found


def _undominated(rows: FloatArray) -> FloatArray:
    """Rows (n, 6) rounded down to a coarse grid, without those that are nowhere smaller than another."""
    with np.errstate(divide="ignore"):
        power = np.floor(np.log(rows) / np.log(_GRID))
    coarse = np.where(rows > 0, _GRID**power, 0.0)
    # Turned, so that a comparison with all of the rest runs over long rows.
    rest, kept = np.ascontiguousarray(coarse[np.argsort(coarse.sum(axis=1), kind="stable")].T), []
    while rest.shape[1]:
        kept.append(rest[:, 0])
        rest = rest.take(np.flatnonzero((rest < rest[:, :1]).any(axis=0)), axis=1)
    return np.array(kept).reshape(-1, rows.shape[1])
