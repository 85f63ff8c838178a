"""Data and pipeline degrees of one chain on one cluster, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from phaze.cost.collective import tier
from phaze.hardware.network import Network
from phaze.placement.cluster import Cluster, FixedDegrees, data_degrees
from phaze.scheduling.passes import NEVER_S
from phaze.workload.work import LayerChain

__all__ = ["NEVER_S", "SCALE_UP", "Options", "in_order", "options", "tier_of"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
SCALE_UP = 0  # the innermost tier


@dataclass(frozen=True, slots=True)
class Options:
    """All (data, pipeline) degrees worth a look, (O,) each; tiers by their positions, from the inside out."""

    data_parallel: IntArray
    stages: IntArray
    microbatches: IntArray
    data_tier: IntArray
    pipeline_tier: IntArray

    @property
    def slots(self) -> IntArray:
        """How many times the slowest stage's load fits into the iteration."""
        return self.microbatches + self.stages - 1

    @property
    def in_flight(self) -> IntArray:
        """The most microbatches a stage holds at once under 1F1B."""
        return np.minimum(self.microbatches, self.stages)

    def take(self, where: NDArray[np.bool_] | NDArray[np.intp]) -> Options:
        """Some of the options."""
        return Options(
            self.data_parallel[where],
            self.stages[where],
            self.microbatches[where],
            self.data_tier[where],
            self.pipeline_tier[where],
        )


def options(cluster: Cluster, chain: LayerChain, fixed: FixedDegrees) -> Options:
    """Every (data, pipeline) choice worth a look, the user's fixed degrees respected.

    Devices are numbered tensor-parallel rank first, then data, then pipeline (Megatron-LM's default order,
    Narayanan et al. SC'21): a group stays in a scale-up domain if the devices it spans do.
    """
    total = cluster.global_batch // chain.microbatch
    if fixed.data_parallel is None:
        pairs = list(data_degrees(cluster.devices, total, _leaving(cluster, chain)))
    else:
        possible = fixed.data_parallel <= min(cluster.devices, total)
        pairs = [(fixed.data_parallel, -(-total // fixed.data_parallel))] if possible else []
    degrees, each = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    deepest = np.minimum(cluster.devices // (degrees * chain.tensor_parallel), len(chain.index))
    d, microbatches = np.repeat(degrees, deepest), np.repeat(each, deepest)
    depth = np.arange(1, len(d) + 1, dtype=np.int64) - np.repeat(np.cumsum(deepest) - deepest, deepest)
    span = chain.tensor_parallel * d
    tiers = spanned(cluster.network, span), spanned(cluster.network, span * depth)
    found = Options(d, depth, microbatches, *tiers)
    return found if fixed.pipeline_parallel is None else found.take(depth == fixed.pipeline_parallel)


def _leaving(cluster: Cluster, chain: LayerChain) -> set[int]:
    """Data degrees from which on some group leaves a domain: it may gain if its links are slow."""
    width, deepest = chain.tensor_parallel, len(chain.index)
    domains = [tier.devices for tier in cluster.network.tiers if tier.devices is not None]
    degrees = {(depth, n // (width * depth) + 1) for n in domains for depth in range(1, deepest + 1)}
    return {d for depth, d in degrees if d * width * depth <= cluster.devices}


def spanned(network: Network, spans: IntArray) -> IntArray:
    """`Network.spanned` of each of some spans."""
    found = np.full(spans.shape, len(network.tiers) - 1, dtype=np.int64)
    for position in reversed(range(len(network.tiers))):
        devices = network.tiers[position].devices
        found[spans <= (np.inf if devices is None else devices)] = position
    return found


def in_order(cluster: Cluster, link_bytes_per_s: FloatArray) -> bool:
    """Whether every tier is at least as fast as the one outside, for every architecture, bandwidth and latency."""
    tiers = [tier_of(cluster, code, link_bytes_per_s) for code in range(len(cluster.network.tiers))]
    return all(
        bool((near >= far).all()) and near_s <= far_s for (near, near_s), (far, far_s) in pairwise(tiers)
    )


def tier_of(cluster: Cluster, code: int, link_bytes_per_s: FloatArray) -> tuple[FloatArray, float]:
    """Bandwidth (A,) and latency in s between devices on one tier."""
    return tier(cluster.network, code, link_bytes_per_s)
