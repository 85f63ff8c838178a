"""Split of a batch among instances of a model that run side by side on the cores of one host (Packrat, 2311.18174).

With L[t][b] the seconds of one instance that has t cores and b samples, as somebody measured it, the least seconds of
B samples on T cores are

    opt[T][B] = min over t, b of max(opt[T - t][B - b], L[t][b]),

with cores left idle where that is no slower (more cores for one instance may be slower, and Packrat, which has to use
all of them, is then slower with more).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from phaze.solvers.arrays import Floats, Integers


@dataclass(frozen=True)
class InstanceProfile:
    """One instance that was measured: its cores, its samples, and its seconds for them."""

    cores: int
    batch: int
    latency_s: float

    def __post_init__(self) -> None:
        """Check the numbers. ValueError where one is not above zero."""
        if min(self.cores, self.batch) < 1 or not 0 < self.latency_s < math.inf:
            raise ValueError("an instance has cores, samples and seconds above zero")


@dataclass(frozen=True)
class InstanceSplit:
    """Instances, each with how many of it there are, and the seconds of the slowest; infinite without any."""

    latency_s: float
    instances: tuple[tuple[InstanceProfile, int], ...] = ()

    @property
    def cores(self) -> int:
        """Cores that some instance has."""
        return sum(one.cores * count for one, count in self.instances)


def split_batch(profiles: Sequence[InstanceProfile], cores: int, batch: int) -> InstanceSplit:
    """The instances that together run a batch in the least time on so many cores; of these, those with most cores last.

    Exact. No instances where no sum of measured batches is the batch on these cores.
    """
    able = [one for one in profiles if one.cores <= cores and one.batch <= batch]
    unit = math.gcd(batch, *(one.batch for one in able))
    least, last = _table(able, cores, batch // unit, unit)
    if not math.isfinite(least[cores, -1]):
        return InstanceSplit(math.inf)
    found: Counter[int] = Counter()
    left, rest = cores, batch // unit
    while rest:
        number = int(last[left, rest])
        if number < 0:
            left -= 1
            continue
        found[number] += 1
        left, rest = left - able[number].cores, rest - able[number].batch // unit
    ordered = sorted(found, key=lambda number: (able[number].cores, able[number].batch))
    return InstanceSplit(float(least[cores, -1]), tuple((able[number], found[number]) for number in ordered))


def _table(able: Sequence[InstanceProfile], cores: int, units: int, unit: int) -> tuple[Floats, Integers]:
    """Least seconds (T + 1, B + 1) in units of samples, and the instance that was added last; -1: a core is idle."""
    least = np.full((cores + 1, units + 1), np.inf)
    last = np.full(least.shape, -1, dtype=np.int64)
    least[:, 0] = 0.0
    for t in range(1, cores + 1):
        least[t] = least[t - 1]
        for b in range(1, units + 1):
            for number, one in enumerate(able):
                before = b - one.batch // unit
                if one.cores <= t and before >= 0:
                    seconds = max(least[t - one.cores, before], one.latency_s)
                    if seconds < least[t, b]:
                        least[t, b], last[t, b] = seconds, number
    return least, last
