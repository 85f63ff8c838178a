"""Replicas that do both prefill and decode: what those of one shape and policy offer, and the best plan of them."""

from __future__ import annotations

from phaze.parallel.serving.replicas.model_replica import Replica
from phaze.parallel.serving.replicas.replica_offers import (
    Offers,
    ServingChoice,
    closed_offers,
    loaded_offers,
    saturated_offers,
    together,
)
from phaze.parallel.serving.replicas.steady_state import Cycle
from phaze.parallel.serving.serving_plan import Policy
from phaze.parallel.serving.serving_space import ServingSpace


def offered(space: ServingSpace, replica: Replica, chunk: int | None) -> tuple[Offers, ServingChoice | None]:
    """Offers of replicas that take prompts first (`chunk` None) or in chunks beside decode, and the best of these."""
    offers = made_offers(space, space.cycle(replica, chunk))
    policy = Policy.PREFILL_FIRST if chunk is None else Policy.CHUNKED
    tokens = chunk or space.traffic.longest_fresh
    return offers, together(policy, replica, offers, tokens, space.traffic.rate_per_s)


def made_offers(space: ServingSpace, cycle: Cycle) -> Offers:
    """Offers of replicas under the load of the space."""
    load, most = space.traffic, cycle.replica.most(space.devices)
    if load.rate_per_s is not None:
        return loaded_offers(cycle, most, load.rate_per_s, space.limits)
    if load.clients is not None:
        return closed_offers(cycle, most, load.clients, space.limits)
    return saturated_offers(cycle, most, space.limits)
