"""Collectives and transfers by the ring algorithms, per device, on one network tier.

`payload_bytes` is the buffer of one rank as nccl-tests counts it: the whole vector for an all-reduce,
the whole input of a reduce-scatter, the whole output of an all-gather. Every ring step sends 1/n of it
to one neighbour and costs one latency. Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005.
Bandwidths are per device and direction. A group of one costs nothing.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class Collective(StrEnum):
    """What a group of devices does together."""

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"


_SWEEPS = {Collective.ALL_REDUCE: 2, Collective.REDUCE_SCATTER: 1, Collective.ALL_GATHER: 1}


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
    time: Floats = wire_bytes(collective, payload_bytes, devices) / np.asarray(
        bandwidth_bytes_per_s, dtype=np.float64
    ) + steps * np.asarray(latency_s, dtype=np.float64)
    return time


def send_s(payload_bytes: ArrayLike, bandwidth_bytes_per_s: ArrayLike, latency_s: ArrayLike) -> Floats:
    """Seconds to send a tensor to one peer."""
    time: Floats = np.asarray(payload_bytes, dtype=np.float64) / np.asarray(
        bandwidth_bytes_per_s, dtype=np.float64
    ) + np.asarray(latency_s, dtype=np.float64)
    return time
