"""The best serving plan: every replica shape, batch, chunk and split into pools of an enumerated space."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.hardware.architecture import Architecture
from phaze.hardware.network import Network
from phaze.placement.serving.candidates import Offers, full, loaded
from phaze.placement.serving.check import check
from phaze.placement.serving.choice import Choice, together
from phaze.placement.serving.plan import Policy, ServingPlan
from phaze.placement.serving.pools import decode_offers, pairs, prefill_offers
from phaze.placement.serving.refusal import refusal
from phaze.placement.serving.requests import ServingOptions, Targets, Traffic
from phaze.placement.serving.result import serving_plan
from phaze.placement.serving.space import ServingSpace


def best_serving_plan(
    workload: str,
    architecture: Architecture,
    devices: int,
    network: Network,
    traffic: Traffic,
    targets: Targets | None = None,
    options: ServingOptions | None = None,
) -> ServingPlan:
    """The plan that serves most on `devices` devices, or an arrival rate on the fewest of them, within the targets.

    Exact over `ServingSpace` under its costs; ties go to fewer devices, then to faster tokens, then to what is
    enumerated first. Raises InputError for a workload without a key-value cache, InfeasibleError where nothing
    fits or keeps the targets.
    """
    return best_of(
        ServingSpace(
            workload,
            architecture,
            devices,
            network,
            traffic,
            targets or Targets(),
            options or ServingOptions(),
        )
    )


def best_of(space: ServingSpace) -> ServingPlan:
    """The best plan of a space. Raises as `best_serving_plan`."""
    seen: list[Offers] = []
    found = min(choices(space, seen), key=lambda choice: choice.rank, default=None)
    if found is None:
        raise refusal(space, seen)
    plan = serving_plan(found, space)
    check(plan, space.traffic, space.limits)
    return plan


def choices(space: ServingSpace, seen: list[Offers]) -> Iterator[Choice]:
    """The best plan of every replica shape and policy that has one; all offers are added to `seen`."""
    if space.options.disaggregate is not True:
        yield from _together(space, seen)
    if space.options.disaggregate is not False and space.options.chunk is None:
        prefill, decode = prefill_offers(space), decode_offers(space)
        seen += [offers for _, offers in (*prefill, *decode)]
        yield from pairs(space, prefill, decode)


def _together(space: ServingSpace, seen: list[Offers]) -> Iterator[Choice]:
    rate = space.traffic.rate_per_s
    for replica in space.replicas:
        most = space.devices // replica.devices
        for chunk, cycle in space.cycles(replica):
            offers = (
                full(cycle, most, space.limits) if rate is None else loaded(cycle, most, rate, space.limits)
            )
            seen.append(offers)
            policy = Policy.PREFILL_FIRST if chunk is None else Policy.CHUNKED
            choice = together(policy, replica, offers, chunk or space.traffic.prompt_tokens, rate)
            if choice is not None:
                yield choice
