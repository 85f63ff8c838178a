"""The first rung: what no implementation on this hardware can beat.

All units at their peak, every tensor moved once. Products inside a fused kernel need no HBM bytes;
HBM bytes of an operator are those of its tiled products, moved once, and its streamed tensors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phaze.cost.collective import Collective, tier, wire_bytes
from phaze.cost.tiling import compulsory_bytes
from phaze.hardware.derived import hbm_bandwidth_bytes_per_s, macs, vector_alus
from phaze.hardware.network import Network
from phaze.hardware.table import ArchitectureTable
from phaze.workload.work import Pass, Traffic, Unit, Work

Floats = NDArray[np.float64]


def roofline_s(pass_: Pass, table: ArchitectureTable, network: Network) -> Floats:
    """Lower bound in s on the latency of every operator, (A, O), with all cores at its service."""
    clock = np.asarray(table["clock_hz"], dtype=np.float64)
    mac_rate, alu_rate = macs(table) * clock, vector_alus(table) * clock
    hbm_rate = hbm_bandwidth_bytes_per_s(table)
    bounds = np.empty((len(table), len(pass_.works)))
    for o, work in enumerate(pass_.works):
        compute = np.maximum(work.macs / mac_rate, work.vector_cycles / alu_rate)
        bounds[:, o] = np.maximum(compute, _least_bytes(work) / hbm_rate)
        if work.unit is Unit.LINK:
            bounds[:, o] = np.maximum(bounds[:, o], _link_s(work, table, network))
    return bounds


def _least_bytes(work: Work) -> float:
    """HBM bytes of an operator with every tensor moved once."""
    return work.stream_bytes + sum(compulsory_bytes(g) for g in work.gemms if g.traffic is Traffic.TILED)


def _link_s(work: Work, table: ArchitectureTable, network: Network) -> Floats:
    """Bytes of an all-reduce over the bandwidth of its tier, no latency."""
    bandwidth, _ = tier(network, work.link_group, table["link_bandwidth_bytes_per_s"])
    sent = wire_bytes(Collective.ALL_REDUCE, work.link_bytes, work.link_group)
    time: Floats = np.divide(sent, bandwidth, out=np.full(bandwidth.shape, np.inf), where=bandwidth > 0)
    return time
