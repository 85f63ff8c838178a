"""The contract of a search strategy."""

from __future__ import annotations

import pytest

from phaze.explore.documents.strategy_report import Stop, StrategyReport
from phaze.explore.request.search_progress import SilentProgress
from phaze.explore.strategies.search_strategy import SearchBudget, SearchStrategy, contract_fault
from phaze.explore.strategies.strategy_registry import STRATEGIES
from phaze.testing.small_problem import BUDGETS, KnownOracle, SolvedProblem, solved_problem
from phaze.tolerances import SAME


class StrategyContract:
    """Contract of every strategy on a problem that is solved already; a subclass gives the `strategy`."""

    @pytest.fixture
    def strategy(self) -> SearchStrategy:
        """The strategy under test."""
        raise NotImplementedError

    @pytest.fixture
    def problem(self) -> SolvedProblem:
        """The problem that it searches."""
        return solved_problem()

    def test_is_registered_under_its_name(self, strategy: SearchStrategy) -> None:
        """An object of its kind, of the name that it has itself."""
        assert STRATEGIES.fault(strategy.name, strategy) == ""
        assert isinstance(strategy.seeded, bool)

    @pytest.mark.parametrize("most", [1, 5])
    def test_keeps_the_budget_and_is_never_above_the_certified_optimum(
        self, strategy: SearchStrategy, problem: SolvedProblem, most: int
    ) -> None:
        """Its report says what the oracle was asked, which improves step by step up to the best."""
        oracle, report = _searched(strategy, problem, most)
        assert contract_fault(report, oracle, SearchBudget(most)) == ""
        assert report.strategy == strategy.name
        assert report.best_value is not None
        assert 0 < report.best_value <= problem.optimum * (1 + SAME)
        values = [step.value for step in report.history]
        assert values == sorted(set(values))
        assert values[-1] == report.best_value == max(found.value for found in oracle.history)
        assert StrategyReport.model_validate_json(report.model_dump_json()) == report

    def test_evaluates_architectures_of_the_space_within_the_budgets(
        self, strategy: SearchStrategy, problem: SolvedProblem
    ) -> None:
        """Each once."""
        oracle, _ = _searched(strategy, problem, 8)
        numbers = [found.number for found in oracle.history]
        assert len(numbers) == len(set(numbers))
        assert set(numbers) <= set(range(problem.candidates.size))
        assert all(found.tdp_w <= (BUDGETS.power_w or 0.0) for found in oracle.history)

    def test_same_seed_same_evaluations(self, strategy: SearchStrategy, problem: SolvedProblem) -> None:
        """The seed changes nothing where the strategy says that it has none."""
        first, again, other = (
            [found.number for found in _searched(strategy, problem, 5, seed)[0].history] for seed in (3, 3, 4)
        )
        assert first == again
        assert strategy.seeded or first == other

    def test_evaluates_nothing_once_time_is_over(
        self, strategy: SearchStrategy, problem: SolvedProblem
    ) -> None:
        """And says that it was time that ended it."""
        oracle = problem.oracle(limit_s=0.0)
        report = strategy.run(oracle, SearchBudget(5), 0, SilentProgress())
        assert oracle.history == []
        assert (report.stopped, report.evaluations, report.best_value) == (Stop.TIME, 0, None)


def _searched(
    strategy: SearchStrategy, problem: SolvedProblem, most: int, seed: int = 1
) -> tuple[KnownOracle, StrategyReport]:
    oracle = problem.oracle()
    return oracle, strategy.run(oracle, SearchBudget(most), seed, SilentProgress())
