"""A group of devices on the tiers of a network."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.hardware.network import Network
from phaze.hardware.tiers import Tier


@dataclass(frozen=True, slots=True)
class Level:
    """What a group is on one tier that it spans.

    `domains` of the tier hold it all, each of them `members` domains of the tier inside (or devices) with `below`
    devices of the group each: fractions where it does not divide evenly. `extent`: members that a whole
    domain has, as many as the group's where the tier has no end.
    """

    tier: Tier
    domains: int
    members: float
    below: float
    extent: int

    @property
    def crossings(self) -> int:
        """Hops of a chain through the whole group that this tier carries."""
        return round((self.members - 1) * self.domains)

    @property
    def full(self) -> bool:
        """Whether the group has all members of its domains."""
        return self.members == self.extent


def levels(network: Network, size: int, stride: int = 1) -> tuple[Level, ...]:
    """The tiers that a group of `size` devices, numbered `stride` apart, has members on, from the inside out.

    Beyond the end of the last tier its domains are taken to be as large as needed.
    """
    found, inside, held = [], size, 1
    for position, tier in enumerate(network.tiers):
        last = position == len(network.tiers) - 1
        reach = size if tier.devices is None or last else max(1, tier.devices // stride)
        domains = min(inside, -(-size // reach))
        members = inside / domains
        if members > 1:
            whole = round(members) if tier.devices is None else max(tier.devices // held, -int(-members // 1))
            found.append(Level(tier, domains, members, size / inside, whole))
        inside, held = domains, tier.devices or held
    return tuple(found)
