"""The best of all plans and all choices of what hosts keep, against every one tried in turn; bounds of such plans."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import inf, isclose

import numpy as np
import pytest
from every_plan import brute_force_s
from strategy_cases import estimator, framework, small_gpt

from phaze.parallel.parallel_plan import Offload, RankOrder, Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.plan_batches.memory_fit import fits
from phaze.parallel.plan_batches.plan_batch import IterationBatch, batch_iterations
from phaze.parallel.plan_search.best_first_search import best_plans, leanest
from phaze.parallel.plan_search.plan_lower_bounds import rest_s
from phaze.parallel.plan_search.screened_plans import screened_plans
from phaze.parallel.plan_space import PlanSpace

ALL = tuple(frozenset(some) for n in range(4) for some in combinations(Offload, n))
SPACE = PlanSpace(
    microbatches=(1, 2),
    tensor=(1, 2),
    sequence=(False,),
    chunks=(1, 2),
    schedules=(Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED, Schedule.ZB_H1),
    zeros=(Zero.NONE, Zero.OPTIMIZER, Zero.WEIGHTS),
    orders=(RankOrder.DATA_INNER,),
    offloads=ALL,
)
FEW = replace(
    SPACE,
    microbatches=(2,),
    chunks=(1,),
    schedules=(Schedule.ONE_F_ONE_B, Schedule.ZB_H1),
    zeros=(Zero.NONE, Zero.WEIGHTS),
)
LAUNCHES = {"dispatch_s": 2e-4, "dispatch_backward_s": 3e-4, "microbatch_s": 1e-3}
HIDES = {"hides_gathers": True, "hides_reduction": True, "interference": 0.2, "hides_offload": True}
SWAPPED = replace(
    FEW,
    microbatches=(1,),
    tensor=(1,),
    chunks=(1, 2),
    zeros=(Zero.NONE,),
    schedules=(Schedule.ONE_F_ONE_B, Schedule.BREADTH_FIRST),
    offloads=(ALL[0], *(some for some in ALL if Offload.WEIGHTS in some)),
)
SOFTWARE = {
    "ideal": {},
    "hides": HIDES,
    "hides offload": {"hides_offload": True},
    "hides gathers, launches": {"hides_gathers": True} | LAUNCHES,
    "launches beside": LAUNCHES | HIDES,
}
HOSTS = {
    "as it is": {},
    "fast": {"host_bandwidth_bytes_per_s": 1e12, "host_memory_bandwidth_bytes_per_s": 1e13},
}


def case(said, host, layers=2, **rest):
    found = estimator(devices=4, batch=8, software=framework(**said), workload=small_gpt(layers), **rest)
    for name, value in host.items():
        found.table.columns[name][:] = value
    return found


@pytest.mark.parametrize("said", [SOFTWARE["ideal"], SOFTWARE["launches beside"]], ids=["ideal", "real"])
@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
@pytest.mark.parametrize("tight", [1.0, 0.5])
def test_no_plan_is_faster(said, host, tight):
    e = case(said, host)
    least = best_plans(e, FEW, 0.0).least_memory_bytes
    plain = best_plans(e, replace(FEW, offloads=ALL[:1]), 0.0).least_memory_bytes
    assert least < plain
    capacity = least + tight * (plain - least)
    found = best_plans(e, FEW, capacity)
    assert isclose(found.best[0].iteration.iteration_s, brute_force_s(e, FEW, capacity), rel_tol=1e-9)
    assert found.best[0].iteration.memory_bytes <= capacity
    assert found.best[0].plan.offload or tight == 1.0
    assert found.account.evaluated < found.account.total / 4


@pytest.mark.parametrize("said", [SOFTWARE["ideal"], SOFTWARE["hides"]], ids=["ideal", "hides"])
@pytest.mark.parametrize("link", [2e9, 32e9])
def test_no_plan_is_faster_where_chunks_may_be_swapped(said, link):
    e = case(said, {"host_bandwidth_bytes_per_s": link})
    least = best_plans(e, SWAPPED, 0.0).least_memory_bytes
    swaps = []
    for capacity in (1.01 * least, 2 * least, 4 * least):
        found = best_plans(e, SWAPPED, capacity)
        assert isclose(found.best[0].iteration.iteration_s, brute_force_s(e, SWAPPED, capacity), rel_tol=1e-9)
        swaps.append(found.best[0].plan.schedule.chunk_by_chunk)
    assert swaps == [False, False, True]  # it takes room for the activations of all microbatches


def test_a_small_host_takes_less():
    """The best plan for every room on the host, the smallest of which takes nothing."""
    e = case({}, {})
    capacity = 0.9 * best_plans(e, replace(FEW, offloads=ALL[:1]), 0.0).least_memory_bytes
    last = 0.0
    for room in (inf, 5e7, 2e7):
        e.table.columns["host_memory_capacity_bytes"][:] = room
        found = best_plans(e, FEW, capacity)
        seconds = found.best[0].iteration.iteration_s if found.best else inf
        assert seconds == pytest.approx(brute_force_s(e, FEW, capacity), rel=1e-9)
        assert seconds >= last
        assert not found.best or found.best[0].iteration.host_bytes <= room
        last = seconds
    assert last == inf
    assert room < found.least_host_bytes < inf


@pytest.mark.parametrize("said", SOFTWARE.values(), ids=SOFTWARE)
@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
def test_no_iteration_is_shorter_than_its_bounds(said, host):
    e, seen = case(said, host, layers=4), 0
    first = leanest(e, ALL)
    for some in list(screened_plans(e, SPACE))[::9]:
        variants = tuple(SPACE.variants(some.plan))
        rests = dict(zip(variants, rest_s(e, [(v,) for v in variants]), strict=True))
        floor_s = some.bound_s + min(rests[v] for v in variants if v.offload in first)
        for variant in variants:
            (fit,) = fits(e.layouts, variant, (variant.zero,), inf, e.host_capacity_bytes(variant))
            least_s = e.iteration(fit.plan).iteration_s * (1 + 1e-12)
            assert floor_s <= some.bound_s + rests[variant] * (1 + 1e-12)
            assert some.bound_s + rests[variant] <= least_s
            assert IterationBatch(e, (fit.plan,)).bounds_s() <= least_s
            seen += 1
    assert seen > 50


def test_many_at_once_are_as_one_by_one():
    e = case({}, {})
    every = [variant for some in screened_plans(e, SPACE) for variant in SPACE.variants(some.plan)][::7]
    found = batch_iterations(e, every)
    one_by_one = [e.iteration(variant) for variant in every]
    assert found.iteration_s == pytest.approx([one.iteration_s for one in one_by_one], rel=1e-9)
    assert found.memory_bytes == pytest.approx([one.memory_bytes for one in one_by_one], rel=1e-9)


def test_offload_is_looked_at_first_only_where_hosts_step_faster():
    assert leanest(case({}, {}), ALL) == {frozenset()}
    assert leanest(case({}, {}), ALL[1:]) == {frozenset({what}) for what in Offload}
    fast = leanest(case({}, HOSTS["fast"]), ALL)
    assert fast == {
        frozenset(),
        frozenset({Offload.OPTIMIZER}),
        frozenset({Offload.WEIGHTS, Offload.OPTIMIZER}),
    }


def test_more_host_bandwidth_is_never_slower():
    said, last = SOFTWARE["hides"], inf
    plain = best_plans(case(said, {}), replace(FEW, offloads=ALL[:1]), 0.0).least_memory_bytes
    for each in (1e9, 16e9, 64e9, 450e9):
        names = ("host_bandwidth_bytes_per_s", "host_memory_bandwidth_bytes_per_s")
        found = best_plans(case(said, dict.fromkeys(names, each)), FEW, 0.8 * plain)
        assert found.best[0].iteration.iteration_s < last
        last = found.best[0].iteration.iteration_s
    assert np.isfinite(last)
