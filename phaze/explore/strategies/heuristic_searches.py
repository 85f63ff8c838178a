"""Two searches without proof that need no settings: random search, the baseline, and PHAZE's, the largest architectures
first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from phaze.arrays import Integers
from phaze.explore.documents.strategy_report import Stop, StrategyReport
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluation_oracle import Evaluation, Oracle
from phaze.explore.request.search_progress import Progress
from phaze.explore.strategies.search_strategy import SearchBudget, report_search

DRAWN = 1024  # candidates whose budgets are looked at together


@dataclass(frozen=True)
class RandomSearch:
    """Architectures within the budgets, uniformly without replacement.

    `batch`: how many are evaluated together, which changes nothing but the time.
    """

    batch: int = 64
    name: str = "random"
    seeded: bool = True

    def run(self, oracle: Oracle, budget: SearchBudget, seed: int, progress: Progress) -> StrategyReport:
        """Evaluate until the budget is spent or every architecture is known."""
        wanted = _within_budgets(oracle, seed)
        while numbers := list(islice(wanted, min(self.batch, budget.room(oracle)))):
            oracle.evaluate(numbers)
            progress.update("random", len(oracle.history), budget.evaluations, "architectures evaluated")
        return report_search(self, oracle, seed, budget.stop(oracle) or Stop.EXHAUSTED)


def _within_budgets(oracle: Oracle, seed: int) -> Iterator[int]:
    """All candidates within the budgets, shuffled, until time is over."""
    drawn = shuffled(oracle.candidates.size, seed)
    while not oracle.clock.over and (numbers := list(islice(drawn, DRAWN))):
        yield from oracle.candidates.within(np.array(numbers)).numbers.tolist()


def shuffled(size: int, seed: int) -> Iterator[int]:
    """The numbers below `size` in random order; memory grows with what is taken, not with `size`.

    Fisher and Yates' shuffle, in which only the positions that were swapped are written down.
    """
    rng = np.random.default_rng(seed)
    moved: dict[int, int] = {}
    for i in range(size):
        j = int(rng.integers(i, size))
        yield moved.get(j, j)
        moved[j] = moved.pop(i, i)


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
                slope = slope.after(max(mean_throughput(found[n]) for n in members.tolist()))
            visited += len(certain)
            progress.update("phaze", len(oracle.history), budget.evaluations, f"{visited} area bins visited")
        converged = slope.bins >= self.hysteresis_bins
        stopped = Stop.CONVERGED if converged else budget.stop(oracle) or Stop.EXHAUSTED
        figures = {"bins_visited": visited, "bins_not_increasing": slope.bins, "bin_mm2": self.bin_mm2}
        return report_search(self, oracle, seed, stopped, figures)


@dataclass(frozen=True, slots=True)
class Slope:
    """The longest run of scores up to now of which none was above the one before."""

    bins: int = 0
    last: float = math.inf

    def after(self, score: float) -> Slope:
        """With the score of one more bin."""
        return Slope(self.bins + 1 if score <= self.last else 1, score)


def mean_throughput(evaluation: Evaluation) -> float:
    """Plain mean of the throughputs, samples/s, whatever the objective; `NOTHING` where a workload does not run."""
    throughputs = evaluation.throughputs
    return sum(throughputs) / len(throughputs) if min(throughputs) > 0 else NOTHING


def largest_first(candidates: Candidates, bin_mm2: float, most: int) -> list[Integers]:
    """The `most` largest candidates within the budgets in bins of area, largest first; by number within a bin."""
    numbers = bins = np.zeros(0, dtype=np.int64)
    for block in candidates.blocks():
        numbers = np.concatenate([numbers, block.numbers])
        bins = np.concatenate([bins, np.floor(block.area_mm2 / bin_mm2).astype(np.int64)])
        order = np.lexsort((numbers, -bins))[:most]
        numbers, bins = numbers[order], bins[order]
    return np.split(numbers, np.flatnonzero(np.diff(bins)) + 1) if len(numbers) else []
