"""Limits of a search for schedules."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SolveLimits:
    """Limits of exact scheduling: the seconds left, and the states of one search (a reproducible limit)."""

    left_s: Callable[[], float]
    states: float = math.inf

    def at_most(self, states: float) -> SolveLimits:
        """Limits with no more states."""
        return SolveLimits(self.left_s, min(self.states, states))
