"""Prefill and decode on pools of their own: which replicas, and how many of each.

Splitwise (Patel et al., ISCA'24) and DistServe (Zhong et al., OSDI'24): the prefill pool makes the first token and
hands the cache over; the second token waits for the transfer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from phaze.parallel.serving.replicas.model_replica import Replica
from phaze.parallel.serving.replicas.replica_offers import (
    Offers,
    PoolChoice,
    ServingChoice,
    best_offer,
    binding_limit,
    loaded_offers,
    prefilling,
    saturated_offers,
)
from phaze.parallel.serving.serving_plan import Policy, Role
from phaze.parallel.serving.serving_space import ServingSpace
from phaze.tolerances import LAST_DIGITS

Offered = tuple[Replica, Offers]


def prefill_offers(space: ServingSpace) -> list[Offered]:
    """Offers of every replica shape to a prefill pool, whose prompts go as they come: none has parts of caches."""
    whole = [r for r in space.replicas if r.grid.context_parallel == 1]
    return [(r, prefilling_offers(space, r)) for r in whole]


def prefilling_offers(space: ServingSpace, replica: Replica) -> Offers:
    """Offers of one of them."""
    most = replica.most(space.devices)
    return prefilling(space.prefilling(replica), space.limits, most, space.traffic.rate_per_s)


def decode_offers(space: ServingSpace) -> list[Offered]:
    """Offers of every replica shape to a decode pool."""
    return [(r, decoding_offers(space, r)) for r in space.decoding_replicas]


def decoding_offers(space: ServingSpace, replica: Replica) -> Offers:
    """Offers of one of them."""
    cycle, rate = space.decoding(replica), space.traffic.rate_per_s
    if rate is None:
        return saturated_offers(cycle, 1, space.limits)
    return loaded_offers(cycle, replica.most(space.devices), rate, space.limits)


def pairs(space: ServingSpace, prefill: list[Offered], decode: list[Offered]) -> Iterator[ServingChoice]:
    """The best split of the devices for every pair of replica shapes that keeps the limits."""
    for first in prefill:
        for second in decode:
            choice = paired(space, first, second)
            if choice is not None:
                yield choice


def paired(space: ServingSpace, first: Offered, second: Offered) -> ServingChoice | None:
    """The best split of the devices between two shapes with what they offer; None where no limit or split is kept."""
    (sender, prompts), (receiver, tokens), rate = first, second, space.traffic.rate_per_s
    transfer_s = space.transfer_s(sender.devices, receiver.devices)
    tokens = tokens.delayed(transfer_s / space.traffic.later_tokens, space.limits.targets)
    made, sent = best_offer(prompts, rate), best_offer(tokens, rate)
    if made is None or sent is None:
        return None
    sizes = sender.devices, receiver.devices
    if rate is None:
        each = _at_most(prompts, made, transfer_s), _at_most(tokens, sent, transfer_s)
        groups = sender.together, receiver.together
        counts = split(space.devices, _times(sizes, groups), _times(each, groups))
        counts = _times(counts, groups)
    else:
        counts = int(prompts.replicas[made]), int(tokens.replicas[sent])
        each = rate / counts[0], rate / counts[1]
    crowded = counts[0] * sizes[0] + counts[1] * sizes[1] > space.devices
    if min(counts) < 1 or crowded or max(each) * transfer_s > 1:
        return None
    served = counts[0] * each[0], counts[1] * each[1]
    if rate is None:  # the faster pool is fed no more than the slower one serves: smaller batches do
        made, sent = (_enough(o, min(served) / n) for o, n in zip((prompts, tokens), counts, strict=True))
    parts = (
        PoolChoice(Role.PREFILL, sender, prompts, made, counts[0]),
        PoolChoice(Role.DECODE, receiver, tokens, sent, counts[1]),
    )
    return _choice(space, parts, served, transfer_s)


T = TypeVar("T", int, float)


def _times(pair: tuple[T, T], by: tuple[int, int]) -> tuple[T, T]:
    return pair[0] * by[0], pair[1] * by[1]


def _choice(
    space: ServingSpace,
    parts: tuple[PoolChoice, PoolChoice],
    served_per_s: tuple[float, float],
    transfer_s: float,
) -> ServingChoice:
    """Two pools together, of which the slower one sets the pace."""
    slower = parts[0] if served_per_s[0] < served_per_s[1] else parts[1]
    return ServingChoice(
        Policy.DISAGGREGATED,
        parts,
        space.traffic.rate_per_s or min(served_per_s),
        binding_limit(slower.offers, slower.at),
        space.traffic.longest_fresh,
        transfer_s,
    )


def _enough(offers: Offers, requests_per_s: float) -> int:
    """The first offer within all limits that serves so much per replica."""
    return int(np.flatnonzero(offers.kept & (offers.requests_per_s >= requests_per_s * (1 - LAST_DIGITS)))[0])


def _at_most(offers: Offers, at: int, transfer_s: float) -> float:
    """Requests per second of a replica, whose links pass one cache at a time."""
    own = float(offers.requests_per_s[at])
    return min(own, 1 / transfer_s) if transfer_s > 0 else own


def split(devices: int, sizes: tuple[int, int], each_per_s: tuple[float, float]) -> tuple[int, int]:
    """Replicas of two pools that serve most together, on as few devices as that takes.

    `sizes`: devices of a replica; `each_per_s`: requests it serves. (0, 0) where the devices are too few.
    """
    first = np.arange(1, (devices - sizes[1]) // sizes[0] + 1)
    if not len(first):
        return 0, 0
    second = (devices - first * sizes[0]) // sizes[1]
    together = np.minimum(first * each_per_s[0], second * each_per_s[1])
    most = float(together.max())
    counts = [max(1, math.ceil(most / rate * (1 - LAST_DIGITS))) for rate in each_per_s]
    return counts[0], counts[1]
