"""How far a search for schedules may go."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SolveLimits:
    """How far exact scheduling may go: the seconds left, and the states of one search (a reproducible limit)."""

    left_s: Callable[[], float]
    states: float = math.inf

    def at_most(self, states: float) -> SolveLimits:
        """The same for no more states."""
        return SolveLimits(self.left_s, min(self.states, states))
