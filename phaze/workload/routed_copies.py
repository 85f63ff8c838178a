"""Rows of an all-to-all that are the same: a token and the experts it is sent to, of all or of some groups of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of a row that an all-to-all sends to `count` experts.

    Experts lie on their devices as they are numbered, in `groups` equal groups, of which a token is first sent to
    `chosen` (at most four nodes of a token, arXiv 2412.19437, section 2.1.2); one group: anywhere.
    """

    count: int = 1
    groups: int = 1
    chosen: int = 1

    def reach(self, domains: float) -> float:
        """Chance that one of some equal domains of devices is sent a copy, all choices as likely.

        A domain has the experts of G / D groups: whole ones, of which some are chosen by chance, and a part of another.
        With c of the g chosen groups there, k copies miss it with chance (1 - c / g)^k.
        """
        if self.count == 1:
            return 1 / domains
        whole, part = divmod(self.groups / domains, 1.0)
        inside, reached = int(whole), 0.0
        for taken in range(min(inside, self.chosen) + 1):
            for more in (0, 1) if part else (0,):
                others = self.groups - inside - bool(part)
                ways = comb(inside, taken) * _ways(others, self.chosen - taken - more)
                share = min(1.0, (taken + more * part) / self.chosen)
                reached += ways * (1 - (1 - share) ** self.count)
        return reached / comb(self.groups, self.chosen)


def _ways(groups: int, chosen: int) -> int:
    """Ways to choose so many of some groups; none for fewer than none."""
    return comb(groups, chosen) if chosen >= 0 else 0


NO_COPIES = Copies()
