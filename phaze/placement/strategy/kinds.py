"""Computation of an iteration by kind of operator, and how much of it waits for memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from phaze.arrays import Floats
from phaze.placement.strategy.breakdown import busiest, runs_of_a_chunk
from phaze.workload.work import Pass

if TYPE_CHECKING:
    from phaze.placement.strategy.estimate import Estimator
    from phaze.placement.strategy.strategy import Strategy

_ONE = np.array([0])
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, slots=True)
class KindTime:
    """Seconds of one kind of operator in an iteration, forward and backward, on the device that has most to do.

    `stall_s`: the part in which arithmetic waits for HBM. On SIMT chips a kernel whose bytes take longer than its
    arithmetic counts whole; on others what its bytes take longer.
    """

    kind: str
    time_s: float
    stall_s: float


def kind_times(costs: Estimator, strategy: Strategy) -> tuple[KindTime, ...]:
    """By kind of operator, the longest first; the sum of `product_s` and `vector_s` of the breakdown."""
    spent: Counter[str] = Counter()
    stalled: Counter[str] = Counter()
    for pass_, seconds, experts in _passes(costs, strategy):
        shares, waits = _shares(costs, pass_, experts=experts)
        for work, share, wait in zip(pass_.works, shares.tolist(), waits.tolist(), strict=True):
            spent[work.kind] += share * seconds
            stalled[work.kind] += share * wait * seconds
    longest = sorted((kind for kind in spent if spent[kind] > 0), key=lambda kind: (-spent[kind], kind))
    return tuple(KindTime(kind, spent[kind], stalled[kind]) for kind in longest)


def _passes(costs: Estimator, strategy: Strategy) -> Iterator[tuple[Pass, float, bool]]:
    """Passes of the busiest device's layers, their seconds in an iteration, and whether they have experts."""
    figures, division, loads = costs.figures(strategy), costs.division(strategy), costs.loads(strategy)
    placed, runs = costs.placed(strategy), runs_of_a_chunk(strategy, costs.microbatches(strategy))
    own = placed[busiest(loads, placed)]
    mine = np.concatenate([np.array(figures.chain.index)[division.layers(chunk)] for chunk in own])
    times = np.bincount(mine, minlength=len(figures.chain.layers))
    for side, load, backward in (
        (figures.forward, loads.forward, False),
        (figures.backward, loads.backward, True),
    ):
        alone = times * side.kernels_s
        # What software adds to the device's time lengthens all kernels alike.
        lasting = runs * float(load.kernels_s[own].sum()) / max(float(alone.sum()), _TINY)
        for layer, seconds in zip(figures.chain.layers, (lasting * alone).tolist(), strict=True):
            pass_ = layer.backward if backward else layer.forward
            if pass_ is not None and seconds > 0:
                yield pass_, seconds, layer.expert_parameters > 0


def _shares(costs: Estimator, pass_: Pass, *, experts: bool) -> tuple[Floats, Floats]:
    """Each operator's share of the time of its pass, (O,), and the share of its own that waits for HBM."""
    alone = costs.costs.costed(pass_, experts=experts).alone_s[0, : len(pass_.works)]
    found = costs.model.costs(pass_).attribution(_ONE)
    arithmetic = np.maximum(found.compute_s, found.buffer_s)[0] + found.fill_s[0]
    longest = np.maximum(arithmetic, found.hbm_s[0])
    waits = np.divide(longest - arithmetic, longest, out=np.zeros(len(alone)), where=longest > 0)
    return alone / max(float(alone.sum()), _TINY), waits
