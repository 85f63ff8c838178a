"""How many accelerators under one budget: every number of the grid against brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_cases import FEW_ARRAYS, StopsSoon

from phaze.cost.cost_model import CostModel
from phaze.errors import InfeasibleError, InputError, OutOfTimeError
from phaze.explore.answers.cluster_exploration import (
    MOST_DEVICES,
    affordable_counts,
    device_counts,
    with_devices,
)
from phaze.explore.answers.exploration import Exploration
from phaze.explore.answers.main_job import explore
from phaze.explore.certified.workload_bounds import roofline_throughput
from phaze.explore.evaluation.best_points import best_points
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.request.explore_request import (
    Budgets,
    ClusterBudget,
    ExploreRequest,
    Objective,
    Task,
    TrainingLength,
)
from phaze.explore.request.search_progress import SilentProgress
from phaze.hardware.economics.package_price import price_usd
from phaze.hardware.spaces.space_file import load_space
from phaze.scheduling.passes import SolveLimits

BUDGET = ClusterBudget(power_w=1100.0, overhead=1.1)
TIGHT = ClusterBudget(power_w=700.0, overhead=1.1, cost_usd=8000.0)


@pytest.fixture(scope="module")
def request_(tiny, network, tmp_path_factory):
    path = tmp_path_factory.mktemp("spaces") / "few.yaml"
    path.write_text(FEW_ARRAYS)
    return ExploreRequest(
        Task(tiny, 1, network),
        load_space(path),
        time_limit_s=600.0,
        cluster=BUDGET,
        length=TrainingLength(tokens=256e6),
    )


@pytest.fixture(scope="module")
def document(request_):
    return explore(request_).document


def best_of(request_, devices):
    """The highest throughput of any architecture that so many devices leave budgets for; 0 where there is none."""
    part = with_devices(request_, request_.cluster, devices)
    candidates = Candidates(part.space, part.budgets)
    block = candidates.within(range(candidates.size))
    if not len(block):
        return 0.0
    found = best_points(Evaluator(part.task, block.table), np.arange(len(block)), SolveLimits(lambda: np.inf))
    return part.task.cluster.global_batch / float(found.upper_s.min())


def test_the_grid():
    assert device_counts(20) == (1, 2, 3, 4, 6, 8, 12, 16)
    assert device_counts(65536)[-1] == 65536


def test_the_best_number_of_devices_is_that_of_brute_force(document, request_):
    check(document, request_)


def test_money_limits_the_number_of_devices_too(request_):
    tight = replace(request_, cluster=TIGHT)
    document = explore(tight).document
    check(document, tight)
    assert document.cluster.cost_usd <= TIGHT.cost_usd
    assert document.cluster.choices[-1].devices == 3
    rich = with_devices(request_, replace(TIGHT, cost_usd=None), 4)
    assert len(Candidates(rich.space, rich.budgets).all())


def check(document, request_):
    truth = {devices: best_of(request_, devices) for devices in device_counts(16)}
    best = max(truth, key=truth.__getitem__)
    assert document.certificate.optimal
    assert document.certificate.objective_value == pytest.approx(truth[best], rel=1e-9)
    assert document.cluster.devices == best
    assert document.cluster.power_w <= request_.cluster.power_w
    assert [choice.devices for choice in document.cluster.choices] == [n for n in truth if truth[n] > 0]
    for choice in document.cluster.choices:
        assert choice.upper_bound_samples_per_s >= truth[choice.devices] * (1 - 1e-9)


def test_the_counts_cover_every_number_of_devices(document):
    c = document.certificate
    assert c.space_size == c.over_budget + c.pruned + c.evaluated
    assert sum(c.pruned_by.values()) == c.pruned


def test_a_training_run_follows_from_throughput_energy_and_price(document, request_):
    run, best = document.training_run, document.best
    result = best.workloads["tiny"]
    assert run.samples == 1e6
    assert run.duration_s == pytest.approx(1e6 / result.throughput_samples_per_s)
    assert run.energy_j == pytest.approx(1e6 / result.global_batch * result.energy_per_iteration_j)
    assert run.facility_energy_j == sum(run.energy_parts_j.values())
    assert run.electricity_usd == pytest.approx(run.facility_energy_j / 3.6e6 * run.usd_per_kwh)
    candidates = Candidates(request_.space, request_.budgets)
    chip = price_usd(candidates.table([candidates.number(best.architecture)]))[0]
    assert run.chip_usd == pytest.approx(chip)
    used_s = run.lifetime_s * request_.task.economics["utilisation"]
    assert run.chips_usd == pytest.approx(chip * result.devices * run.duration_s / used_s)
    assert run.total_usd == sum(run.cost_parts_usd.values())
    assert run.carbon_kg == sum(run.carbon_parts_kg.values())
    assert run.total_usd == pytest.approx(1e6 * result.cost.cost_per_sample_usd)


def test_a_budget_too_small_for_one_device_names_the_smallest(request_):
    with pytest.raises(InfeasibleError) as caught:
        explore(replace(request_, cluster=replace(BUDGET, power_w=50.0)))
    (short,) = caught.value.shortfalls
    least = min(b.tdp_w.min() for b in Candidates(request_.space, request_.budgets).blocks())
    assert short.demand == pytest.approx(least * BUDGET.overhead)


def test_shortfalls_are_those_of_the_budgets_that_are_too_small(request_):
    candidates = Candidates(request_.space, request_.budgets)
    least = float(price_usd(candidates.table(range(candidates.size))).min())
    with pytest.raises(InfeasibleError) as caught:
        explore(replace(request_, cluster=ClusterBudget(power_w=900.0, cost_usd=0.9 * least)))
    (short,) = caught.value.shortfalls
    assert (short.what, short.demand, short.unit) == ("cost of the cluster", pytest.approx(least), "USD")
    with pytest.raises(InfeasibleError) as caught:
        explore(replace(request_, cluster=BUDGET, budgets=Budgets(power_w=50.0)))
    (short,) = caught.value.shortfalls
    assert (short.what, short.limit) == ("power", 50.0)


def test_a_floor_rules_numbers_of_devices_out(request_):
    request_ = replace(request_, cluster=replace(BUDGET, power_w=300.0))
    best = max(best_of(request_, devices) for devices in device_counts(8))
    within = replace(request_, min_throughput=0.999 * best)
    found = explore(within).document
    assert found.certificate.optimal
    assert found.certificate.objective_value == pytest.approx(best, rel=1e-9)
    assert found.certificate.pruned_by["floor"] > 0
    with pytest.raises(InfeasibleError, match="is fast enough on none of 1 to"):
        explore(replace(within, min_throughput=1.001 * best))


def test_questions_that_a_cluster_cannot_answer(request_):
    with pytest.raises(InputError, match="one --workload"):
        explore(replace(request_, objective=Objective.TDP))
    with pytest.raises(InputError, match="--samples"):
        TrainingLength(tokens=1e9).samples_of(replace(request_.task, workload=_Images()))


class _Images:  # a workload whose samples are no sequences
    name, sequence_length = "images", None


def test_of_equally_good_numbers_of_devices_the_fewest_win(request_):
    """One sample that is not spread over anything: more devices than one idle."""
    alone = {"tensor": (1,), "pipeline": (1,)}
    task = replace(request_.task, global_batch=1, held=alone)
    document = explore(replace(request_, task=task, length=None)).document
    assert max(choice.devices for choice in document.cluster.choices) > 1
    assert document.cluster.devices == 1
    assert document.certificate.optimal


@pytest.mark.parametrize("budget", [BUDGET, TIGHT])
@pytest.mark.parametrize("dvfs", [False, True])
def test_every_number_of_devices_counts_the_architectures_that_keep_its_budgets(request_, budget, dvfs):
    asked = replace(request_, budgets=Budgets(dvfs=dvfs))
    found = affordable_counts(asked, budget, SilentProgress())
    for choice in found:
        block = choice.candidates.within(range(choice.candidates.size))
        assert choice.within == len(block)
        assert choice.bound == roofline_throughput(Evaluator(choice.request.task, block.table)).max()
    beyond = with_devices(asked, budget, device_counts(MOST_DEVICES)[len(found)])
    assert not len(Candidates(beyond.space, beyond.budgets).within(range(4)))


def test_bounds_of_numbers_of_devices_hold_and_tighten(request_):
    """Where plans leave devices idle, their bound falls below the roofline."""
    alone = replace(request_.task, global_batch=3, held={"tensor": (1,), "pipeline": (1, 2)})
    for task in (request_.task, alone):
        asked = replace(request_, task=task)
        found = affordable_counts(asked, BUDGET, SilentProgress())
        like = Evaluator(found[-1].request.task, found[-1].candidates.survey())
        for choice in found:
            roof = choice.bound
            choice.refine(like)
            assert best_of(asked, choice.devices) <= choice.bound <= roof
    assert found[-1].bound < 0.9 * roof


def test_numbers_of_devices_share_what_layers_cost(request_, monkeypatch):
    """Layers are costed for one number of devices, and figures are those of an evaluator of its own."""
    one, other = (with_devices(request_, BUDGET, devices).task for devices in (4, 6))
    table = Candidates(request_.space, request_.budgets).survey()
    like, rows, effort = Evaluator(one, table), np.arange(len(table)), SolveLimits(lambda: np.inf)
    best_points(like, rows, effort)
    costed = []
    costs = CostModel.costs
    monkeypatch.setattr(CostModel, "costs", lambda self, pass_: costed.append(pass_) or costs(self, pass_))
    shared = best_points(like.of(other), rows, effort)
    known = len(costed)
    alone = best_points(Evaluator(other, table), rows, effort)
    assert known < len(costed) - known
    assert (shared.upper_s == alone.upper_s).all()
    assert shared.configs == alone.configs


def test_only_numbers_of_devices_that_may_win_are_searched(request_, monkeypatch):
    searched = []
    fastest = Exploration.fastest
    monkeypatch.setattr(
        Exploration, "fastest", lambda self, least: searched.append(least) or fastest(self, least)
    )
    found = explore(request_).document
    assert 0 < len(searched) < len(found.cluster.choices)


def test_stopped_early_undecided_points_are_no_pruned_ones(request_):
    """Nor is a frontier complete while numbers of devices are open."""
    stopped = 0
    for looks in (20, 60, 120, 200):
        try:
            c = explore(request_, clock=StopsSoon(looks)).document.certificate
        except OutOfTimeError:
            continue
        open_ = c.pruned_by.get("open", 0)
        assert c.space_size == c.over_budget + c.pruned + c.evaluated
        assert sum(c.pruned_by.values()) == c.pruned
        assert not (open_ and c.frontier_complete)
        assert c.optimal or open_
        stopped += open_ > 0
    assert stopped


def test_without_time_for_the_frontier_the_best_number_of_devices_is_proven(request_, monkeypatch):
    def late(self):
        raise OutOfTimeError("late")

    whole = explore(request_).document
    monkeypatch.setattr(Exploration, "search", late)
    found = explore(request_).document
    assert found.certificate.optimal
    assert not found.certificate.frontier_complete
    assert found.best == whole.best
    assert [point.id for point in found.frontier] == [found.best.id]
