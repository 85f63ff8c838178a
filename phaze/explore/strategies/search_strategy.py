"""Search without proof: a strategy that spends a budget of evaluations on an oracle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from phaze.explore.documents.strategy_report import Improvement, Stop, StrategyReport
from phaze.explore.evaluation.evaluation_oracle import Evaluation, Oracle
from phaze.explore.request.search_progress import Progress

TOGETHER = 64  # architectures evaluated between two looks at the clock


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """How many architectures a search may evaluate; the time it may take is that of the oracle's clock."""

    evaluations: int

    def room(self, oracle: Oracle) -> int:
        """How many more may be evaluated; none once time is over."""
        return 0 if oracle.clock.over else max(0, self.evaluations - len(oracle.history))

    def spend(self, oracle: Oracle, numbers: Sequence[int] | NDArray[np.int64]) -> list[Evaluation]:
        """Evaluations of the first of some candidates, as many as there is room for."""
        found: list[Evaluation] = []
        for start in range(0, len(numbers), TOGETHER):
            found += oracle.evaluate(numbers[start : start + min(TOGETHER, self.room(oracle))])
        return found

    def stop(self, oracle: Oracle) -> Stop | None:
        """Why the search has to end here, if it has to."""
        if oracle.clock.over:
            return Stop.TIME
        return Stop.EVALUATIONS if len(oracle.history) >= self.evaluations else None


class SearchStrategy(Protocol):
    """A search. Settings of its own are fields of the class that have defaults."""

    @property
    def name(self) -> str:
        """As on the command line."""

    @property
    def seeded(self) -> bool:
        """Whether different seeds search differently."""

    def run(self, oracle: Oracle, budget: SearchBudget, seed: int, progress: Progress) -> StrategyReport:
        """Search with a fresh oracle until the budget is spent or the search ends by itself.

        The architecture found is `oracle.best`. Same space, budget and seed, same evaluations, as long as
        time is not what ends the search.
        """


def contract_fault(report: object, oracle: Oracle, budget: SearchBudget) -> str:
    """Breach of the contract by a finished search, against oracle or budget, as a sentence goes on; empty: none."""
    if not isinstance(report, StrategyReport):
        return f"ended in a {type(report).__name__}, not in a StrategyReport"
    if len(oracle.history) > budget.evaluations:
        return f"evaluated {len(oracle.history)} architectures of {budget.evaluations} that it may"
    told = [(step.evaluation, step.value) for step in report.history]
    true = [(step.evaluation, step.value) for step in improving(oracle.history)]
    best = true[-1][1] if true else None
    if (report.evaluations, report.best_value, told) != (len(oracle.history), best, true):
        return "reports other evaluations than it made: let `report_search` report them"
    return ""


def report_search(
    strategy: SearchStrategy,
    oracle: Oracle,
    seed: int,
    stopped: Stop,
    figures: Mapping[str, float] | None = None,
) -> StrategyReport:
    """Report of a search that has just ended."""
    improvements = list(improving(oracle.history))
    return StrategyReport(
        strategy=strategy.name,
        seed=seed,
        evaluations=len(oracle.history),
        runtime_s=oracle.clock.elapsed_s,
        best_value=improvements[-1].value if improvements else None,
        history=improvements,
        stopped=stopped,
        figures=dict(figures or {}),
    )


def improving(history: Iterable[Evaluation]) -> Iterator[Improvement]:
    """The evaluations of a history that were better than all before."""
    best = 0.0
    for count, evaluation in enumerate(history, 1):
        if evaluation.value > best:
            best = evaluation.value
            yield Improvement(evaluation=count, elapsed_s=evaluation.seconds, value=best)
