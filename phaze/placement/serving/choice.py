"""From offers of replicas to whole plans: how many of each, what they serve together, what keeps them from more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from phaze.placement.serving.candidates import Offers
from phaze.placement.serving.plan import Binding, Policy, Role
from phaze.placement.serving.replica import Replica


@dataclass(frozen=True)
class Part:
    """One pool: `count` replicas at the offer `at`."""

    role: Role
    replica: Replica
    offers: Offers
    at: int
    count: int

    @property
    def devices(self) -> int:
        """Devices of the pool."""
        return self.count * self.offers.devices


@dataclass(frozen=True)
class Choice:
    """A plan in the making; `requests_per_s` of all devices."""

    policy: Policy
    parts: tuple[Part, ...]
    requests_per_s: float
    binding: Binding
    chunk_tokens: int
    transfer_s: float = 0.0

    @property
    def ttft_s(self) -> float:
        """Time to first token: the first pool makes it."""
        return float(self.parts[0].offers.ttft_s[self.parts[0].at])

    @property
    def tpot_s(self) -> float:
        """Time per output token: the last pool makes them."""
        return float(self.parts[-1].offers.tpot_s[self.parts[-1].at])

    @property
    def rank(self) -> tuple[float, int, float]:
        """Smaller is better: more requests, fewer devices, faster tokens."""
        return -self.requests_per_s, sum(part.devices for part in self.parts), self.tpot_s


def together(
    policy: Policy, replica: Replica, offers: Offers, chunk: int, rate_per_s: float | None
) -> Choice | None:
    """The best that replicas of one kind do with prompts and decode on the same devices; None if nothing is kept."""
    at = best(offers, rate_per_s)
    if at is None:
        return None
    part = Part(Role.BOTH, replica, offers, at, int(offers.replicas[at]))
    served = part.count * float(offers.requests_per_s[at]) if rate_per_s is None else rate_per_s
    return Choice(policy, (part,), served, binding(offers, at), chunk)


def best(offers: Offers, rate_per_s: float | None) -> int | None:
    """The offer within all limits that serves most per replica, or serves the stream on the fewest replicas."""
    kept = np.flatnonzero(offers.kept)
    if not len(kept):
        return None
    return int(kept[-1] if rate_per_s is not None else kept[offers.requests_per_s[kept].argmax()])


def binding(offers: Offers, at: int) -> Binding:
    """What the next offer breaks; where it breaks nothing it serves no more, and where there is none, its end."""
    if at + 1 == len(offers.replicas):
        return offers.end
    return next((limit for limit, broken in offers.broken.items() if broken[at + 1]), Binding.NOTHING)
