"""The least that iterations take beyond the computation of pipelines, for many strategies at once.

Of devices and groups of layers only distinct ones are looked at, so that pipelines may differ in all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phaze.arrays import Floats
from phaze.placement.pipelines.layout import chunks_of
from phaze.placement.strategy.estimate import Estimator
from phaze.placement.strategy.load import Wires, wires
from phaze.placement.strategy.strategy import Strategy
from phaze.placement.strategy.tail import Held

_LONG_S = 1e30  # computation that any exchange hides behind


def rest_s(estimator: Estimator, pipelines: Sequence[Sequence[Strategy]]) -> list[float]:
    """At most what the fastest strategy takes beyond a pipeline without exchanges of ZeRO, whatever is recomputed.

    Of each of several pipelines, whose strategies differ in ZeRO and order. Passes may be longer than they are known
    to be: the least of what follows them is where they hide most of it, or nothing.
    """
    e, said = estimator, estimator.framework
    strategies = [s for some in pipelines for s in some]
    which = np.repeat(np.arange(len(pipelines)), [len(some) for some in pipelines])
    counts, tied, sizes = _distinct(e, [some[0] for some in pipelines])
    every, experts, whole = np.einsum("nkg,ing->ink", counts, sizes)[:, which]
    held = Held(every - experts - whole, experts, whole, counts.sum(axis=2)[which], tied[which])
    exchanges, none = e.exchanges(*strategies), np.zeros(every.shape)
    total_s = e.tails(exchanges, held, none, none).total_s
    if said.hides_reduction or said.hides_gathers:
        long_s = none + _LONG_S
        total_s = np.minimum(total_s, e.tails(exchanges, held, long_s, long_s).total_s)
    found = total_s.max(axis=1) + said.iteration_s
    if not said.hides_gathers and said.launches_add_up:
        moving = Wires(sizes[:, which], np.arange(sizes.shape[2]), exchanges, said)
        sides = zip(*(wires(s, said, e.rates.wire_bytes) for s in strategies), strict=True)
        groups_s = np.sum([moving.groups_s(side) for side in sides], axis=(0, 1))
        each = [e.microbatches(s) // s.schedule.weight_copies for s in strategies]
        found += each * np.einsum("vkg,vg->vk", counts[which], groups_s).min(axis=1)
    first = np.searchsorted(which, np.arange(len(pipelines)))
    least: list[float] = np.minimum.reduceat(found, first).tolist()
    return least


def _distinct(estimator: Estimator, pipelines: Sequence[Strategy]) -> tuple[Floats, Floats, Floats]:
    """Groups of each kind on distinct devices, (N, K, G), and parameters that these share with another stage, (N, K).

    Last, `LayerFigures.parameters` of the kinds, (3, N, G). Pipelines of fewer kinds than others have some devices
    twice, or groups without parameters.
    """
    each = [_devices(estimator, s) for s in pipelines]
    most = np.max([devices.shape for devices, _ in each], axis=0)
    found, sizes = np.zeros((len(each), *most)), np.zeros((3, len(each), most[1] - 1))
    for row, (devices, own) in enumerate(each):
        found[row, :, : devices.shape[1]] = devices[np.minimum(np.arange(most[0]), len(devices) - 1)]
        sizes[:, row, : own.shape[1]] = own
    return found[..., 1:], found[..., 0], sizes


def _devices(estimator: Estimator, strategy: Strategy) -> tuple[Floats, Floats]:
    """The same of one pipeline, tied parameters in front of the groups."""
    s, figures = strategy, estimator.figures(strategy)
    sizes, which = figures.sizes(s.grain)
    chunks = np.add.reduceat(np.eye(sizes.shape[1])[which], estimator.division(s).first_groups, axis=0)
    devices = chunks[chunks_of(s.schedule, s.pipeline_parallel, s.chunks)].sum(axis=1)
    tied = np.zeros((len(devices), 1))
    tied[[0, -1]] = figures.tied_parameters
    rows = np.concatenate([tied, devices], axis=1).tolist()
    return np.array([*dict.fromkeys(map(tuple, rows))]), sizes
