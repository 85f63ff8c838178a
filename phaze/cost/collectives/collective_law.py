"""Seconds of one way to run a collective, by the bytes of its payload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from phaze.arrays import Floats


@dataclass(frozen=True, eq=False)
class Law:
    """Seconds of one way to run a collective: `fixed_s + per_byte_s p + per_root_s sqrt(p)` for a payload of p bytes.

    The last two have an entry for the bandwidth of every chip's own links.
    """

    fixed_s: float
    per_byte_s: Floats
    per_root_s: Floats

    def seconds(self, payload_bytes: Floats) -> Floats:
        """Seconds of payloads, broadcast against the links; infinite on a chip without links if anything is sent."""
        with np.errstate(invalid="ignore"):
            moved = self.per_byte_s * payload_bytes + self.per_root_s * np.sqrt(payload_bytes)
        found: Floats = self.fixed_s + np.where(payload_bytes > 0, moved, 0.0)
        return found

    def of_part(self, below: float, times: int) -> Law:
        """Law of one of `below` equal parts of a payload, as often as said."""
        return Law(
            times * self.fixed_s, times * self.per_byte_s / below, times * self.per_root_s / np.sqrt(below)
        )

    def then(self, other: Law) -> Law:
        """One after the other."""
        return Law(
            self.fixed_s + other.fixed_s,
            self.per_byte_s + other.per_byte_s,
            self.per_root_s + other.per_root_s,
        )

    def never_slower(self, other: Law) -> bool:
        """Whether no payload on any chip takes longer than by another law."""
        parts = ((self.per_byte_s, other.per_byte_s), (self.per_root_s, other.per_root_s))
        return self.fixed_s <= other.fixed_s and all(bool((mine <= its).all()) for mine, its in parts)


def sum_of(laws: Sequence[Law]) -> Law:
    """Law of one after the other, of one or more."""
    return reduce(Law.then, laws)
