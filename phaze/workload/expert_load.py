"""Uneven load of experts: how wanted each one is, which device has which, and what the fullest device has to do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heapreplace

import numpy as np

from phaze.arrays import Floats
from phaze.errors import InputError
from phaze.tolerances import LAST_DIGITS

MOST_SKEW = 4.0
"""Of an exponent; the most wanted of 256 experts then has nine tokens in ten, which no router has."""
MOST_REDUNDANT = 4096
"""Copies of experts, in all."""


@dataclass(frozen=True, slots=True)
class Busiest:
    """Experts of the devices with most of each: places for experts, rows of them, and experts that have a row."""

    places: int
    rows: float
    reached: int


@dataclass(frozen=True, slots=True)
class ExpertLoad:
    """Load of experts by a power law: the r-th most wanted expert is wanted as r^-`skew` (Zipf's law).

    `redundant`: copies of experts beyond one of each, in all; the most wanted ones have them, and experts are dealt to
    devices by their load. None: no copies, and experts stay on the devices where they are numbered, without regard to
    load. Raises InputError for values that make no sense.
    """

    skew: float
    redundant: int | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        if not 0 < self.skew <= MOST_SKEW:
            raise InputError(
                f"the skew of experts is {self.skew:g}; it must be above 0 and at most {MOST_SKEW:g}"
            )
        if self.redundant is not None and not 0 <= self.redundant <= MOST_REDUNDANT:
            raise InputError(f"redundant experts are {self.redundant}; they must be 0 to {MOST_REDUNDANT:,}")

    def chances(self, experts: int, chosen: int) -> Floats:
        """Chance that a token is sent to each expert, (experts,), falling; `chosen` in sum, none above 1."""
        wanted = np.arange(1.0, experts + 1) ** -self.skew
        for certain in range(chosen):  # the first ones have every token
            rest = wanted[certain:] * ((chosen - certain) / wanted[certain:].sum())
            if rest[0] <= 1:
                return np.concatenate([np.ones(certain), rest])
        return np.concatenate([np.ones(chosen), np.zeros(experts - chosen)])

    def places(self, experts: int, devices: int) -> int:
        """Places for experts and copies of them on all devices together, as many on each."""
        if devices == 1 or self.redundant is None:
            return experts
        return -(-(experts + self.redundant) // devices) * devices

    def busiest(self, experts: int, chosen: int, tokens: int, devices: int) -> Busiest:
        """What devices with their part of the experts have to do for so many tokens of all of them together, at most.

        Rows of a device are a sum of chances; an expert has a row with chance 1 - (1 - p)^tokens. Most rows and most
        experts may be on different devices: the slowest one takes as long as the longer of both.
        """
        chances = _dealt(self, experts, chosen, devices)
        with np.errstate(divide="ignore"):
            hit = -np.expm1(tokens * np.log1p(-chances))
        reached = math.ceil(float(hit.sum(axis=1).max()) * (1 - LAST_DIGITS))
        return Busiest(chances.shape[1], tokens * float(chances.sum(axis=1).max()), max(1, reached))


@lru_cache(maxsize=1024)
def _dealt(load: ExpertLoad, experts: int, chosen: int, devices: int) -> Floats:
    """Chance that a token is sent to each place of each device, (devices, places); 0 for a place that is empty.

    As numbered, the most wanted expert meets an even choice of the others: the fullest device alone, (1, places).
    """
    chances = load.chances(experts, chosen)
    if devices == 1:
        return chances[None, :]
    if load.redundant is None:
        beside = -(-experts // devices) - 1
        others = (1 + (experts - 1) * (np.arange(beside) + 0.5) / max(beside, 1)).astype(np.intp)
        return chances[None, [0, *others]]
    places = load.places(experts, devices)
    return _packed(copied(chances, places, devices), places // devices, devices)


def copied(chances: Floats, places: int, devices: int) -> list[tuple[float, int]]:
    """Chance of every copy and its expert: places beyond the experts go to whoever has most for each of its copies.

    No expert has two copies on one device. DeepSeek's expert-parallel load balancer (github.com/deepseek-ai/EPLB,
    `replicate_experts`).
    """
    counts = np.ones(len(chances), dtype=np.intp)
    heap = [(-chance, at) for at, chance in enumerate(chances.tolist())]
    heapify(heap)
    for _ in range(min(places, len(chances) * devices) - len(chances)):
        _, at = heap[0]
        counts[at] += 1
        each = -chances[at] / counts[at] if counts[at] < devices else 0.0
        heapreplace(heap, (float(each), at))
    return [(float(chances[at] / n), at) for at, n in enumerate(counts.tolist()) for _ in range(n)]


def _packed(copies: list[tuple[float, int]], places: int, devices: int) -> Floats:
    """Copies on devices, (devices, places): each, largest first, to the least loaded one with a place and none of it.

    (`balanced_packing` there.)
    """
    found, filled, loads = np.zeros((devices, places)), [0] * devices, [0.0] * devices
    held: list[set[int]] = [set() for _ in range(devices)]
    for chance, expert in sorted(copies, key=lambda copy: (-copy[0], copy[1])):
        free = [d for d in range(devices) if filled[d] < places]
        at = min(free, key=lambda d: (expert in held[d], loads[d], filled[d]))
        found[at, filled[at]] = chance
        filled[at] += 1
        loads[at] += chance
        held[at].add(expert)
    return found
