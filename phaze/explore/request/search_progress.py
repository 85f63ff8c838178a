"""Progress that a search reports, and the clock by which it stops."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Progress(Protocol):
    """Receives what a long computation has done so far."""

    def update(self, stage: str, done: int, total: int, note: str) -> None:
        """`done` of `total` units of `stage` are finished; `note` is a short remark."""


class SilentProgress:
    """Says nothing."""

    def update(self, stage: str, done: int, total: int, note: str) -> None:
        """Ignore."""


@dataclass
class Clock:
    """The time a search may take, and the wish of somebody to end it early.

    In another process it is a clock that shows the same when it arrives there.
    """

    limit_s: float
    started: float = field(default_factory=monotonic)
    interrupted: bool = False

    def interrupt(self) -> None:
        """Ask the search to end with what it knows."""
        self.interrupted = True

    def __reduce__(self) -> tuple[Callable[[float, float], Clock], tuple[float, float]]:
        """Clocks of two processes need not begin at the same time."""
        return _arrived, (self.limit_s, self.elapsed_s if self.left() > 0 else self.limit_s)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return monotonic() - self.started

    def left(self) -> float:
        """Seconds left, at least 0; none once interrupted."""
        return 0.0 if self.interrupted else max(0.0, self.limit_s - self.elapsed_s)

    def patience(self) -> float:
        """Seconds that the first answer is waited for: without end, until somebody interrupts."""
        return 0.0 if self.interrupted else inf

    @property
    def over(self) -> bool:
        """Whether it is time to stop."""
        return self.interrupted or self.elapsed_s >= self.limit_s

    @property
    def half_over(self) -> bool:
        """Whether half of the time is gone."""
        return self.over or self.elapsed_s >= self.limit_s / 2


_ARRIVED: deque[Clock] = deque(maxlen=16)
"""Clocks that came from another process, the latest ones: those of the work that waits here."""


def _arrived(limit_s: float, elapsed_s: float) -> Clock:
    """A clock from another process, of whose limit so much is over."""
    _ARRIVED.append(Clock(limit_s, monotonic() - elapsed_s))
    return _ARRIVED[-1]


def interrupt_arrived() -> None:
    """Ask what was begun for another process to end with what it knows."""
    for clock in _ARRIVED:
        clock.interrupt()


REPORT_SHARE = 0.1
"""Of a time limit: by how much telling what was found may exceed it."""
LEAST_REPORT_S = 1.0
"""Time to tell what was found in any case."""
ENDED_REPORT_S = 0.4
"""Time to tell it after somebody ends the search, who waits for two seconds at most."""


@dataclass
class ReportingClock:
    """The time there is to tell what a search found: what its clock has left, and a small share of its limit more.

    Where somebody ends the search early it is `ENDED_REPORT_S` from then on.
    """

    clock: Clock
    _ended: float | None = None

    def left(self) -> float:
        """Seconds left, at least 0."""
        if self.clock.interrupted and self._ended is None:
            self._ended = self.clock.elapsed_s
        limit_s = self.clock.limit_s
        ends = limit_s + max(REPORT_SHARE * limit_s, LEAST_REPORT_S)
        if self._ended is not None:
            ends = min(self._ended + ENDED_REPORT_S, ends)
        return max(0.0, ends - self.clock.elapsed_s)


@dataclass
class ClockShare(Clock):
    """Part of the time of another clock; it ends early where that one is interrupted."""

    whole: Clock | None = None

    @property
    def over(self) -> bool:
        """Whether it is time to stop."""
        return super().over or (self.whole is not None and self.whole.interrupted)

    def left(self) -> float:
        """Seconds left, at least 0."""
        return 0.0 if self.over else super().left()

    def patience(self) -> float:
        """Seconds that the first answer is waited for."""
        return self.whole.patience() if self.whole is not None else super().patience()
