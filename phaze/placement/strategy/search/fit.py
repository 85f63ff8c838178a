"""The least that has to be recomputed for strategies to fit in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from phaze.placement.cluster import Recompute
from phaze.placement.pipelines.held import held_peak
from phaze.placement.pipelines.layout import chunks_of
from phaze.placement.strategy.estimate import Estimator
from phaze.placement.strategy.needs import ChunkNeeds, recomputed
from phaze.placement.strategy.strategy import Strategy, Zero

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """A strategy that fits, or none; `least_bytes`: of its fullest device, with the recompute that helps most.

    `least_host_bytes`: the same in the memory of its host, where that alone is too small.
    """

    strategy: Strategy | None
    least_bytes: float
    least_host_bytes: float = inf


def fits(estimator: Estimator, strategy: Strategy, zeros: Sequence[Zero], capacity_bytes: float) -> list[Fit]:
    """For each of what ranks may divide, the fewest blocks of every device recomputed that make the strategy fit.

    What it leaves to the hosts has to fit there, too.

    Blocks recompute where it asks for full recompute of none of them; others fit as they are or not at all. Devices
    recompute from their first chunk on, which keeps the most microbatches. Fewer blocks never take longer, and no
    device gains by what another recomputes, so that no other choice of blocks alike is faster.
    """
    s = strategy
    own = chunks_of(s.schedule, s.pipeline_parallel, s.chunks)
    blocks = estimator.division(s).blocks
    frugal = s.recompute is Recompute.FULL and s.recomputed == 0
    most = int(blocks[own].sum(axis=1).max()) if frugal else 0
    choices = _spread(np.broadcast_to(np.arange(most + 1)[:, None], (most + 1, len(own))), own, blocks)
    needs, hosts = _needs(estimator, s, zeros, choices if frugal else None)
    found = []
    for zero, need, host in zip(zeros, needs, hosts, strict=True):
        fitting = (need <= capacity_bytes) & (host <= estimator.host_capacity_bytes(s))
        least = float(need.min(axis=0).max())
        if not fitting.any(axis=0).all():
            found.append(Fit(None, least, float(host.min(axis=0).max()) if least <= capacity_bytes else inf))
            continue
        fewest = fitting.argmax(axis=0)
        found.append(Fit(_with(replace(s, zero=zero), _spread(fewest, own, blocks), frugal), least))
    return found


def _needs(
    estimator: Estimator, strategy: Strategy, zeros: Sequence[Zero], choices: Counts | None
) -> tuple[Floats, Floats]:
    """Bytes on every device, and in its host (zeros, N, p), under N choices of blocks that recompute, (N, C).

    None: the strategy's own.
    """
    s, division = strategy, estimator.division(strategy)
    again = recomputed(division, s)[None] if choices is None else division.first_blocks(choices)
    needs = ChunkNeeds.of(estimator.needs(s), division, again)
    own = chunks_of(s.schedule, s.pipeline_parallel, s.chunks)
    held = held_peak(s.schedule, s.pipeline_parallel, estimator.microbatches(s), s.chunks)
    memories = [estimator.memory_of(replace(s, zero=zero), needs) for zero in zeros]
    fixed = np.array([memory.fixed_bytes(own) for memory in memories])
    kept, working = memories[0].activations_bytes(own, held)
    host = np.array([np.zeros((len(again), 1)) + memory.host_bytes(own, held) for memory in memories])
    return fixed[:, None] + (kept + working), host


def _with(strategy: Strategy, counts: Counts, frugal: bool) -> Strategy:
    if not frugal:
        return strategy
    if not counts.any():
        return replace(strategy, recompute=Recompute.NONE)
    return replace(strategy, recomputed=tuple(counts.tolist()))


def _spread(counts: Counts, own: Counts, blocks: Counts) -> Counts:
    """Blocks of every chunk (..., C) from those of every device (..., p), its first chunks first.

    Of the copies of a chunk, the larger number.
    """
    found, left = np.zeros((len(blocks), *counts.shape[:-1]), dtype=np.int64), counts.T
    for slot in own.T:
        here = np.minimum(left.T, blocks[slot]).T
        np.maximum.at(found, slot, here)
        left = left - here
    return found.T
