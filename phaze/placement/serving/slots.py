"""How long a pipeline of batches takes from slot to slot.

A replica of p stages keeps p batches in flight, one on each stage. In every slot each moves on by one stage, so a
slot lasts as long as the longest of p passes on the stages they are at; with one stage that is the pass itself.
Passes of different lengths (a prompt among decode passes) leave bubbles, as Sarathi-Serve shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats


@dataclass(frozen=True)
class Slots:
    """Kinds of passes: seconds of each on every stage, (B, K, p), and the share of each among all passes, (B, K).

    The batches in flight are of independent kinds, and all wait for the longest: a little pessimistic, for a real
    pipeline lets a batch move on when the next stage is free.
    """

    seconds: Floats
    share: Floats

    def mean_s(self) -> Floats:
        """Expected length of a slot, (B,)."""
        return self._expected(self._below(np.arange(self.seconds.shape[2])))

    def round_s(self, kind: int) -> Floats:
        """Time of a pass of some kind through all stages, (B,), the other batches as they come."""
        total, stages = np.zeros(len(self.share)), np.arange(self.seconds.shape[2])
        for at in stages:
            own = self.seconds[:, kind, at, None] <= self._lengths
            total += self._expected(self._below(np.delete(stages, at)) * own)
        return total

    @property
    def _lengths(self) -> Floats:
        """All lengths a slot can have, (B, K p), ascending."""
        return np.sort(self.seconds.reshape(len(self.share), -1), axis=1)

    def _below(self, stages: NDArray[np.intp]) -> Floats:
        """Chance that the passes on some stages take no longer than each length, (B, K p)."""
        chance, lengths = np.ones((len(self.share), self.seconds[0].size)), self._lengths
        for at in stages:
            shorter = self.seconds[:, :, at, None] <= lengths[:, None, :]
            chance *= (shorter * self.share[:, :, None]).sum(axis=1)
        return chance

    def _expected(self, below: Floats) -> Floats:
        found: Floats = (self._lengths * np.diff(below, axis=1, prepend=0.0)).sum(axis=1)
        return found
