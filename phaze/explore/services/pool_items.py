"""Pools of one role on one architecture, worked out exactly, and pairs of such pools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, product

import numpy as np

from phaze.arrays import Floats
from phaze.explore.services.exact_services import ExactServices
from phaze.explore.services.pair_worth import PairWorth
from phaze.explore.services.pool_side import pool_sizes
from phaze.parallel.serving.bounds.service_bounds import Shape
from phaze.parallel.serving.pools.disaggregated_pools import paired
from phaze.parallel.serving.pools.unlike_pools import handing_over
from phaze.parallel.serving.replicas.replica_offers import Offers, ServingChoice, best_offer
from phaze.parallel.serving.serving_plan import Role
from phaze.tolerances import BOUND_ROUNDING


@dataclass(frozen=True)
class PoolItem:
    """Replicas of a shape of one architecture in a pool: their offers, and what a request takes of them at least.

    `device_s`: device seconds where nothing waits for caches that are handed over; `device_price` of such a second, and
    `energy_price` of the events of a request at the offer of the fewest joules.
    """

    exact: ExactServices
    shape: Shape
    offers: Offers
    device_s: float
    device_price: float
    energy_price: float

    @property
    def price(self) -> float:
        """Of a request at least."""
        return self.device_s * self.device_price + self.energy_price


def exact_item(worth: PairWorth, role: Role, exact: ExactServices, shape: Shape) -> PoolItem | None:
    """The pools of a role that replicas of a shape make; None where they keep no limit."""
    offers = exact.prompt_offers(shape) if role is Role.PREFILL else exact.token_offers(shape)
    rate = worth.request.plans.traffic.rate_per_s
    at = best_offer(offers, rate)
    if at is None:
        return None
    each = float(offers.requests_per_s[at]) if rate is None else rate / float(offers.replicas[at])
    seconds, row = shape.devices / each, np.array([exact.at])
    joules = float(offers.joules[offers.kept].min())
    energy = worth.energy_price(row, joules, np.array([seconds]))
    return PoolItem(exact, shape, offers, seconds, float(worth.device_price(shape, row)[0]), float(energy[0]))


@dataclass
class Pairing:
    """Pairs of exact pools; `tried`: those that were worked out."""

    worth: PairWorth
    tried: int = 0

    def worked_out(self, first: PoolItem, second: PoolItem) -> tuple[float, ServingChoice] | None:
        """The split of all devices between two pools, and what it is worth; None where no limit is kept."""
        self.tried += 1
        space = handing_over(first.exact.space, second.exact.space)
        sender, receiver = ((one.exact.replicas[one.shape], one.offers) for one in (first, second))
        choice = paired(space, sender, receiver)
        return None if choice is None else (self.worth.of(choice, (first.exact.at, second.exact.at)), choice)

    def hopes(
        self, prompts: Sequence[PoolItem], tokens: Sequence[PoolItem], floor: float
    ) -> list[tuple[float, PoolItem, PoolItem]]:
        """Pairs that may be worth more than a floor, and what they are at most, the most promising first."""
        found = []
        for some, others in product(_by_shape(prompts), _by_shape(tokens)):
            most = self._most(some, others)
            for i, j in np.argwhere(most > floor).tolist():
                found.append((float(most[i, j]), some[i], others[j]))
        return sorted(found, key=lambda one: -one[0])

    def _most(self, some: list[PoolItem], others: list[PoolItem]) -> Floats:
        """Worth at most of pools of two shapes, (N, M), over all splits of the devices."""
        plans, worth = self.worth.request.plans, self.worth
        (mine_s, price, energy), (theirs_s, their_price, their_energy) = _columns(some), _columns(others)
        mine_s, price, energy = mine_s[:, None], price[:, None], energy[:, None] + their_energy
        rate, found = plans.traffic.rate_per_s, np.zeros((len(some), len(others)))
        if rate is not None:
            fits = (mine_s + theirs_s) * rate <= plans.devices * (1 + BOUND_ROUNDING)
            each = worth.per_request(mine_s * price + theirs_s * their_price + energy)
            return np.where(fits, each, 0.0) * (1 + BOUND_ROUNDING)
        shape, other = some[0].shape, others[0].shape
        for devices in pool_sizes(shape, plans.devices):
            served = devices / mine_s
            for left in _counterparts(other, plans.devices - devices, served * theirs_s):
                together = np.minimum(served, left / theirs_s)
                if worth.of_all:
                    hoped = worth.of_requests(together)
                else:
                    hoped = worth.per_request((devices * price + left * their_price) / together + energy)
                np.maximum(found, hoped, out=found)
        return found * (1 + BOUND_ROUNDING)


def _counterparts(other: Shape, left: int, wanted: Floats) -> Iterator[Floats]:
    """Devices of the other pool, (N, M), that may be best beside one that keeps so many of them busy.

    With fewer than these the other pool sets the pace, and each more of it pays; with more each one is in vain.
    """
    group = other.devices * other.together
    most = left // group * group
    if most:
        for whole in (np.floor(wanted / group), np.ceil(wanted / group)):
            yield np.clip(whole * group, group, most)


def _columns(items: list[PoolItem]) -> Floats:
    return np.array([(one.device_s, one.device_price, one.energy_price) for one in items]).T


def _by_shape(items: Sequence[PoolItem]) -> list[list[PoolItem]]:
    def key(one: PoolItem) -> tuple[int, ...]:
        return one.shape.width, one.shape.stages, one.shape.together, one.shape.parts

    return [list(some) for _, some in groupby(sorted(items, key=key), key)]
