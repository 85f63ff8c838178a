"""PHAZE's search: the largest architectures first, until larger ones have been no worse for a while.

After Wang et al., "Integrated Hardware Architecture and Device Placement Search" (ICML 2024), and its
published code. Architectures are grouped into bins of nearly equal area, and the bins visited from the
largest down, every architecture of a bin evaluated. The score of a bin is its best mean throughput over
the workloads. The search has converged when the scores of the last few bins do not increase.

The original repeats this search for every memory size, microbatch size and recompute choice and keeps the
best result. Here memory sizes stand side by side in the bins, and the other choices are made within an
evaluation, which gives every architecture its best point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.explore.candidates import Candidates
from phaze.explore.progress import Progress
from phaze.explore.strategies.oracle import Evaluation, Oracle
from phaze.explore.strategies.report import Stop, StrategyReport
from phaze.explore.strategies.strategy import SearchBudget, report

Numbers = NDArray[np.int64]
NOTHING = -1.0  # score of a bin in which no architecture runs every workload


@dataclass(frozen=True)
class PhazeSearch:
    """`bin_mm2`: width of an area bin. `hysteresis_bins`: so many scores in a row must not increase."""

    bin_mm2: float = 0.01
    hysteresis_bins: int = 5
    name: str = "phaze"
    seeded: bool = False

    def run(self, oracle: Oracle, budget: SearchBudget, seed: int, progress: Progress) -> StrategyReport:
        """Visit bins until the scores stop increasing, the budget is spent or no bin is left."""
        # One more than can be evaluated, so that a bin is never taken for complete when it is not.
        bins = largest_first(oracle.candidates, self.bin_mm2, budget.evaluations + 1)
        visited, slope = 0, Slope()
        while visited < len(bins) and slope.bins < self.hysteresis_bins:
            # The search cannot converge before that many more bins, so they are evaluated together.
            certain = bins[visited : visited + self.hysteresis_bins - slope.bins]
            wanted = np.concatenate(certain)
            found = {e.number: e for e in budget.spend(oracle, wanted)}
            if len(found) < len(wanted):
                break
            for members in certain:
                slope = slope.after(max(score(found[n]) for n in members.tolist()))
            visited += len(certain)
            progress.update("phaze", len(oracle.history), budget.evaluations, f"{visited} area bins visited")
        converged = slope.bins >= self.hysteresis_bins
        stopped = Stop.CONVERGED if converged else budget.stop(oracle) or Stop.EXHAUSTED
        figures = {"bins_visited": visited, "bins_not_increasing": slope.bins, "bin_mm2": self.bin_mm2}
        return report(self, oracle, seed, stopped, figures)


@dataclass(frozen=True, slots=True)
class Slope:
    """The longest run of scores up to now of which none was above the one before."""

    bins: int = 0
    last: float = math.inf

    def after(self, score: float) -> Slope:
        """With the score of one more bin."""
        return Slope(self.bins + 1 if score <= self.last else 1, score)


def score(evaluation: Evaluation) -> float:
    """Plain mean of the throughputs, samples/s, whatever the objective; `NOTHING` where a workload does not run."""
    throughputs = evaluation.throughputs
    return sum(throughputs) / len(throughputs) if min(throughputs) > 0 else NOTHING


def largest_first(candidates: Candidates, bin_mm2: float, most: int) -> list[Numbers]:
    """The `most` largest candidates within the budgets in bins of area, largest first; by number within a bin."""
    numbers = bins = np.zeros(0, dtype=np.int64)
    for block in candidates.blocks():
        numbers = np.concatenate([numbers, block.numbers])
        bins = np.concatenate([bins, np.floor(block.area_mm2 / bin_mm2).astype(np.int64)])
        order = np.lexsort((numbers, -bins))[:most]
        numbers, bins = numbers[order], bins[order]
    return np.split(numbers, np.flatnonzero(np.diff(bins)) + 1) if len(numbers) else []
