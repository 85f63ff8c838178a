"""Collectives and transfers by the ring algorithms, per device, on one network tier.

`payload_bytes` is the buffer of one rank as nccl-tests counts it: the whole vector for an all-reduce,
the whole input of a reduce-scatter, the whole output of an all-gather, all that one rank has for the
others (and itself) of an all-to-all. Every ring step sends 1/n of it to one neighbour and costs one
latency; an all-to-all by pairwise exchange does as much. Source: Thakur, Rabenseifner, Gropp, IJHPCA
19(1), 2005. Bandwidths are per device and direction. A group of one costs nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phaze.hardware.network import Network
from phaze.workload.work import Collective, Link

Floats = NDArray[np.float64]

_SWEEPS = {collective: 2 if collective is Collective.ALL_REDUCE else 1 for collective in Collective}


def tier(network: Network, span: int, link_bandwidth_bytes_per_s: ArrayLike) -> tuple[Floats, float]:
    """Bandwidth (one per chip) and latency in s between devices of a group that spans `span` neighbours.

    A group that fits into a scale-up domain stays inside one; a larger one goes at the pace of scale-out.
    """
    links = np.asarray(link_bandwidth_bytes_per_s, dtype=np.float64)
    if span > network.scale_up_devices:
        return np.full(links.shape, network.scale_out_bandwidth_bytes_per_s), network.scale_out_latency_s
    own = network.scale_up_bandwidth_bytes_per_s
    return links if own is None else np.full(links.shape, own), network.scale_up_latency_s


def wire_bytes(collective: Collective, payload_bytes: ArrayLike, devices: ArrayLike) -> Floats:
    """Bytes each device sends (and receives)."""
    count = np.asarray(devices, dtype=np.float64)
    sent: Floats = _SWEEPS[collective] * (count - 1) / count * np.asarray(payload_bytes, dtype=np.float64)
    return sent


def collective_s(
    collective: Collective,
    payload_bytes: ArrayLike,
    devices: ArrayLike,
    bandwidth_bytes_per_s: ArrayLike,
    latency_s: ArrayLike,
) -> Floats:
    """Seconds of a ring collective: bytes on the wire over bandwidth plus one latency per step."""
    steps = _SWEEPS[collective] * (np.asarray(devices, dtype=np.float64) - 1)
    sent = wire_bytes(collective, payload_bytes, devices)
    return _transfer_s(sent, bandwidth_bytes_per_s) + steps * np.asarray(latency_s, dtype=np.float64)


def link_s(link: Link, network: Network, link_bandwidth_bytes_per_s: ArrayLike) -> Floats:
    """Seconds of an operator's collective, on the tier that its group spans."""
    bandwidth, latency_s = tier(network, link.group.span, link_bandwidth_bytes_per_s)
    return collective_s(link.collective, link.payload_bytes, link.group.size, bandwidth, latency_s)


def link_wire_bytes(link: Link) -> float:
    """Bytes that each device sends (and receives) in an operator's collective."""
    return float(wire_bytes(link.collective, link.payload_bytes, link.group.size))


def send_s(payload_bytes: ArrayLike, bandwidth_bytes_per_s: ArrayLike, latency_s: ArrayLike) -> Floats:
    """Seconds to send a tensor to one peer."""
    return _transfer_s(payload_bytes, bandwidth_bytes_per_s) + np.asarray(latency_s, dtype=np.float64)


def _transfer_s(sent_bytes: ArrayLike, bandwidth_bytes_per_s: ArrayLike) -> Floats:
    """Bytes over bandwidth; a chip without links never finishes, unless there is nothing to send."""
    sent = np.asarray(sent_bytes, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sent > 0, sent / np.asarray(bandwidth_bytes_per_s, dtype=np.float64), 0.0)
