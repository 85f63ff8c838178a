"""The cluster a workload is spread over, and the degrees of parallelism it allows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from phaze.errors import InputError
from phaze.hardware.network import Network

MOST_DEVICES = 2**20
"""Ten times the largest clusters there are: searches list the numbers of replicas and stages that devices allow."""

MOST_SAMPLES = 2**25
"""Of one iteration: 32 for each of the most devices."""


class Recompute(StrEnum):
    """Which activations are computed again in the backward pass instead of being kept."""

    NONE = "none"
    FULL = "full"  # only the input of every layer is kept
    SELECTIVE = "selective"  # attention keeps nothing between its inputs and its result


@dataclass(frozen=True, slots=True)
class Cluster:
    """`devices` accelerators on one network, working on `global_batch` samples per iteration.

    Raises InputError for more of either than anybody has, so that no work or memory grows without bound.
    """

    devices: int
    global_batch: int
    network: Network

    def __post_init__(self) -> None:
        """Hold both numbers to their ranges."""
        check_count(self.devices, MOST_DEVICES, "devices")
        check_count(self.global_batch, MOST_SAMPLES, "samples in an iteration")


def check_count(number: int, most: int, what: str) -> None:
    """Raises InputError for a number of something that is not from 1 to `most`."""
    if not 1 <= number <= most:
        told = f"{number:,}" if abs(number) < 10**15 else f"some 10^{int(math.log10(abs(number)))}"
        raise InputError(f"there may be from 1 to {most:,} {what}, not {told}")


@dataclass(frozen=True, slots=True)
class FixedDegrees:
    """Degrees the user has fixed; None leaves one free."""

    data_parallel: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    microbatch: int | None = None
    recompute: Recompute | None = None


def data_degrees(devices: int, microbatches: int, special: Iterable[int] = ()) -> Iterator[tuple[int, int]]:
    """Pairs (data degree d, microbatches per pipeline), ascending: one per distinct value of ceil(microbatches / d).

    Only the smallest d of each distinct value can be optimal as long as groups stay on the same network tier: a
    larger one leaves fewer devices per pipeline and a costlier gradient reduction for the same number of
    microbatches. `special` degrees are given too, as far as they are possible.
    """
    most = min(devices, microbatches)
    found = {d for d in special if 1 <= d <= most}
    d = 1
    while d <= most:
        found.add(d)
        each = -(-microbatches // d)
        if each == 1:
            break
        d = -(-microbatches // (each - 1))
    yield from ((d, -(-microbatches // d)) for d in sorted(found))


def busy_share(cluster: Cluster, microbatch: int, width: int) -> float:
    """The largest share of all devices that are at work at a time, on average, whatever the data and pipeline degrees.

    An iteration has as many slots as a pipeline has microbatches and stages, less one, and a stage works in one per
    microbatch. Of pipelines as many, deeper ones keep more devices at work; so layers need not be counted.
    """
    total = cluster.global_batch // microbatch
    degree = np.arange(1, min(cluster.devices // width, total) + 1)
    stages, each = cluster.devices // (degree * width), -(-total // degree)
    share = width * stages * total / (cluster.devices * (each + stages - 1))
    return float(share.max(initial=0.0))
