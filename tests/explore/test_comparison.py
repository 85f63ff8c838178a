"""Known chips beside a winner: all of them are told, whatever becomes of working them out."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from phaze.explore.api import evaluate_document
from phaze.explore.comparison import CHIPS, LEFT_OUT, chips_beside, comparisons, left_out, plan_beside
from phaze.explore.designs import DesignBuilder
from phaze.explore.exploration import Exploration
from phaze.explore.means import ALONE
from phaze.explore.progress import Clock, Silent
from phaze.explore.request import Budgets, ExploreRequest, Task
from phaze.hardware.architecture import load_architecture
from phaze.placement.strategy.choices import load_plans
from phaze.scheduling.passes import Effort
from phaze.workload.load import load_workload

WHOLE_ANSWERS = True
OVER = Effort(lambda: 0.0)


@pytest.fixture(scope="module")
def request_(tiny, network, small_space):
    task = Task(tiny, 4, network, 8, plans=load_plans("phaze"))
    return ExploreRequest(task, small_space, Budgets(power_w=400.0))


@pytest.fixture(scope="module")
def best(request_):
    return evaluate_document(request_.task, load_architecture("h100")).best


def test_chips_are_worked_out_one_after_the_other(request_):
    told = list(chips_beside(request_, DesignBuilder(request_.task)))
    assert [[one.name for one in some] for some in told] == [list(CHIPS)] * len(told)
    assert [sum(one.result is not None for one in some) for some in told] == list(range(len(told)))
    assert all((one.result is None) == (LEFT_OUT in one.note) for some in told for one in some)
    assert not any(LEFT_OUT in one.note for one in told[-1])


def test_an_expired_clock_leaves_no_chip_unexplained(request_, best, monkeypatch):
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
    told = comparisons(request_, best, DesignBuilder(request_.task), lambda: 0.0)
    assert [one.name for one in told] == list(CHIPS)
    assert all(one.result is None and LEFT_OUT in one.note for one in told)
    assert told == left_out(request_, best)


def test_whatever_fails_beside_a_winner_is_a_sentence(request_, best, monkeypatch):
    def broken(*_):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(DesignBuilder, "best_of", broken)
    told = comparisons(request_, best, DesignBuilder(request_.task))
    assert [one.name for one in told] == list(CHIPS)
    assert all(one.result is None and one.note.endswith("not worked out: out of luck") for one in told)


def test_a_run_whose_time_is_over_still_tells_what_it_found(request_, monkeypatch):
    """The search has its time, what follows has none."""
    exploration = Exploration(request_, Silent(), Clock(inf), ALONE)
    proof = exploration.search()
    monkeypatch.setattr(exploration, "reporting", OVER)
    with exploration.chips() as chips:
        document = exploration.describe(proof.outcome, proof, chips).document
    assert document.certificate.optimal
    assert [one.name for one in document.comparison] == list(CHIPS)
    assert all(one.result is not None or LEFT_OUT in one.note for one in document.comparison)


def test_the_expert_plan_cuts_between_blocks_though_the_space_may_not(network, small_space):
    """Hand-made plans are of whole blocks; a workload without one has nothing beside its winner."""
    asked = [
        ExploreRequest(Task(load_workload(name), 8, network, 16, plans=load_plans("phaze")), small_space)
        for name in ("bert-large", "gpt3-xl")
    ]
    with_plan, without = (replace(one, budgets=Budgets(power_w=400.0)) for one in asked)
    best = evaluate_document(without.task, load_architecture("h100")).best
    (told,) = list(plan_beside(with_plan, best))[-1]
    assert told.result.placement.plan.pipeline_parallel == 8
    assert told.result.placement.plan.grain == "block"
    assert list(plan_beside(without, best)) == []
