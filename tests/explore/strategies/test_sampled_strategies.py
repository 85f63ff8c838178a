"""Optuna's samplers as strategies over the oracle."""

from __future__ import annotations

import pytest

from phaze.explore.documents.strategy_report import Stop
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluation_oracle import Oracle
from phaze.explore.request.explore_request import Budgets, Task
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.explore.sampling.sampled_study import Sampler
from phaze.explore.strategies.sampler_search import SampledSearch
from phaze.explore.strategies.search_strategy import SearchBudget
from phaze.testing.strategy_contract import StrategyContract


@pytest.fixture
def oracle(small_space, tiny, network):
    """A fresh oracle whose merit is the throughput, over a task of few settings."""
    task = Task(tiny, 8, network, 8, held={"microbatches": (1,), "tensor": (2,)})

    def fresh(power_w=300.0):
        candidates = Candidates(small_space, Budgets(power_w=power_w))
        return Oracle(candidates, [task], lambda t, tdp, area: t[0], Clock(600.0))

    return fresh


class TestRandomSampling(StrategyContract):
    """The one sampler that is registered under no name of its own."""

    @pytest.fixture
    def strategy(self):
        return SampledSearch(Sampler.RANDOM)

    def test_is_registered_under_its_name(self, strategy):
        assert strategy.name == "optuna-random"


def test_ends_by_itself_once_nothing_new_is_proposed(oracle):
    asked = oracle(power_w=210.0)
    allowed = len(asked.candidates.all())
    report = SampledSearch(Sampler.RANDOM, patience=12).run(asked, SearchBudget(1000), 0, SilentProgress())
    assert report.stopped is Stop.CONVERGED
    assert 0 < report.evaluations <= allowed
