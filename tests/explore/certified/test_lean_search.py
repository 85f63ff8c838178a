"""The least memory of any plan on any architecture, held against every plan of small spaces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_cases import FEW_ARRAYS, StopsSoon

from phaze.errors import InfeasibleError, OutOfTimeError
from phaze.explore.answers.main_job import evaluate, explore
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.planned_iteration import estimator_of
from phaze.explore.explaining.run_explanation import explain
from phaze.explore.recheck.certify_run import certify
from phaze.explore.request.explore_request import ExploreRequest, Objective, Task
from phaze.hardware.architecture import to_table
from phaze.hardware.spaces.space_file import load_space
from phaze.parallel.framework import load_framework
from phaze.parallel.parallel_plan import Zero
from phaze.parallel.plan_batches.memory_fit import PlanFootprint
from phaze.parallel.plan_choices import load_plans
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.scheduling.passes import SolveLimits

HELD = {"microbatches": (1, 2), "tensor": (1, 2), "chunks": (1, 2)}
PLANS = [("full", "ideal"), ("phaze", "exposed")]


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    path = tmp_path_factory.mktemp("spaces") / "few.yaml"
    path.write_text(FEW_ARRAYS)
    return load_space(path)


@pytest.fixture(scope="module", params=PLANS)
def request_(request, tiny, network, space):
    plans, framework = request.param
    task = Task(tiny, 4, network, plans=load_plans(plans), framework=load_framework(framework), held=HELD)
    return ExploreRequest(task, space, objective=Objective.MEMORY, time_limit_s=600.0)


@pytest.fixture(scope="module")
def answer(request_, resources):
    return explore(request_, resources=resources)


@pytest.fixture(scope="module")
def fastest_s(request_):
    """Seconds of the fastest plan of any architecture in so much memory, infinite where none fits.

    By the search of single chips, whose layers are costed once.
    """
    task, most = request_.task, {}
    estimators = [estimator_of(task, to_table([chip])) for chip in chips(request_)]

    def of(estimator, memory_bytes):
        found = best_plans(estimator, task.plan_space, memory_bytes).best
        return found[0].iteration.iteration_s if found else np.inf

    def fastest(memory_bytes=np.inf):
        if memory_bytes not in most:
            most[memory_bytes] = min(of(one, memory_bytes) for one in estimators)
        return most[memory_bytes]

    return fastest


def amounts(task):
    """Bytes that devices need, of every plan of a task, each once, ascending; and the least that a plan needs."""
    evaluator, found, least = Evaluator(task, to_table([])), set(), np.inf
    for setting in evaluator.configs:
        options = evaluator.options(setting)
        for depth in options.depths:
            for one in options.plans(depth):
                room = PlanFootprint.of(options.layouts, one, task.plan_space.choices(one)[0])
                found.update(room.need_bytes.ravel().tolist())
                least = min(least, *(fit.least_bytes for fit in room.fits(0.0)))
    return sorted(found), least


def test_what_plans_need_at_least_is_that_of_every_plan(request_):
    """Of every setting; and a plan gets by with it, but with no less."""
    task, space = request_.task, request_.space
    evaluator = Evaluator(task, space.table())
    rows, effort = np.arange(len(evaluator.table)), SolveLimits(lambda: np.inf)
    for setting in evaluator.configs:
        options = evaluator.options(setting)
        rooms = (
            PlanFootprint.of(options.layouts, one, task.plan_space.choices(one)[0])
            for depth in options.depths
            for one in options.plans(depth)
        )
        least = min((fit.least_bytes for room in rooms for fit in room.fits(0.0)), default=np.inf)
        assert evaluator.least_bytes(setting) == pytest.approx(least, rel=1e-12)
        for share, there in ((1 + 1e-9, True), (1 - 1e-9, False)):
            held = evaluator.of(replace(task, memory_bytes=share * least))
            nothing = np.full(len(rows), np.inf)
            assert (np.isfinite(held.exact(setting, rows, nothing, effort).upper_s) == there).all()
            assert (np.isfinite(held.iteration_bound(setting, rows)) == there).all()


def test_no_amount_that_a_plan_needs_is_missing(request_):
    evaluator = Evaluator(request_.task, request_.space.table())
    each, least = amounts(request_.task)
    found = evaluator.amounts_between(0.5 * least, 3 * least)
    expected = np.array([one for one in each if 0.5 * least < one < 3 * least])
    assert len(expected) > 10
    places = np.clip(np.searchsorted(found, expected), 1, len(found) - 1)
    nearest = np.minimum(abs(found[places] - expected), abs(found[places - 1] - expected))
    assert (nearest <= 1e-12 * expected).all()
    assert 0.5 * least < found.min() < found.max() < 3 * least


def chips(request_):
    candidates = Candidates(request_.space, request_.budgets)
    return [candidates.architecture(number) for number in range(candidates.size)]


def test_the_least_memory_is_that_of_every_plan(request_, answer, fastest_s):
    _, least = amounts(request_.task)
    document = answer.document
    best = document.best.workloads["tiny"]
    assert best.memory_bytes == pytest.approx(least, rel=1e-12)
    assert document.certificate.optimal
    assert document.certificate.objective_value == 1 / best.memory_bytes
    assert best.iteration_time_s == pytest.approx(fastest_s(least * (1 + 1e-9)), rel=1e-9)


@pytest.mark.parametrize("share", [0.7, 1.0])
def test_with_a_floor_it_is_the_least_in_which_some_plan_is_fast_enough(
    request_, share, fastest_s, resources
):
    batch = request_.task.cluster.global_batch
    floor = share * batch / fastest_s() * (1 - 1e-9)
    document = explore(replace(request_, min_throughput=floor), resources=resources).document
    best = document.best.workloads["tiny"]
    assert document.certificate.optimal
    assert best.throughput_samples_per_s >= floor
    needs = np.array(amounts(request_.task)[0])
    told = int(abs(needs - best.memory_bytes).argmin())
    assert best.memory_bytes == pytest.approx(needs[told], rel=1e-8)
    # More memory never makes a plan slower, so one amount less stands for all that are smaller.
    less = needs[needs < best.memory_bytes * (1 - 1e-8)].max()
    assert fastest_s(less * (1 + 1e-9)) > batch / floor >= fastest_s(needs[told] * (1 + 1e-9))


def test_the_counts_cover_the_space(answer):
    c = answer.document.certificate
    assert c.space_size == c.over_budget + c.pruned + c.evaluated
    assert sum(c.pruned_by.values()) == c.pruned


@pytest.mark.parametrize("held", [{"zeros": (Zero.NONE,)}, {"tensor": (1,)}, {"pipeline": (2,)}])
def test_fixing_a_choice_never_needs_less(request_, answer, held, resources):
    task = replace(request_.task, held={**HELD, **held})
    if task.plans.refusal(held) is not None:
        pytest.skip("the space of plans does not have it")
    least = (
        explore(replace(request_, task=task), resources=resources)
        .document.best.workloads["tiny"]
        .memory_bytes
    )
    assert least >= answer.document.best.workloads["tiny"].memory_bytes * (1 - 1e-12)
    chip = chips(request_)[0]
    assert evaluate(task, chip).workloads["tiny"].memory_bytes >= least * (1 - 1e-12)


def test_floors_that_nothing_keeps_are_told(request_):
    with pytest.raises(InfeasibleError, match="fast enough"):
        explore(replace(request_, min_throughput=1e9))


def test_stopped_early_it_tells_a_bound(request_, fastest_s, resources):
    """And what is told of a search without floors is the least there is."""
    found = 0
    floored = replace(request_, min_throughput=0.9 * request_.task.cluster.global_batch / fastest_s())
    whole = explore(floored, resources=resources).document.best.workloads["tiny"].memory_bytes
    for looks in range(1, 200, 50):
        try:
            c = explore(floored, clock=StopsSoon(looks), resources=resources).document.certificate
        except OutOfTimeError:
            continue
        found += not c.optimal
        assert c.objective_value <= (1 + 1e-9) / whole <= c.upper_bound * (1 + 2e-9)
        assert c.optimal or c.pruned_by.keys() == {"open"}
    assert found


def test_a_run_is_checked_and_explained(request_, answer):
    names = list(answer.designs)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*answer.designs.values(), strict=True)]
    report = certify("run", request_, answer.document, rows, 4, 0)
    assert not [check for check in report.checks if not check.passed]
    told = explain(request_, answer.document)
    assert told.id == answer.document.best.id


def test_what_does_not_fit_into_the_memory_of_others_is_told(request_):
    """Of chips that are held to what the leanest plan of another one needs."""
    task = replace(request_.task, memory_bytes=2.0**20)
    with pytest.raises(InfeasibleError, match=r"no plan needs as little as 0\.0009766 GiB"):
        evaluate(task, chips(request_)[0])
