"""The best plan under the ideal framework: more of anything never hurts, and a choice fixed never helps."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from itertools import pairwise
from math import inf, isclose

import pytest
from every_plan import brute_force_s
from strategy_cases import estimator, small_gpt

from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import two_tiers
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.parallel.cluster import Cluster, Recompute
from phaze.parallel.parallel_plan import Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.workload.workload_loader import load_workload

SPACE = PlanSpace(microbatches=(1, 2), tensor=(1, 2), chunks=(1, 2))
SLACK = 1 + 1e-12
MODELS = {
    "dense": lambda: small_gpt(5, tied=True),
    "experts": lambda: small_gpt(4, experts=4),
}


@cache
def case(name):
    return estimator(8, 16, workload=MODELS[name]())


def best_s(e, space, capacity=inf):
    """Seconds of the best plan, inf where none fits."""
    found = best_plans(e, space, capacity).best
    return found[0].iteration.iteration_s if found else inf


def capacities(e):
    """From what leaves few plans to what leaves all."""
    most = best_plans(e, SPACE, inf).best[0].iteration.memory_bytes
    return [share * most for share in (0.4, 0.5, 0.7, 0.9, 1.0, 2.0)]


@pytest.mark.parametrize("model", MODELS)
def test_more_memory_never_makes_the_best_plan_slower(model):
    e = case(model)
    times = [best_s(e, SPACE, capacity) for capacity in capacities(e)]
    assert all(less >= more for less, more in pairwise(times))
    assert times[-1] < inf
    assert times[0] > times[-1]


@pytest.mark.parametrize("model", MODELS)
def test_a_faster_link_never_makes_the_best_plan_slower(model):
    e = case(model)
    times = []
    for bandwidth, latency in ((5e9, 5e-6), (10e9, 5e-6), (25e9, 5e-6), (25e9, 1e-6), (100e9, 1e-6)):
        told = two_tiers(4, None, 1e-6, bandwidth, latency)
        faster = Estimator(e.workload, e.table, replace(e.cluster, network=told), e.framework)
        times.append(best_s(faster, SPACE, capacities(e)[2]))
    assert all(slow * SLACK >= fast for slow, fast in pairwise(times))


def fixings(space, e):
    """The space with each choice held at each of its values; only the most replicas are tried."""
    most = 8
    open_ = {"pipeline": range(1, most + 1), "pipelined_zeros": space.zeros}
    for f in fields(PlanSpace):
        if f.name in (
            "frugal",
            "by_layer",
            "balances",
            "equal",
            "ragged",
            "data",
            "offloads",
            "whole",
            "branches",
        ):
            continue
        for value in open_.get(f.name, getattr(space, f.name)):
            yield f.name, value, replace(space, **{f.name: (value,)})
    for equal in (False, True):
        yield "equal", equal, replace(space, equal=equal, balances=not equal)


@pytest.mark.parametrize(("model", "tight"), [("dense", 1), ("experts", 4)])
def test_a_choice_that_is_fixed_never_makes_the_best_plan_faster(model, tight):
    e = case(model)
    capacity = capacities(e)[tight]
    space = replace(SPACE, context=(1, 2), expert=(1, 2) if model == "experts" else (1,))
    free = best_s(e, space, capacity)
    held = {}
    for name, value, narrow in fixings(space, e):
        held.setdefault(name, []).append(best_s(e, narrow, capacity))
        assert held[name][-1] * SLACK >= free, (name, value)
    for name, times in held.items():
        assert isclose(min(times), free, rel_tol=1e-12), name


@pytest.mark.parametrize("model", MODELS)
def test_a_kind_of_recompute_that_is_fixed_never_makes_the_best_plan_faster(model):
    """Held by a user, full recompute is that of all blocks."""
    e, space = case(model), replace(SPACE, recomputes=(Recompute.FULL, Recompute.SELECTIVE))
    for capacity in capacities(e)[1:4]:
        free = best_s(e, space, capacity)
        for recompute in Recompute:
            assert best_s(e, replace(space, recomputes=(recompute,), frugal=False), capacity) * SLACK >= free


@pytest.mark.parametrize(("layers", "tied"), [(5, False), (5, True), (7, False)])
def test_every_depth_of_a_pipeline_is_looked_at(layers, tied):
    """Against every plan tried in turn: a head weighs as much as blocks, so that one stage more may pay.

    Five blocks in four stages have two in the longest, as in three; the fourth stage leaves the head alone with one.
    """
    e = estimator(layers, 32, workload=small_gpt(layers, tied=tied))
    space = PlanSpace(
        microbatches=(1,),
        tensor=(1,),
        chunks=(1,),
        recomputes=(Recompute.SELECTIVE,),
        frugal=False,
        zeros=(Zero.NONE,),
        schedules=(Schedule.ONE_F_ONE_B, Schedule.GPIPE),
    )
    for narrow in (space, replace(space, data=(1,))):
        assert isclose(best_s(e, narrow), brute_force_s(e, narrow, inf), rel_tol=1e-9)
        depths = [best_s(e, replace(narrow, pipeline=(depth,))) for depth in range(1, layers + 1)]
        assert min(depths) == best_s(e, narrow)


def test_the_best_depth_of_gpt_3_is_found_whether_it_is_fixed_or_not():
    """Twenty-five stages have as many blocks in the longest as twenty-four, but fewer beside the head."""
    workload, chip = load_workload("gpt3"), to_table([load_architecture("h100")])
    e = estimator(1024, 1536, "h100", workload=workload)
    e = replace(e, cluster=Cluster(1024, 1536, e.cluster.network))
    space = PlanSpace(
        microbatches=(1, 2),
        tensor=(1, 2, 4),
        sequence=(False,),
        schedules=(Schedule.ONE_F_ONE_B,),
        chunks=(1,),
        zeros=(Zero.NONE,),
    )
    capacity = float(hbm_capacity_bytes(chip)[0])
    free = best_s(e, space, capacity)
    for depth in (24, 25, 26, 32, 33):
        assert best_s(e, replace(space, pipeline=(depth,)), capacity) * SLACK >= free
