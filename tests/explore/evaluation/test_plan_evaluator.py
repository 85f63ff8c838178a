"""Plans of many architectures at once against every one alone, and the search over architectures and plans."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from small_cases import StopsSoon, certified, varied_architectures

from phaze.explore.certified.workload_bounds import iteration_bounds
from phaze.explore.evaluation import design_builder, memory_shortfall
from phaze.explore.evaluation import evaluator as evaluator_module
from phaze.explore.evaluation.best_points import best_points
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.flops_utilisation import fastest_flops_per_s
from phaze.explore.evaluation.planned_iteration import PlannedIteration, energies_j, estimator_of
from phaze.explore.request.explore_request import Budgets, Task
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import two_tiers
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.parallel.cluster import Recompute
from phaze.parallel.framework import Framework, load_framework
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.training.iteration_energy import ChainEnergy
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.scheduling.layers import TimedChain
from phaze.scheduling.passes import SolveLimits
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.workload_loader import load_workload

EFFORT = SolveLimits(lambda: inf, states=1e5)
NETWORK = two_tiers(2, None, 1e-6, 10e9, 5e-6)
PLAIN = Framework(name="plain", source="hides nothing")
HIDES = {
    "hides_transfers": True,
    "hides_reduction": True,
    "hides_gathers": True,
    "tensor_overlap": "chunked",
    "interference": 0.2,
}
LAUNCHES = {"dispatch_s": 2e-4, "dispatch_backward_s": 3e-4, "microbatch_s": 1e-3}
SOFTWARE = {
    "nothing hides": PLAIN,
    "ideal": load_framework("ideal"),
    "hides": PLAIN.model_copy(
        update={**HIDES, "tensor_overlap": load_framework("maxtext-2024").tensor_overlap}
    ),
    "launches": PLAIN.model_copy(update=LAUNCHES),
}


def small_task(tiny, **changes):
    task = Task(tiny, 4, NETWORK, global_batch=4, framework=PLAIN)
    return replace(task, **changes)


def alone(task, table, row):
    """The best plan of one architecture by the search for one, and what estimates its plans."""
    one = table.take(np.array([row]))
    estimator = Estimator(task.workload, one, task.cluster, task.framework)
    limit = task.framework.usable_memory * float(hbm_capacity_bytes(one)[0])
    return best_plans(estimator, task.plan_space, limit), estimator


@pytest.mark.parametrize("software", SOFTWARE)
@pytest.mark.parametrize("capacity", [None, 0.12e9])
def test_best_plans_are_those_of_each_architecture_alone(tiny, software, capacity):
    task = small_task(tiny, framework=SOFTWARE[software])
    table = varied_architectures().take(np.arange(0, 48, 13))
    if capacity is not None:
        table = table.replace(hbm_capacity_bytes=np.full(len(table), capacity))
    rows = np.arange(len(table))
    evaluator = Evaluator(task, table)
    found = best_points(evaluator, rows, EFFORT)
    for row in rows.tolist():
        expected, one = alone(task, table, row)
        if not expected.best:
            assert found.configs[row] is None
            continue
        assert found.upper_s[row] == pytest.approx(expected.best[0].iteration.iteration_s, rel=1e-12)
        assert found.lower_s[row] == found.upper_s[row]
        (plan,) = evaluator.plans(found.configs[row], np.array([row]), found.upper_s[[row]], EFFORT)
        assert one.iteration(plan.strategy).iteration_s == pytest.approx(plan.iteration_s, rel=1e-12)
        limit = task.framework.usable_memory * hbm_capacity_bytes(table)[row]
        assert one.iteration(plan.strategy).memory_bytes <= limit


@pytest.mark.parametrize("software", SOFTWARE)
def test_bounds_never_exceed_what_they_bound(tiny, software):
    task = small_task(tiny, framework=SOFTWARE[software])
    table = varied_architectures().take(np.arange(0, 48, 11))
    evaluator, rows = Evaluator(task, table), np.arange(len(table))
    never = np.full(len(rows), np.inf)
    for setting in evaluator.configs:
        exact = evaluator.exact(setting, rows, never, EFFORT).lower_s
        fits = np.isfinite(exact)
        least_s = evaluator.least_s(setting, exchanges=True)
        assert evaluator.least_s(setting) <= least_s * (1 + 1e-9) <= exact.min() * (1 + 2e-9)
        assert evaluator.known_least_s([setting], table.take(rows[1:])) == least_s
        one = Evaluator(task, table.take(rows[:1]))
        assert one.known_least_s([setting], table.take(rows[:1])) == 0.0 < one.least_s(setting)
        assert one.known_least_s([setting], table) == 0.0  # it knows nothing of their memories
        ladder = [
            evaluator.roofline_s(setting),
            evaluator.work_bound(setting, rows),
            evaluator.path_bound(setting, rows, np.full(len(rows), np.inf)),
            evaluator.iteration_bound(setting, rows),
            evaluator.iteration_bound(setting, rows, never),
            evaluator.unscheduled_bound(setting, rows, never),
            evaluator.bounds(setting, rows, never).lower_s,
        ]
        for bound in ladder:
            assert (bound[fits] <= exact[fits] * (1 + 1e-9)).all()
        assert (ladder[5] >= ladder[4] * (1 - 1e-9))[fits].all()
        assert (ladder[4] >= ladder[2] * (1 - 1e-9))[fits].all()
        assert np.isinf(ladder[4][~fits]).all()


@pytest.mark.parametrize("software", SOFTWARE)
@pytest.mark.parametrize("devices", [1, 4, 8])
def test_least_memory_that_is_told_is_that_of_the_leanest_plan(tiny, software, devices, monkeypatch):
    table = varied_architectures().take(np.arange(3))
    table = table.replace(hbm_capacity_bytes=np.full(len(table), 1e6))
    evaluator = Evaluator(small_task(tiny, framework=SOFTWARE[software], devices=devices), table)
    told = design_builder.out_of_memory(evaluator, "x")
    searched = []
    monkeypatch.setattr(
        memory_shortfall, "best_plans", lambda *asked: searched.append(1) or best_plans(*asked)
    )
    monkeypatch.setattr(design_builder, "_needs", lambda evaluator: None)
    expected = design_builder.out_of_memory(evaluator, "x")
    assert searched and str(told) == str(expected)
    assert told.shortfalls[0].demand == pytest.approx(expected.shortfalls[0].demand, rel=1e-12)


@pytest.mark.parametrize("software", SOFTWARE)
def test_exchanges_rule_out_what_is_too_slow_and_nothing_else(tiny, software):
    task = small_task(tiny, framework=SOFTWARE[software])
    evaluator = Evaluator(task, varied_architectures())
    rows = np.arange(len(evaluator.table))
    for config in evaluator.configs:
        assert not evaluator.fitted_once(config)
        bound_s = evaluator.exchange_bound(config, rows, np.full(len(rows), np.inf))
        assert evaluator.fitted_once(config)
        assert (bound_s <= evaluator.iteration_bound(config, rows) * (1 + 1e-9)).all()
        for share in (0.5, 0.9, 1.0, 1.1, 2.0):
            give_up_s = np.roll(bound_s, 3) * share  # some are far below, some far above
            known_s = evaluator.exchange_bound(config, rows, give_up_s)
            below = bound_s < give_up_s
            assert known_s[below] == pytest.approx(bound_s[below], rel=1e-12)
            assert ((known_s >= give_up_s) & (known_s <= bound_s * (1 + 1e-12)))[~below].all()


def test_points_among_others_take_what_they_take_alone(tiny):
    evaluator = Evaluator(small_task(tiny, framework=SOFTWARE["hides"]), varied_architectures())
    rows, config = np.arange(len(evaluator.table)), evaluator.configs[-1]
    points, times = evaluator.points(config, rows), evaluator.timed(config).path_bounds(rows)
    every, some = points.times(times), rows[1::7]
    parts = points.take(some[::-1]).take(np.arange(len(some))[::-1]).times(times.take(some))
    alone = evaluator.times(config, rows[some], times.take(some))
    for found in (parts, alone):
        assert (found.rows == every.rows[some]).all()
        assert (found.optimizer_s == every.optimizer_s[some]).all()


@pytest.mark.parametrize("software", ("nothing hides", "ideal"))
def test_bounds_of_all_configs_are_as_tight_as_is_of_interest(tiny, software, monkeypatch):
    evaluator = Evaluator(small_task(tiny, framework=SOFTWARE[software]), varied_architectures())
    rows, asked, bound = np.arange(len(evaluator.table)), [0], Evaluator.iteration_bound

    def counting(self, config, rows, give_up_s=None):
        asked[-1] += len(rows)
        return bound(self, config, rows, give_up_s)

    monkeypatch.setattr(Evaluator, "iteration_bound", counting)
    least_s = iteration_bounds(evaluator, rows).min(axis=0)
    for factor in (0.5, 1.0 + 1e-9, 3.0):
        asked.append(0)
        limit_s = least_s * np.where(rows % 2, factor, 2.0)
        found_s = iteration_bounds(evaluator, rows, limit_s).min(axis=0)
        of_interest = least_s < limit_s
        assert (found_s[of_interest] == least_s[of_interest]).all()
        assert (found_s >= np.minimum(least_s, limit_s)).all()
        assert (found_s <= least_s * (1 + 1e-9)).all()
    assert 0 < asked[1] < asked[0]


def test_bounds_of_schedules_know_what_cheaper_bounds_know():
    workload = load_workload("mobilenet-v2")
    evaluator = Evaluator(small_task(workload), varied_architectures())
    rows, timed = np.arange(len(evaluator.table)), evaluator.timed(evaluator.configs[0])
    (lower, upper), least = timed.bounds(rows), timed.lower_bounds(rows)
    for name in ("forward_s", "backward_s"):
        low, high = getattr(lower, name), getattr(upper, name)
        assert (low >= np.minimum(getattr(least, name), high)).all()
        assert (low <= high).all()
        assert (getattr(timed.path_bounds(rows), name) <= high * (1 + 1e-12)).all()


def test_points_that_fall_are_let_go_before_the_rest_of_their_passes(monkeypatch):
    counts, tighten = [], TimedChain.tighten

    def counting(self, which, rows, times, at, *limits):
        counts.append(tighten(self, which, rows, times, at, *limits))
        return counts[-1]

    evaluator = Evaluator(small_task(load_workload("resnet18")), varied_architectures())
    rows, config = np.arange(len(evaluator.table)), evaluator.configs[0]
    never = np.full(len(rows), np.inf)
    limit_s = evaluator.bounds(config, rows, never).lower_s * 0.95
    hopeful = rows[evaluator.hopeful(config, rows, limit_s)]
    lower, upper = evaluator.timed(config).rough(hopeful)
    open_ = (lower.forward_s < upper.forward_s).sum() + (lower.backward_s < upper.backward_s).sum()
    monkeypatch.setattr(TimedChain, "tighten", counting)
    assert np.isinf(evaluator.bounds(config, rows, limit_s).lower_s).all()
    assert 0 < sum(counts) < open_ * 3 / 4


def test_no_layer_is_costed_where_weights_alone_are_too_large(tiny, monkeypatch):
    table = varied_architectures().take(np.arange(0, 48, 13))
    small = table.replace(hbm_capacity_bytes=np.full(len(table), 1e6))
    task, rows = small_task(tiny), np.arange(len(table))
    evaluator = Evaluator(task, small)
    monkeypatch.setattr(Evaluator, "timed", None)
    for config in evaluator.configs:
        for bound in (evaluator.work_bound, evaluator.iteration_bound):
            assert (bound(config, rows) == inf).all()
    assert not alone(task, small, 0)[0].best


def test_points_that_cannot_be_the_best_are_not_scheduled(tiny, monkeypatch):
    table = varied_architectures()
    rows = np.arange(len(table))
    found = best_points(Evaluator(small_task(tiny), table), rows, EFFORT)
    monkeypatch.setattr(Evaluator, "hopeful", lambda self, config, rows, give_up_s: self.takes(config)[rows])
    every = best_points(Evaluator(small_task(tiny), table), rows, EFFORT)
    assert found.upper_s.tolist() == every.upper_s.tolist()
    assert found.evaluated < 0.8 * every.evaluated


def test_answers_do_not_depend_on_what_is_asked_together(tiny):
    task = small_task(tiny)
    table = varied_architectures().take(np.arange(0, 48, 4))
    evaluator, rows = Evaluator(task, table), np.arange(len(table))
    together = best_points(evaluator, rows, EFFORT)
    for some in (rows[::-3], rows[5:9]):
        part = best_points(Evaluator(task, table), some, EFFORT)
        assert part.upper_s.tolist() == together.upper_s[some].tolist()
        assert list(part.configs) == [together.configs[row] for row in some]
    shared = best_points(evaluator.on(table.take(rows[:6])), rows[:6], EFFORT)
    assert shared.upper_s.tolist() == together.upper_s[:6].tolist()


def test_what_cannot_be_beaten_is_left_alone(tiny):
    evaluator = Evaluator(small_task(tiny), varied_architectures())
    rows, setting = np.arange(len(evaluator.table)), evaluator.configs[0]
    exact = evaluator.exact(setting, rows, np.full(len(rows), np.inf), EFFORT).lower_s
    limit = np.where(rows % 2, exact * 1.01, exact * 0.99)
    again = evaluator.exact(setting, rows, limit, EFFORT).lower_s
    assert again[1::2].tolist() == exact[1::2].tolist()
    assert np.isinf(again[::2]).all()


def test_fixed_degrees_are_kept_and_never_better(tiny):
    table = to_table([load_architecture("tpuv4")])
    free = best_points(Evaluator(small_task(tiny), table), np.array([0]), EFFORT)
    held = {
        "pipeline": (2,),
        "tensor": (2,),
        "data": (2,),
        "microbatches": (2,),
        "recomputes": (Recompute.FULL,),
    }
    for name, values in held.items():
        task = small_task(tiny, held={name: values})
        evaluator = Evaluator(task, table)
        found = best_points(evaluator, np.array([0]), EFFORT)
        assert found.upper_s[0] >= free.upper_s[0] * (1 - 1e-12)
        (plan,) = evaluator.plans(found.configs[0], np.array([0]), found.upper_s, EFFORT)
        s = plan.strategy
        told = (s.pipeline_parallel, s.sharding.tensor, s.data_parallel, s.microbatch, s.recompute)
        assert dict(zip(held, told, strict=True))[name] == values[0]


def test_search_over_architectures_and_plans_equals_exhaustive_search(tiny, small_space):
    task = small_task(tiny)
    candidates = Candidates(small_space, Budgets(power_w=150.0))
    outcome = certified(candidates, task)
    assert outcome.finished
    block = candidates.all()
    expected = {}
    for row, number in enumerate(block.numbers.tolist()):
        if (answer := alone(task, block.table, row)[0]).best:
            expected[number] = task.cluster.global_batch / answer.best[0].iteration.iteration_s
    tdp = dict(zip(block.numbers.tolist(), block.tdp_w.tolist(), strict=True))
    frontier = [
        number
        for number, value in expected.items()
        if not any(tdp[n] <= tdp[number] and v > value * (1 + 1e-9) for n, v in expected.items())
    ]
    found = {number: outcome.evaluated[number, config].value for number, config in outcome.members}
    for number, value in found.items():
        assert value == pytest.approx(expected[number], rel=1e-9)
        assert number in frontier
    assert {round(value, 6) for value in found.values()} == {
        round(expected[number], 6) for number in frontier
    }
    counted = sum(outcome.pruned_by.values()) + len(outcome.evaluated)
    assert counted == outcome.in_budget * outcome.configs


@pytest.fixture(scope="module")
def whole(tiny, small_space):
    """A search that nothing stops."""
    candidates = Candidates(small_space, Budgets(power_w=150.0))
    return certified(candidates, small_task(tiny), block=32)


@pytest.mark.parametrize("looks", [1, 4, 8, 12, 20, 30, 60])
def test_a_search_that_stops_early_leaves_every_point_open_that_may_be_better(
    tiny, small_space, looks, whole
):
    task, candidates = small_task(tiny), Candidates(small_space, Budgets(power_w=150.0))
    part = certified(candidates, task, clock=StopsSoon(looks), block=32)
    counted = sum(part.pruned_by.values()) + len(part.evaluated)
    assert counted == part.in_budget * part.configs
    others, bound = part.undecided
    reached = max((one.value for one in part.evaluated.values()), default=0.0)
    for point in whole.members:
        one = whole.evaluated[point]
        value = one.value * (1 - 1e-9)
        assert reached >= value or (bound[others[:, 0] <= one.others[0]] >= value).any()
    assert part.finished == (not len(bound))
    assert looks < 60 or reached > 0


@pytest.mark.parametrize(
    "name", ["resnet18", "bert-base", "mixtral-8x7b", "dlrm", pytest.param("gnmt4", marks=pytest.mark.soak)]
)
def test_groups_of_layers_take_no_less_than_their_flops_at_peak(name):
    """Forward a third of them, as the bound of a whole pipeline assumes of what lies ahead of a device."""
    task = Task(load_workload(name), 64, NETWORK, global_batch=64)
    table = varied_architectures().take(np.arange(0, 48, 17))
    evaluator, rows = Evaluator(task, table), np.arange(len(table))
    for setting in evaluator.configs[:: max(1, len(evaluator.configs) // 3)]:
        options = evaluator.options(setting)
        chain, width = options.chain, options.shape.width
        times, peak = evaluator.least_times(setting, rows).rows, fastest_flops_per_s(table, task, None)
        for k, (first, last) in enumerate(options.kinds[0]):
            flops = sum(chain.layers[u].model_flops for u in chain.index[first : last + 1]) / width
            assert (times[:, 0, k] >= flops / 3 / peak * (1 - 1e-9)).all()
            assert (times[:, 0, k] + times[:, 2, k] >= flops / peak * (1 - 1e-9)).all()


def test_energies_of_plans_are_worked_out_side_by_side_and_are_those_of_each_alone(tiny, monkeypatch):
    """To the last bit, whatever the chips and plans; one call for all that have the same layers."""
    task, calls = small_task(tiny, framework=SOFTWARE["hides"]), []
    chips = to_table([load_architecture(name) for name in ("h100", "tpuv4", "a100-80gb", "phaze-reference")])
    each = estimator_of(task, chips).each()
    plans = [
        plan
        for width in (1, 2)
        for zero in (Zero.NONE, Zero.WEIGHTS)
        for plan in [ParallelPlan(1, 4 // width, sharding=Sharding(width), zero=zero)] * len(each)
    ]
    planned = [PlannedIteration.of(costs, plan) for costs, plan in zip(each * 4, plans, strict=True)]
    alone = [one.costs.energy_j(one.strategy, one.iteration) for one in planned]
    at_once = ChainEnergy.energy_j
    monkeypatch.setattr(
        ChainEnergy, "energy_j", lambda *given: calls.append(len(given[1])) or at_once(*given)
    )
    assert energies_j(planned) == alone
    assert calls == [2 * len(each)] * 2


@pytest.mark.parametrize("software", SOFTWARE)
def test_what_falls_before_its_operators_are_costed_would_have_fallen(tiny, software, monkeypatch):
    """Of many points tightened together the cheapest times rule out some; the others are those of a small batch."""
    evaluator = Evaluator(small_task(tiny, framework=SOFTWARE[software]), varied_architectures())
    rows, costed, points = np.arange(len(evaluator.table)), [], Evaluator.points
    for config in evaluator.configs:
        whole = evaluator.bounds(config, rows, np.full(len(rows), np.inf))
        give_up_s = np.full(len(rows), np.median(whole.lower_s[np.isfinite(whole.lower_s)]))
        apart = evaluator.bounds(config, rows, give_up_s)
        with monkeypatch.context() as patch:
            patch.setattr(evaluator_module, "MANY", 0)
            patch.setattr(
                Evaluator, "points", lambda self, c, at: costed.append(len(at)) or points(self, c, at)
            )
            together = evaluator.bounds(config, rows, give_up_s)
        np.testing.assert_array_equal(together.lower_s, apart.lower_s)
        np.testing.assert_array_equal(together.upper_s, apart.upper_s)
    assert sum(costed) < len(rows) * len(evaluator.configs)
