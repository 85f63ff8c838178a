"""Random search: the baseline every other search has to beat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from phaze.explore.progress import Progress
from phaze.explore.strategies.oracle import Oracle
from phaze.explore.strategies.report import Stop, StrategyReport
from phaze.explore.strategies.strategy import SearchBudget, report

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
        return report(self, oracle, seed, budget.stop(oracle) or Stop.EXHAUSTED)


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
