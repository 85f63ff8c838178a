"""One side of a pair of chips: what pools of one role take at least on many architectures, and what that leaves.

A side is told by device seconds of a request, by replica shape and architecture. Whatever the other side is, it serves
no more than all of its architectures at best on the devices that are left (`Reach`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.explore.services.pair_worth import PairWorth
from phaze.parallel.serving.bounds.service_bounds import ServiceBounds, Shape
from phaze.parallel.serving.serving_plan import Role
from phaze.tolerances import BOUND_ROUNDING


@dataclass(frozen=True)
class Reach:
    """The best of one side on so many devices or fewer, by their number, (devices + 1,).

    `requests_per_s`: at most; `price`: of a request at least, infinite where nothing serves.
    """

    requests_per_s: Floats
    price: Floats

    def joined(self, other: Reach) -> Reach:
        """The better of both."""
        return Reach(
            np.maximum(self.requests_per_s, other.requests_per_s), np.minimum(self.price, other.price)
        )


@dataclass
class PoolSide:
    """Pools of one role on some architectures: `rows` (R,), their places among all.

    `device_s` (S, R): device seconds of a request at least on replicas of each of the `shapes`, infinite where there is
    nothing to hope for; `device_price` (S, R), `joules` (R,): what a device second takes, and events of a request.
    `level` (R,): how closely `device_s` was looked at.
    """

    worth: PairWorth
    role: Role
    shapes: Sequence[Shape]
    rows: Rows
    device_s: Floats
    level: Rows

    def __post_init__(self) -> None:
        """Prices of all architectures."""
        each = [self.worth.device_price(shape, self.rows) for shape in self.shapes]
        self.device_price = np.stack(each) if each else np.zeros(self.device_s.shape)
        self.joules = self.worth.least_joules(self.role, self.rows)

    @classmethod
    def of(
        cls, worth: PairWorth, role: Role, shapes: Sequence[Shape], rows: Rows, rates: Floats, level: int
    ) -> PoolSide:
        """Of replicas that serve so many requests per second at most, (S, R)."""
        found = device_seconds(worth, shapes, rates)
        return cls(worth, role, shapes, rows, found, np.full(len(rows), level))

    @classmethod
    def join(
        cls, worth: PairWorth, role: Role, shapes: Sequence[Shape], parts: Sequence[PoolSide]
    ) -> PoolSide:
        """All architectures of some parts of a side."""
        none = np.zeros(0, dtype=np.intp)
        rows, level = (
            np.concatenate([none, *(getattr(p, name) for p in parts)]) for name in ("rows", "level")
        )
        seconds = np.concatenate([np.zeros((len(shapes), 0)), *(p.device_s for p in parts)], axis=1)
        return cls(worth, role, shapes, rows, seconds, level)

    def keep(self, kept: Rows) -> None:
        """Leave the architectures at other positions out."""
        self.rows, self.level, self.joules = self.rows[kept], self.level[kept], self.joules[kept]
        self.device_s, self.device_price = self.device_s[:, kept], self.device_price[:, kept]

    def prices(self) -> Floats:
        """Of a request at least, (S, R)."""
        energy = self.worth.energy_price(self.rows, self.joules, self.device_s)
        with np.errstate(invalid="ignore"):
            found: Floats = self.device_s * self.device_price + energy
        return found

    def reach(self) -> Reach:
        """The best of all that is there."""
        if not len(self.rows):
            return reach_of(self.worth, self.shapes, *np.full((2, len(self.shapes)), np.inf))
        return reach_of(self.worth, self.shapes, self.device_s.min(axis=1), self.prices().min(axis=1))

    def hopes(self, other: Reach) -> Floats:
        """Worth of the best pair with each shape of each architecture at most, (S, R), beside the other side."""
        prices, found = self.prices(), np.zeros(self.device_s.shape)
        for at, shape in enumerate(self.shapes):
            for hoped in self._hoped(at, shape, prices[at], other):
                np.maximum(found[at], hoped, out=found[at])
        return found * (1 + BOUND_ROUNDING)

    def _hoped(self, at: int, shape: Shape, price: Floats, other: Reach) -> Iterator[Floats]:
        """The same for one shape by the number of its replicas."""
        plans, device_s = self.worth.request.plans, self.device_s[at]
        if plans.traffic.rate_per_s is not None:
            used = np.nan_to_num(device_s * plans.traffic.rate_per_s, posinf=plans.devices + 1.0)
            left = np.floor((plans.devices - used) * (1 + BOUND_ROUNDING) + BOUND_ROUNDING).astype(np.intp)
            beside = np.where(left >= 0, other.price[np.maximum(left, 0)], np.inf)
            yield self.worth.per_request(price + beside)
            return
        energy = self.worth.energy_price(self.rows, self.joules, device_s)
        for devices in pool_sizes(shape, plans.devices):
            left = plans.devices - devices
            served = np.minimum(devices / device_s, other.requests_per_s[left])
            if self.worth.of_all:
                yield self.worth.of_requests(served)
            else:
                with np.errstate(divide="ignore", invalid="ignore"):
                    own = devices * self.device_price[at] / served + energy
                yield np.where(served > 0, self.worth.per_request(own + other.price[left]), 0.0)


def pool_sizes(shape: Shape, devices: int) -> range:
    """Devices of pools of replicas of a shape that leave at least one device."""
    group = shape.devices * shape.together
    return range(group, devices, group)


def device_seconds(worth: PairWorth, shapes: Sequence[Shape], rates: Floats) -> Floats:
    """Device seconds of a request on replicas that serve so many requests per second at most, (S, R).

    For a stream those of all replicas that keep up with it.
    """
    load = worth.request.plans.traffic
    found = np.empty(rates.shape)
    with np.errstate(divide="ignore"):
        for into, shape, each in zip(found, shapes, rates, strict=True):
            if load.rate_per_s is None:
                into[:] = shape.devices / each
            else:
                into[:] = ServiceBounds.needed(each, shape, load.rate_per_s) * shape.devices / load.rate_per_s
    return found


def reach_of(worth: PairWorth, shapes: Sequence[Shape], device_s: Floats, prices: Floats) -> Reach:
    """What shapes reach of which a request takes so many device seconds, and so much, at least, (S,)."""
    plans = worth.request.plans
    rate, every = plans.traffic.rate_per_s, np.arange(plans.devices + 1)
    most, least = np.zeros(len(every)), np.full(len(every), np.inf)
    for shape, seconds, price in zip(shapes, device_s.tolist(), prices.tolist(), strict=True):
        if not np.isfinite(seconds):
            continue
        used = every // (shape.devices * shape.together) * (shape.devices * shape.together)
        if rate is None:
            there = used > 0
            np.maximum(most, used / seconds if seconds else np.inf, out=most)
        else:
            there = every >= seconds * rate * (1 - BOUND_ROUNDING)
            np.maximum(most, np.where(there, rate, 0.0), out=most)
        np.minimum(least, np.where(there, price, np.inf), out=least)
    return Reach(most, least)
