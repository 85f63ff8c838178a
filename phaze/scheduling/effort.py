"""Limits of a search for schedules."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SolveLimits:
    """Limits of exact scheduling: the seconds left, and the states of one search (a reproducible limit).

    Beyond them the best schedule known stands for the least time, with the bound that is proven.
    """

    left_s: Callable[[], float]
    states: float = math.inf

    def at_most(self, states: float) -> SolveLimits:
        """Limits with no more states."""
        return SolveLimits(self.left_s, min(self.states, states))

    @property
    def over(self) -> bool:
        """Whether nothing is searched for any more."""
        return self.states <= 0 or self.left_s() <= 0

    def look(self) -> None:
        """Look, between steps of long work, at whether its time is over. Raises LimitsOver where it is."""
        if self.left_s() <= 0:
            raise LimitsOver


class LimitsOver(Exception):  # noqa: N818 - no error: who sets limits expects it
    """Limits were over before something that is worth nothing by halves was worked out."""


KNOWN = SolveLimits(lambda: 0.0, 0.0)
"""No search: the best schedules that are known have to do."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits of bounding in steps: when bounds are tightened no more, and when nothing is begun any more."""

    tightens: SolveLimits
    ends: SolveLimits


ENDLESS = Patience(SolveLimits(lambda: math.inf), SolveLimits(lambda: math.inf))
"""All steps."""
