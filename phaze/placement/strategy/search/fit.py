"""The least that has to be recomputed for a strategy to fit in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze.placement.cluster import Recompute
from phaze.placement.pipelines.layout import chunks_of
from phaze.placement.strategy.estimate import Estimator
from phaze.placement.strategy.strategy import Strategy

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Fit:
    """A strategy that fits, or none; `least_bytes`: what its fullest device needs with as much recompute as may be."""

    strategy: Strategy | None
    least_bytes: float


def fitted(estimator: Estimator, strategy: Strategy, capacity_bytes: float) -> Fit:
    """The strategy itself if it fits, or the fewest blocks of every device recomputed that make it fit, if it may.

    It may where it asks for full recompute of no blocks. Devices recompute from their first chunk on, which keeps the
    most microbatches. Fewer blocks never take longer, and no device gains by what another recomputes, so that no
    other choice of blocks alike is faster.
    """
    needs = _needs(estimator, strategy)
    if needs.max() <= capacity_bytes:
        plain = replace(strategy, recompute=Recompute.NONE) if _frugal(strategy) else strategy
        return Fit(plain, float(needs.max()))
    if not _frugal(strategy):
        return Fit(None, float(needs.max()))
    everything = estimator.division(strategy).blocks
    least = _needs(estimator, strategy, everything)
    if (least > capacity_bytes).any():
        return Fit(None, float(least.max()))
    own = chunks_of(strategy.schedule, strategy.pipeline_parallel, strategy.chunks)
    short, enough = np.full(len(own), -1), everything[own].sum(axis=1)
    while (enough - short > 1).any():
        middle = (short + enough) // 2
        fits = _needs(estimator, strategy, _spread(middle, own, everything)) <= capacity_bytes
        short, enough = np.where(fits, short, middle), np.where(fits, middle, enough)
    return Fit(_with(strategy, _spread(enough, own, everything)), float(least.max()))


def _frugal(strategy: Strategy) -> bool:
    return strategy.recompute is Recompute.FULL and strategy.recomputed == 0


def _needs(estimator: Estimator, strategy: Strategy, counts: Counts | None = None) -> NDArray[np.float64]:
    """Bytes of every device, with so many blocks of each chunk recomputed."""
    asked = strategy if counts is None else _with(strategy, counts)
    return np.array([part.total_bytes for part in estimator.memory(asked)])


def _with(strategy: Strategy, counts: Counts) -> Strategy:
    return replace(strategy, recomputed=tuple(counts.tolist()))


def _spread(counts: Counts, own: Counts, blocks: Counts) -> Counts:
    """Blocks of every chunk (C,) from those of every device, its first chunks first; of copies, the larger number."""
    found, left = np.zeros(len(blocks), dtype=np.int64), counts.copy()
    for slot in own.T:
        here = np.minimum(left, blocks[slot])
        np.maximum.at(found, slot, here)
        left = left - here
    return found
