"""The first rung: what no implementation on this hardware can beat.

All units at their peak, every tensor moved once. Products inside a fused kernel need no HBM bytes;
HBM bytes of an operator are those of its tiled products, moved once, and its streamed tensors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phaze.cost.collective import link_wire_bytes, tier
from phaze.cost.tiling import compulsory_bytes
from phaze.hardware.derived import hbm_bandwidth_bytes_per_s, macs, vector_alus
from phaze.hardware.network import Network
from phaze.hardware.table import ArchitectureTable
from phaze.workload.work import Link, Pass, Traffic, Work

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
        if work.link is not None:
            bounds[:, o] = np.maximum(bounds[:, o], _least_link_s(work.link, table, network))
    return bounds


def _least_bytes(work: Work) -> float:
    """HBM bytes of an operator with every tensor moved once."""
    return work.stream_bytes + sum(compulsory_bytes(g) for g in work.gemms if g.traffic is Traffic.TILED)


def _least_link_s(link: Link, table: ArchitectureTable, network: Network) -> Floats:
    """Bytes of a collective over the bandwidth of its tier, no latency."""
    bandwidth, _ = tier(network, link.group.span, table["link_bandwidth_bytes_per_s"])
    sent = link_wire_bytes(link)
    time: Floats = np.divide(sent, bandwidth, out=np.full(bandwidth.shape, np.inf), where=bandwidth > 0)
    return time
