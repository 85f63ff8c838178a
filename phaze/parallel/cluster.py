"""The cluster a workload is spread over, and the degrees of parallelism it allows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from phaze.errors import InputError
from phaze.hardware.cluster_network import Network

MOST_DEVICES = 2**20
"""Ten times the largest clusters there are: searches list the numbers of replicas and stages that devices allow."""

MOST_SAMPLES = 2**25
"""Of one iteration: 32 for each of the most devices."""


class Recompute(StrEnum):
    """Activation recompute: activations that are computed again in the backward pass instead of being kept."""

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
        shown = f"{number:,}" if abs(number) < 10**15 else f"some 10^{int(math.log10(abs(number)))}"
        raise InputError(f"there may be from 1 to {most:,} {what}, not {shown}")
