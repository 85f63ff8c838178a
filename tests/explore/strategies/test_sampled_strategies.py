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


@pytest.fixture
def oracle(small_space, tiny, network):
    """A fresh oracle whose merit is the throughput, over a task of few settings."""
    task = Task(tiny, 8, network, 8, held={"microbatches": (1,), "tensor": (2,)})

    def fresh(power_w=300.0):
        candidates = Candidates(small_space, Budgets(power_w=power_w))
        return Oracle(candidates, [task], lambda t, tdp, area: t[0], Clock(600.0))

    return fresh


@pytest.mark.parametrize("sampler", [Sampler.TPE, Sampler.NSGA2, Sampler.CMAES, Sampler.RANDOM])
def test_spends_its_budget_on_candidates_within_the_limits_and_repeats_itself(oracle, sampler):
    if sampler is Sampler.CMAES:
        pytest.importorskip("cmaes")
    found = []
    for _ in range(2):
        asked = oracle()
        report = SampledSearch(sampler).run(asked, SearchBudget(6), 3, SilentProgress())
        found.append([(e.number, e.value) for e in asked.history])
        assert (report.evaluations, report.stopped) == (6, Stop.EVALUATIONS)
        assert report.best_value == asked.best.value == max(value for _, value in found[-1])
        assert report.figures["trials"] >= 6
        assert all(e.tdp_w <= 300.0 for e in asked.history)
    assert found[0] == found[1]
    assert len({number for number, _ in found[0]}) == 6


def test_ends_by_itself_once_nothing_new_is_proposed(oracle):
    asked = oracle(power_w=210.0)
    allowed = len(asked.candidates.all())
    report = SampledSearch(Sampler.RANDOM, patience=12).run(asked, SearchBudget(1000), 0, SilentProgress())
    assert report.stopped is Stop.CONVERGED
    assert 0 < report.evaluations <= allowed
