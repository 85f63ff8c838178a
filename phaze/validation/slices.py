"""Slices of TPU pods: chips that inter-chip links join, and the data-centre network between slices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from phaze.hardware.architecture import Architecture
from phaze.hardware.network import Network, load_network

_PODS: Mapping[str, str] = MappingProxyType(
    {
        "tpuv4": "tpu-v4-pod",
        "tpuv5e": "tpu-v5e-pod",
        "tpuv5p": "tpu-v5p-pod",
        "tpuv6e": "tpu-v6e-pod",
        "tpuv7": "tpu-v7-pod",
        "h100": "hgx-h100",
        "a100-80gb": "hgx-a100",
    }
)
_CUBE = 4
"""Chips along a side of the cubes that slices of three-dimensional pods are put together from."""


def slice_network(chip: Architecture, chips: int) -> Network | None:
    """The network of slices of so many chips; None for chips that no published run was made on.

    A slice of a three-dimensional pod is a torus of its own, as near to a cube as it can be; of a two-dimensional
    pod it is a part of the pod's.
    """
    name = _PODS.get(chip.name)
    if name is None:
        return None
    pod = load_network(name)
    inner, *outer = pod.tiers
    if len(inner.dims) != 3:
        return pod
    own = inner.model_copy(update={"devices": chips, "dims": extents(chips)})
    return pod.model_copy(update={"tiers": (own, *outer)})


def least_slices(chip: Architecture, chips: int) -> int:
    """Slices that so many chips make where nobody says how many: as few as pods are large."""
    name = _PODS.get(chip.name)
    pod = None if name is None else load_network(name).tiers[0]
    torus = pod is not None and bool(pod.dims)
    return -(-chips // (pod.devices or chips)) if pod is not None and torus else 1


def extents(chips: int) -> tuple[int, int, int]:
    """Sides of a slice, ascending: whole cubes where it has any, doubled or tripled along the shortest."""
    cubes, rest = divmod(chips, _CUBE**3)
    sides = [1, 1, 1] if rest else [_CUBE] * 3
    for factor in reversed(_factors(chips if rest else cubes)):
        sides.sort()
        sides[0] *= factor
    a, b, c = sorted(sides)
    return a, b, c


def _factors(number: int) -> list[int]:
    """Prime factors, ascending."""
    found, divisor = [], 2
    while divisor <= math.isqrt(number):
        if number % divisor:
            divisor += 1
        else:
            found.append(divisor)
            number //= divisor
    return [*found, number] if number > 1 else found
