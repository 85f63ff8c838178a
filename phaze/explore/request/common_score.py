"""How the throughputs of several workloads become one score to maximise.

Every rule grows with each throughput, so the score of optimistic throughputs is an optimistic score.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from phaze.arrays import Floats


class Combine(StrEnum):
    """Which score: a ratio is a workload's throughput over the best that any design reaches for it alone."""

    GEOMEAN = "geomean"  # weighted geometric mean of the ratios
    MEAN = "mean"  # weighted arithmetic mean of the ratios
    THROUGHPUT = "throughput"  # weighted mean of the throughputs themselves, samples/s: the fastest decides
    WORST = "worst"  # the smallest ratio


@dataclass(frozen=True)
class CombinedScore:
    """A rule with the weight and the own optimum (samples/s) of every workload; it is the merit of a search.

    `weights` are positive and count relative to each other; the worst case knows none. A design that stays below
    a workload's floor (samples/s) scores 0.
    """

    combine: Combine
    weights: tuple[float, ...]
    optima: tuple[float, ...]
    floors: tuple[float, ...] = ()

    @property
    def shares(self) -> Floats:
        """Weights that sum to one, (W, 1)."""
        weights = np.array(self.weights, dtype=np.float64)[:, None]
        return np.asarray(weights / np.sort(weights, axis=0).sum())

    def ratios(self, throughput: Floats) -> Floats:
        """Throughputs (W, A) over what they are compared with, (W, A)."""
        if self.combine is Combine.THROUGHPUT:
            return throughput
        return np.asarray(throughput / np.array(self.optima)[:, None])

    def score(self, throughput: Floats) -> Floats:
        """Scores (A,) of throughputs (W, A) in samples/s; 0 where one of them is 0.

        Terms are added in ascending order, so that the order of the workloads does not matter to the last bit.
        """
        ratios = self.ratios(throughput)
        possible = ((throughput > 0) & (throughput >= self._floor)).all(axis=0)
        if self.combine is Combine.WORST:
            found = ratios.min(axis=0)
        elif self.combine is Combine.GEOMEAN:
            logs = self.shares * np.log(np.where(ratios > 0, ratios, 1.0))
            found = np.exp(np.sort(logs, axis=0).sum(axis=0))
        else:
            found = np.sort(self.shares * ratios, axis=0).sum(axis=0)
        return np.asarray(np.where(possible, found, 0.0))

    @property
    def _floor(self) -> Floats:
        """Floors, (W, 1); 0 where there are none."""
        return np.array(self.floors or (0.0,) * len(self.weights))[:, None]

    def __call__(self, throughput: Floats, tdp_w: Floats, area_mm2: Floats) -> Floats:
        """The score as a merit; power and area do not enter it."""
        return self.score(throughput)

    def least(self, workload: int, score: Floats, throughput: Floats) -> Floats:
        """The least throughput (A,) of one workload with which `score` (A,) is reached, the others as given.

        Infinite where the others are too slow for that; 0 where they do it alone.
        """
        others = np.delete(self.ratios(throughput), workload, axis=0)
        shares = np.delete(self.shares, workload, axis=0)
        share = float(self.shares[workload, 0])
        if self.combine is Combine.WORST:
            needed = np.where((others >= score).all(axis=0), score, np.inf)
        elif self.combine is Combine.GEOMEAN:
            logs = np.log(np.where(others > 0, others, 1.0))
            rest = np.log(np.maximum(score, 1e-300)) - (shares * logs).sum(axis=0)
            with np.errstate(over="ignore"):
                needed = np.exp(rest / share)
        else:
            needed = np.maximum(score - (shares * others).sum(axis=0), 0.0) / share
        needed = np.where((others > 0).all(axis=0), needed, np.inf)
        scale = 1.0 if self.combine is Combine.THROUGHPUT else self.optima[workload]
        return np.asarray(np.maximum(np.where(score > 0, needed * scale, 0.0), self._floor[workload]))
