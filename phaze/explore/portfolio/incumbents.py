"""Scores that are reached, against which every optimistic score is held."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phaze.explore.frontier import Staircase
from phaze.explore.portfolio.member import ROUNDING
from phaze.explore.portfolio.merit import Rule
from phaze.explore.setting import Setting

FloatArray = NDArray[np.float64]
# Scores of seeds count a little less, so that rounding never prunes what they were taken from.
_SEED = 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class Common:
    """One architecture under its best known placement for every workload; throughputs in samples/s."""

    number: int
    score: float
    throughputs: tuple[float, ...]
    settings: tuple[Setting, ...]
    tdp_w: float
    area_mm2: float


@dataclass
class Incumbents:
    """Best score known at every TDP; a design that is better by less than a factor `slack` does not matter."""

    rule: Rule
    slack: float = 1.0
    known: Staircase = field(default_factory=Staircase)

    def add(self, common: Common, *, seed: bool = False) -> None:
        """Take a reached score over; that of a seed so that the seed itself still matters."""
        score = common.score * (_SEED / self.slack if seed else 1.0)
        self.known.add([common.tdp_w], score, (common.area_mm2, common.number))

    def hope(self, hoped: FloatArray) -> FloatArray:
        """The score (A,) that architectures of these optimistic throughputs (W, A) cannot exceed."""
        return np.asarray(self.rule.score(hoped) * (1 + ROUNDING))

    def matters(self, hoped: FloatArray, tdp_w: FloatArray) -> NDArray[np.bool_]:
        """Whether such architectures can matter, (A,); those that do not fit every workload never do."""
        score = self.hope(hoped)
        return np.asarray((score > 0) & ~self.known.dominates(tdp_w[:, None], score / self.slack))

    def gain(self, hoped: FloatArray, tdp_w: FloatArray) -> FloatArray:
        """How many times the best known score at their TDP they may reach, (A,)."""
        known = self.known.threshold(tdp_w[:, None])
        score = self.hope(hoped)
        return np.asarray(np.where(known > 0, score / np.where(known > 0, known, 1.0), score * np.inf))

    def needed(self, workload: int, hoped: FloatArray, tdp_w: FloatArray) -> FloatArray:
        """Throughput (A,) below which a workload drags the score under what is known, the others as hoped."""
        known = self.known.threshold(tdp_w[:, None]) * (1 - ROUNDING)
        return self.rule.least(workload, known, hoped) * (1 - ROUNDING)
