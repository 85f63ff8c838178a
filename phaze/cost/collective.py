"""Collectives and transfers: seconds of the fastest algorithm on a network, per device.

`payload_bytes` is the buffer of one rank as nccl-tests counts it: the whole vector for an all-reduce,
the whole input of a reduce-scatter, the whole output of an all-gather, all that one rank has for the
others (and itself) of an all-to-all, the message of a send. Bandwidths are per device and direction. A group of
one costs nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from phaze.arrays import Floats
from phaze.cost.algorithms import sweeps
from phaze.cost.exchange import fastest_s, pace, transfer_s
from phaze.cost.group import levels
from phaze.hardware.network import Network
from phaze.workload.work import Collective, Link


def tier(network: Network, position: int, link_bandwidth_bytes_per_s: ArrayLike) -> tuple[Floats, float]:
    """Bandwidth (one per chip) that is reached and latency in s on one tier, counted from the inside."""
    links = np.asarray(link_bandwidth_bytes_per_s, dtype=np.float64)
    spanned = network.tiers[position]
    own = spanned.bandwidth_bytes_per_s
    reached = spanned.law.efficiency / spanned.oversubscription
    return (links if own is None else np.full(links.shape, own)) * reached, spanned.law.step_s


def wire_bytes(collective: Collective, payload_bytes: ArrayLike, devices: ArrayLike) -> Floats:
    """Bytes each device sends (and receives), without help from the switches."""
    count = np.asarray(devices, dtype=np.float64)
    whole = np.asarray(payload_bytes, dtype=np.float64)
    if collective is Collective.SEND_RECV:
        return whole
    sent: Floats = sweeps(collective) * (count - 1) / count * whole
    return sent


def collective_s(
    collective: Collective,
    payload_bytes: ArrayLike,
    devices: ArrayLike,
    bandwidth_bytes_per_s: ArrayLike,
    latency_s: ArrayLike,
) -> Floats:
    """Seconds of a ring collective on one tier: bytes on the wire over bandwidth plus one latency per step."""
    steps = sweeps(collective) * (np.asarray(devices, dtype=np.float64) - 1)
    sent = wire_bytes(collective, payload_bytes, devices)
    return transfer_s(sent, bandwidth_bytes_per_s) + steps * np.asarray(latency_s, dtype=np.float64)


def least_link_s(link: Link, network: Network, link_bandwidth_bytes_per_s: ArrayLike) -> Floats:
    """Seconds that no algorithm beats: what must cross each tier over its bandwidth, no latency."""
    links = np.asarray(link_bandwidth_bytes_per_s, dtype=np.float64)
    least, size = np.zeros(links.shape), link.group.size
    for level in levels(network, size, link.group.stride):
        if link.collective is Collective.ALL_TO_ALL:
            crossing = (size - level.below) / size
        elif link.collective is Collective.SEND_RECV:
            crossing = float(level.domains == 1)
        else:
            crossing = sweeps(link.collective) * (level.members - 1) / level.members / level.below
            reduced = link.collective is Collective.ALL_REDUCE and level.tier.in_network
            crossing = min(crossing, 1 / level.below) if reduced else crossing
        sent = crossing * link.payload_bytes
        least = np.maximum(least, transfer_s(sent, pace(level, link.collective, links)))
    return least


def link_s(link: Link, network: Network, link_bandwidth_bytes_per_s: ArrayLike) -> Floats:
    """Seconds of an operator's collective by the fastest algorithm."""
    links = np.asarray(link_bandwidth_bytes_per_s, dtype=np.float64)
    group = link.group
    return fastest_s(link.collective, link.payload_bytes, network, links, group.size, group.stride)


def link_wire_bytes(link: Link) -> float:
    """Bytes that each device sends (and receives) in an operator's collective."""
    return float(wire_bytes(link.collective, link.payload_bytes, link.group.size))


def send_s(payload_bytes: ArrayLike, bandwidth_bytes_per_s: ArrayLike, latency_s: ArrayLike) -> Floats:
    """Seconds to send a tensor to one peer."""
    return transfer_s(payload_bytes, bandwidth_bytes_per_s) + np.asarray(latency_s, dtype=np.float64)
