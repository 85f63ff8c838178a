"""Prompts of a stream that go before decode: those that come while others are taken are taken next.

Between two decode passes an engine takes round after round of waiting prompts until none waits. The number n that waits
before a round is a Markov chain: of n prompts the round takes min(n, K) and as many come meanwhile as a Poisson stream
brings, so that mean rounds and seconds from n on, g = 1 + Q g and s = P + Q s, are those of an absorbing chain (Kemeny
and Snell, "Finite Markov chains", 1960, chapter 3), Q being its transitions among n > 0. A saturated engine has one
round with all whose places fell free; a stream has more rounds of fewer prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lgamma

import numpy as np

from phaze.arrays import Floats

_HALVINGS = 40
_LEAST_STATES, _MOST_STATES = 24, 128


@dataclass(frozen=True)
class PromptRounds:
    """Rounds at one rate of arrivals, by prompts that wait before the first: `count` and `seconds`, (N + 1,) each."""

    rate_per_s: float
    count: Floats
    seconds: Floats

    @classmethod
    def of(cls, rate_per_s: float, pass_s: Floats) -> PromptRounds | None:
        """Rounds whose passes of 1, 2, ... K prompts take so long, (K,); None where more come than they take."""
        most = len(pass_s)
        if rate_per_s * pass_s[-1] >= most:
            return None
        states = np.arange(1, min(max(3 * most, _LEAST_STATES), _MOST_STATES) + 1)
        taken = np.minimum(states, most)
        left, took = states - taken, pass_s[taken - 1]
        chances = poisson_chances(rate_per_s * took, states[-1])
        after = np.zeros((len(states), len(states) + 1))
        for at, stay in enumerate(left.tolist()):
            after[at, stay:] = chances[at, : len(states) + 1 - stay]
            after[at, -1] += max(0.0, 1 - after[at].sum())
        found = np.linalg.solve(
            np.eye(len(states)) - after[:, 1:], np.stack([np.ones(len(states)), took], axis=1)
        )
        return cls(rate_per_s, np.concatenate([[0.0], found[:, 0]]), np.concatenate([[0.0], found[:, 1]]))

    def after(self, decode_s: float) -> tuple[float, float]:
        """Rounds after a decode pass of so many seconds, and what they take together, both means."""
        waiting = poisson_chances(np.array([self.rate_per_s * decode_s]), len(self.count) - 1)[0]
        return float(waiting @ self.count), float(waiting @ self.seconds)

    def batch(self, passes: float, batches: Floats, decode_s: Floats) -> tuple[float, float] | None:
        """Sequences that decode together, and prompts of a round, means; None where it is none of the batches.

        By Little's law b = rate x passes of a request x seconds from one decode pass to the next; a decode pass takes
        `decode_s` at `batches`, ascending, straight between them.
        """
        low, high = float(batches[0]), float(batches[-1])
        if (
            self._asked(passes, high, batches, decode_s) > high
            or self._asked(passes, low, batches, decode_s) < low
        ):
            return None
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (
                (middle, high) if self._asked(passes, middle, batches, decode_s) > middle else (low, middle)
            )
        rounds, _ = self.after(float(np.interp(high, batches, decode_s)))
        return high, max(1.0, high / passes / rounds)

    def _asked(self, passes: float, batch: float, batches: Floats, decode_s: Floats) -> float:
        each = float(np.interp(batch, batches, decode_s))
        return self.rate_per_s * passes * (each + self.after(each)[1])


def poisson_chances(means: Floats, most: int) -> Floats:
    """Chances of 0, 1, ... `most` (N, most + 1) of Poisson numbers of some means (N,), the last one of all beyond."""
    counts = np.arange(most + 1)
    factorials = np.array([lgamma(n + 1.0) for n in counts.tolist()])
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(counts > 0, counts * np.log(means)[:, None], 0.0) - means[:, None] - factorials
    found: Floats = np.exp(logs)
    found[:, -1] += np.maximum(1 - found.sum(axis=1), 0.0)
    return found
