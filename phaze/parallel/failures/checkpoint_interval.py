"""Checkpoint intervals of a job that failures interrupt, and where its time goes."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, inf, isfinite, log1p, sqrt

_LARGEST = 700.0
"""Exponent beyond which nothing gets done: its exponential is no float."""


@dataclass(frozen=True)
class Interruptions:
    """A job with failures that are exponential with a mean time between them, and what each costs, in s.

    `checkpoint_s`: in which a checkpoint stops the job. `restart_s`: from a failure to the next step; one that fails
    itself begins again. Planned interruptions cost a checkpoint and a restart.
    """

    mtbf_s: float
    checkpoint_s: float
    restart_s: float
    planned_mtbf_s: float = inf

    def young_s(self) -> float:
        """Seconds of work between checkpoints by Young (1974): sqrt(2 C M)."""
        return sqrt(2 * self.checkpoint_s * self.mtbf_s)

    def daly_s(self) -> float:
        """The same by Daly's higher-order estimate (doi 10.1016/j.future.2004.11.016, equation 37)."""
        c, m = self.checkpoint_s, self.mtbf_s
        if c >= 2 * m:
            return m
        x = c / (2 * m)
        return sqrt(2 * c * m) * (1 + sqrt(x) / 3 + x / 9) - c

    def optimal_s(self) -> float:
        """The exact optimum, x M where x + ln(1 - x) + C / M = 0: Lambert's W, by Newton's method from above.

        It minimises M exp(R / M) (exp((t + C) / M) - 1) / t, the time that a second of work takes (Daly, equation 20).
        """
        if not isfinite(self.mtbf_s):
            return inf
        c = self.checkpoint_s / self.mtbf_s
        if c == 0:
            return 0.0
        x = sqrt(2 * c) if c < 0.5 else 1.0
        x = min(x, -expm1(-1 - c))  # where 1 - x = exp(-x - c), which is less for no x
        for _ in range(100):
            slope = -x / (1 - x) if x < 1 else -inf
            step = (x + log1p(-x) + c) / slope if x < 1 else 0.0
            if abs(step) <= 1e-16 * x or not x - step < 1:
                break
            x -= step
        return x * self.mtbf_s

    def shares(self, interval_s: float | None = None) -> TimeShares:
        """Shares of the time under an interval; the best one where none is given."""
        work_s = self.optimal_s() if interval_s is None else interval_s
        planned = (self.checkpoint_s + self.restart_s) / self.planned_mtbf_s
        rest = 1 / (1 + planned)
        if not isfinite(self.mtbf_s):
            return TimeShares(work_s, rest, 0.0, 0.0, 0.0, 1 - rest)
        m, c, r = self.mtbf_s, self.checkpoint_s, self.restart_s
        if (work_s + c) / m + r / m > _LARGEST:
            return TimeShares(work_s, 0.0, 0.0, 0.0, 1.0, 0.0)
        if work_s == 0:  # checkpoints for nothing, all the time
            kept = exp(-r / m) * rest
            return TimeShares(0.0, kept, 0.0, 0.0, rest - kept, 1 - rest)
        failed = expm1((work_s + c) / m)
        whole_s = m * exp(r / m) * failed
        restart_s = m * expm1(r / m) * failed
        lost_s = max(m * failed - work_s - c, 0.0)
        work, written, lost, restart = (part / whole_s * rest for part in (work_s, c, lost_s, restart_s))
        return TimeShares(work_s, work, written, lost, restart, 1 - rest)


@dataclass(frozen=True)
class TimeShares:
    """Shares of the time of a job that checkpoints after `interval_s` of work; they sum to 1."""

    interval_s: float
    work: float
    checkpoint: float
    lost: float
    restart: float
    planned: float
