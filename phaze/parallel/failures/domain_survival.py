"""Survival of replicas where devices of scale-up domains are out: dropped, or run by narrower groups.

A domain of d devices holds floor(d / w) groups of w devices, any of them: with k devices out it has floor((d - k) / w)
whole ones, and one narrower group of what is left. Groups of the whole cluster are interchangeable, so that those which
miss devices are packed into the fewest replicas (NTP, arXiv 2504.06095).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import floor, gcd

import numpy as np

from phaze.arrays import Floats, Integers

SURE = 0.99
"""Share of the time in which spares are to be enough."""

_POWER = ((1.0, 1.0), (1.1, 1 - 0.028), (1.2, 1 - 0.065), (1.3, 1 - 0.102))
"""Power, and performance per watt at it, over those at the usual clock: NTP gives those of 1.1 and 1.2, and 1.3 as the
cap, where the last step goes on as it is."""

FASTEST = max(power * per_watt for power, per_watt in _POWER)
"""Speed of a device at the cap of its power, over its usual one."""


class OnFailure(StrEnum):
    """What becomes of a replica with devices out."""

    DROP = "drop"  # it waits for their repair
    NTP = "ntp"  # its groups are narrower, and its share of the batch smaller
    NTP_POWER = "ntp-power"  # the same, with the clocks raised within a power budget


def kept_share(policy: OnFailure, width: int, missing: int, batch: int) -> float:
    """Share of its `batch` samples that a replica runs, of whose groups of `width` one misses some devices.

    floor(batch x speed) / batch, where speed = (width - missing) / width, at raised clocks up to 17 % more.
    """
    if policy is OnFailure.DROP or missing >= width:
        return float(missing == 0)
    speed = (width - missing) / width
    if policy is OnFailure.NTP_POWER:
        speed = min(1.0, speed * FASTEST)
    return floor(batch * speed * (1 + 1e-12)) / batch


@dataclass(frozen=True)
class Replicas:
    """Replicas of `stages` groups of `width` devices each, with `batch` samples."""

    count: int
    stages: int
    width: int
    batch: int

    @property
    def groups(self) -> int:
        """Groups of all of them."""
        return self.count * self.stages


@dataclass(frozen=True)
class Domains:
    """Scale-up domains of a cluster; `out`: probability that 0, 1, ... devices of one are out, (size + 1,).

    Of a cluster whose devices no domain size divides the last one is smaller: `rest_out`, (rest + 1,).
    """

    count: int
    out: Floats
    rest_out: Floats

    @property
    def size(self) -> int:
        """Devices of a domain."""
        return len(self.out) - 1

    @property
    def whole(self) -> float:
        """Probability that all devices of a domain are there: (1 - f)^size of independent ones."""
        return float(self.out[0])

    @property
    def devices_out(self) -> float:
        """Share of devices that are out."""
        return float(np.arange(len(self.out)) @ self.out) / self.size

    def joined(self, times: int) -> Domains:
        """So many neighbours as one domain; the smaller last one is left out of it."""
        out = np.ones(1)
        for _ in range(times):
            out = np.convolve(out, self.out)
        return Domains(self.count // times, out, np.ones(1))


@dataclass(frozen=True)
class Survival:
    """Replicas on the domains of a cluster; groups that these have beyond those of the replicas are spares."""

    domains: Domains
    replicas: Replicas
    policy: OnFailure = OnFailure.DROP

    @cached_property
    def kept(self) -> float:
        """Expected share of throughput that is kept, spares used first: exact for independent domains."""
        before, kept = 1.0, 1.0
        for missing, share in self._levels:
            kept -= (before - share) * self._replicas_hit(missing)
            before = share
        return max(kept, 0.0)

    @cached_property
    def spare_groups(self) -> int:
        """Fewest spare groups with which all replicas are whole, or keep their batch, in 99 % of the time."""
        if not self._levels:
            return 0
        sure = np.cumsum(self._hit(self._levels[0][0])) >= SURE
        return int(np.argmax(sure))

    @cached_property
    def _levels(self) -> list[tuple[int, float]]:
        """Numbers of missing devices from which on a replica keeps less, and the share that it keeps."""
        found, before, width = [], 1.0, self.replicas.width
        for missing in range(1, width + 1):
            share = kept_share(self.policy, width, missing, self.replicas.batch)
            if share < before:
                found.append((missing, share))
                before = share
        return found

    @cached_property
    def _domains(self) -> Domains:
        """Domains that groups do not reach beyond: those of the cluster, or some of them together."""
        width, one = self.replicas.width, self.domains
        groups = one.count * (one.size // width) + (len(one.rest_out) - 1) // width
        fits = groups >= self.replicas.groups
        return one if fits else one.joined(min(width // gcd(width, one.size), one.count))

    def _replicas_hit(self, missing: int) -> float:
        """Expected share of replicas with a group that misses so many devices or more."""
        pmf, r = self._hit(missing), self.replicas
        spares = len(pmf) - 1 - r.groups
        hit = np.maximum(np.arange(len(pmf)) - max(spares, 0), 0)
        return float(pmf @ np.minimum(-(-hit // r.stages), r.count)) / r.count

    def _hit(self, missing: int) -> Floats:
        """Probability that 0, 1, ... groups of the cluster miss so many devices or more."""
        domains = self._domains
        each = _groups_missing(len(domains.out) - 1, self.replicas.width, missing)
        rest = _groups_missing(len(domains.rest_out) - 1, self.replicas.width, missing)
        many = _powered(_counted(each, domains.out), domains.count)
        return np.convolve(many, _counted(rest, domains.rest_out))


def _groups_missing(size: int, width: int, missing: int) -> Integers:
    """Groups of a domain that miss so many devices or more where 0, 1, ... of them are out, (size + 1,)."""
    left = size - np.arange(size + 1)
    short = size // width - left // width
    narrower = (short > 0) & (left % width > width - missing)  # one of them misses fewer
    found: Integers = short - narrower
    return found


def _counted(values: Integers, pmf: Floats) -> Floats:
    """Probability of each value."""
    found: Floats = np.bincount(values, weights=pmf).astype(np.float64)
    return found


def _powered(pmf: Floats, times: int) -> Floats:
    """Probability of the sum of so many independent values: powers by squaring, what rounds to nothing cut off."""
    found, power = np.ones(1), pmf
    while times:
        if times & 1:
            found = _convolved(found, power)
        times >>= 1
        if times:
            power = _convolved(power, power)
    return found


def _convolved(one: Floats, other: Floats) -> Floats:
    size = len(one) + len(other) - 1
    if size < 512:
        return np.convolve(one, other)
    product = np.fft.rfft(one, size) * np.fft.rfft(other, size)
    return np.maximum(np.fft.irfft(product, size), 0.0)
