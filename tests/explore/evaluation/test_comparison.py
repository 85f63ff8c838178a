"""Known chips beside a winner: all of them are told, whatever becomes of working them out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count
from math import inf

import pytest

from phaze.cost.simt_chips import runs_kernels
from phaze.errors import LEFT_OUT, InfeasibleError
from phaze.explore.answers.chip_comparison import CHIPS, chips_beside, comparisons, left_out, plan_beside
from phaze.explore.answers.evaluated_designs import EvaluatedDesigns
from phaze.explore.answers.exploration import Exploration, distinct_kinds
from phaze.explore.answers.main_job import evaluate_document
from phaze.explore.answers.sustained_clock import at_clock
from phaze.explore.evaluation.design_builder import DesignBuilder
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Task
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.explore.request.search_resources import ALONE, run_in_fork
from phaze.hardware.architecture import load_architecture, to_table
from phaze.parallel.plan_choices import load_plans
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.training.layer_costs import layer_costs
from phaze.scheduling.passes import SolveLimits
from phaze.workload.workload_loader import load_workload

WHOLE_ANSWERS = True
OVER = SolveLimits(lambda: 0.0)


class Hears:
    """Keeps what it is told."""

    def __init__(self):
        self.notes = []

    def update(self, stage, done, total, note):
        self.notes.append(note)


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


def test_chips_that_are_worked_out_together_are_what_each_of_them_is_alone(request_):
    builder = DesignBuilder(request_.task)
    *_, told = chips_beside(request_, builder)
    for one, name in zip(told, CHIPS, strict=True):
        chip = at_clock(load_architecture(name), one.clock_hz)
        alone = builder.best(chip).workloads[request_.task.workload.name]
        assert one.result == alone


def test_layers_of_all_chips_are_worked_out_at_once(request_, monkeypatch):
    """Of those that run kernels each chain once; those of others are bounded, and few of them scheduled."""
    called = Counter()

    def counted(chain, costs, table, limits, *given):
        called[bool(runs_kernels(table, request_.task.rung).all()), len(table), limits is None] += 1
        return layer_costs(chain, costs, table, limits, *given)

    monkeypatch.setattr("phaze.parallel.training.iteration_estimate.layer_costs", counted)
    chains = {
        setting.chain for setting in Evaluator(request_.task, to_table([load_architecture("h100")])).configs
    }
    list(chips_beside(request_, DesignBuilder(request_.task)))
    assert set(called) == {(True, 2, False), (False, 2, True), (False, 2, False)}
    assert max(called.values()) <= len(chains)
    assert 0 < called[False, 2, False] < called[False, 2, True]


def test_time_that_runs_out_ends_the_search_for_plans_of_a_chip(request_):
    """Those that are done are told, the others fall out with a sentence."""
    looks, again = count(1), count(1)
    list(chips_beside(request_, DesignBuilder(request_.task, left_s=lambda: float(next(looks)))))
    enough = next(looks) // 2
    *_, told = chips_beside(
        request_, DesignBuilder(request_.task, left_s=lambda: float(next(again) < enough))
    )
    assert [one.name for one in told] == list(CHIPS)
    assert told[0].result is not None
    assert told[-1].result is None
    assert all((one.result is None) == one.note.endswith(f"; {LEFT_OUT}") for one in told)


def test_what_falls_out_after_the_proof_is_told(request_, monkeypatch):
    heard = Hears()
    exploration = Exploration(request_, heard, Clock(inf), ALONE)
    monkeypatch.setattr("phaze.explore.answers.exploration.NEXT_BEST", 2)
    outcome = exploration.search()
    found = exploration.shown(outcome), exploration.proof(outcome)
    with exploration.chips() as chips:
        assert len(exploration.describe(*found, chips).document.next_best) == 2
    monkeypatch.setattr(exploration, "reporting", OVER)
    with exploration.chips() as chips:
        document = exploration.describe(*found, chips).document
    assert document.next_best == []
    assert heard.notes[-1] == f"2 of the next best designs {LEFT_OUT}"


def test_the_expert_plan_is_begun_before_any_plan_is_told(request_, monkeypatch):
    """So that it is worked out beside what tells the plans of the frontier."""
    done, place = [], EvaluatedDesigns.place
    monkeypatch.setattr(
        EvaluatedDesigns, "place", lambda self, rows: done.append("told") or place(self, rows)
    )

    def forked(*given):
        done.append("expert plan")
        return run_in_fork(*given)

    exploration = Exploration(request_, SilentProgress(), Clock(inf), ALONE)
    outcome = exploration.search()
    found = exploration.shown(outcome), exploration.proof(outcome)
    monkeypatch.setattr("phaze.explore.answers.exploration.run_in_fork", forked)
    exploration.describe(*found, lambda: None)
    assert done[0] == "expert plan"
    assert done.count("expert plan") == 1 < len(done)


def test_a_chip_without_room_is_searched_once(request_, monkeypatch):
    searched = []
    monkeypatch.setattr(
        "phaze.explore.evaluation.design_builder.best_plans",
        lambda *given: searched.append(1) or best_plans(*given),
    )
    monkeypatch.setattr(
        "phaze.explore.evaluation.memory_shortfall.best_plans", lambda *_: pytest.fail("searched again")
    )
    small = load_architecture("h100").replace("small", hbm_capacity_bytes=1e3)
    with pytest.raises(InfeasibleError, match="does not fit on 4 devices of small"):
        DesignBuilder(request_.task).best(small)
    assert searched == [1]


def test_whatever_fails_beside_a_winner_is_a_sentence(request_, best, monkeypatch):
    def broken(*_):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(DesignBuilder, "best_of", broken)
    told = comparisons(request_, best, DesignBuilder(request_.task))
    assert [one.name for one in told] == list(CHIPS)
    assert all(one.result is None and one.note.endswith("not worked out: out of luck") for one in told)


def test_a_run_whose_time_is_over_still_tells_what_it_found(request_, monkeypatch):
    """The search has its time, what follows has none."""
    exploration = Exploration(request_, SilentProgress(), Clock(inf), ALONE)
    outcome = exploration.search()
    found = exploration.shown(outcome), exploration.proof(outcome)
    monkeypatch.setattr(exploration, "reporting", OVER)
    with exploration.chips() as chips:
        document = exploration.describe(*found, chips).document
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
    (told,) = list(plan_beside(with_plan, best.architecture))[-1]
    assert told.result.placement.plan.pipeline_parallel == 8
    assert told.result.placement.plan.grain == "block"
    assert (told.result.placement.plan.schedule, told.result.placement.plan.zero_stage) == ("1f1b", 0)
    assert list(plan_beside(without, best.architecture)) == []


def test_chips_with_the_same_figures_are_one_kind():
    figures = {
        3: (2.0, 400.0, 500.0),
        1: (2.0, 400.0, 500.0 * (1 + 1e-13)),
        4: (2.0, 401.0, 500.0),
        0: (1.0, 1.0, 1.0),
    }
    assert distinct_kinds([3, 1, 4, 0], lambda place: figures[place]) == [3, 4, 0]
