"""Seconds of an iteration by kind of operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.training.device_breakdown import busiest, runs_of_a_chunk
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.workload.work import Pass

_ONE = np.array([0])

_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, slots=True)
class KindTime:
    """Seconds of one kind of operator in an iteration, forward and backward, on the device that has most to do.

    `stall_s`: the part in which arithmetic waits for HBM. On SIMT chips a kernel whose bytes take longer than its
    arithmetic counts whole; on others what its bytes take longer. `global_buffer_s`: the part in which arithmetic waits
    for the global buffer, HBM aside; on SIMT chips it is inside the laws of kernels, so none.
    """

    kind: str
    time_s: float
    stall_s: float
    global_buffer_s: float


def kind_times(costs: Estimator, plan: ParallelPlan) -> tuple[KindTime, ...]:
    """Seconds by kind of operator, the longest first; the sum of `product_s` and `vector_s` of the breakdown."""
    spent: Counter[str] = Counter()
    stalled: Counter[str] = Counter()
    buffered: Counter[str] = Counter()
    for pass_, seconds, experts in _passes(costs, plan):
        shares, *waits = costs.once(("shares", id(pass_), experts), partial(_shares, costs, pass_, experts))
        for work, share, hbm, buffer in zip(pass_.works, shares, *waits, strict=True):
            spent[work.kind] += share * seconds
            stalled[work.kind] += share * hbm * seconds
            buffered[work.kind] += share * buffer * seconds
    longest = sorted((kind for kind in spent if spent[kind] > 0), key=lambda kind: (-spent[kind], kind))
    return tuple(KindTime(kind, spent[kind], stalled[kind], buffered[kind]) for kind in longest)


def _passes(costs: Estimator, plan: ParallelPlan) -> Iterator[tuple[Pass, float, bool]]:
    """Passes of the busiest device's layers, their seconds in an iteration, and whether they have experts."""
    layers, division, loads = (
        costs.layer_costs(plan),
        costs.division(plan),
        costs.stage_times(plan),
    )
    placed, runs = costs.placed(plan), runs_of_a_chunk(plan, costs.microbatches(plan))
    own = placed[busiest(loads, placed)]
    mine = np.concatenate([np.array(layers.chain.index)[division.layers(chunk)] for chunk in own])
    times = np.bincount(mine, minlength=len(layers.chain.layers))
    for side, load, backward in (
        (layers.forward, loads.forward, False),
        (layers.backward, loads.backward, True),
    ):
        alone = times * side.kernels_s
        # What software adds to the device's time lengthens all kernels alike.
        lasting = runs * float(load.kernels_s[own].sum()) / max(float(alone.sum()), _TINY)
        for layer, seconds in zip(layers.chain.layers, (lasting * alone).tolist(), strict=True):
            pass_ = layer.backward if backward else layer.forward
            if pass_ is not None and seconds > 0:
                yield pass_, seconds, layer.expert_parameters > 0


def _shares(costs: Estimator, pass_: Pass, experts: bool) -> tuple[list[float], list[float], list[float]]:
    """Each operator's share of the time of its pass, (O,), and of its own time what waits for HBM, for the buffer."""
    alone = costs.costs.costed(pass_, experts=experts).alone_s[0, : len(pass_.works)]
    found = costs.model.costs(pass_).attribution(_ONE)
    arithmetic = np.maximum(found.compute_s, found.buffer_s)[0]
    waiting = np.maximum(found.hbm_s[0] - arithmetic, 0.0)
    buffer = np.maximum(arithmetic - found.compute_s[0], 0.0)
    longest = found.fill_s[0] + arithmetic + waiting
    hbm, buffered = (
        np.divide(part, longest, out=np.zeros(len(alone)), where=longest > 0) for part in (waiting, buffer)
    )
    shares = alone / max(float(alone.sum()), _TINY)
    return shares.tolist(), hbm.tolist(), buffered.tolist()
