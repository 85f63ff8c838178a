"""More of anything never hurts; what is dominated is dominated; the checker sees every kind of fault."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import ceil, inf

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from placement_cases import cases, plan_s

from phaze.placement.checker import PlanError, check_plan
from phaze.placement.cluster import Recompute, data_degrees

SMALL = settings(max_examples=100, deadline=None, derandomize=True)
factors = st.sampled_from([1.01, 1.5, 4.0])


def no_slower(better, worse):
    return better.iteration_s() <= worse.iteration_s() * (1 + 1e-12)


@SMALL
@given(cases(), factors)
def test_more_memory_is_never_slower(case, factor):
    assert no_slower(case.change(memory_bytes=case.planner.memory_bytes * factor), case)


@SMALL
@given(cases(), factors)
def test_more_bandwidth_is_never_slower(case, factor):
    network = case.planner.cluster.network
    assert no_slower(replace(case, link=case.link * factor), case)
    for tier in ("scale_up", "scale_out"):
        name = f"{tier}_bandwidth_bytes_per_s"
        if getattr(network, name) is not None:
            assert no_slower(case.in_network(**{name: getattr(network, name) * factor}), case)
        assert no_slower(case.in_network(**{f"{tier}_latency_s": 0.0}), case)


@SMALL
@given(cases(), st.integers(1, 9))
def test_more_devices_are_never_slower(case, more):
    cluster = case.planner.cluster
    assert no_slower(case.change(cluster=replace(cluster, devices=cluster.devices + more)), case)


@SMALL
@given(cases(), st.integers(0, 1), st.integers(1, 5))
def test_faster_layers_are_never_slower(case, which, divisor):
    name = ("forward_s", "backward_s")[which]
    quicker = tuple(seconds / divisor for seconds in getattr(case, name))
    assert no_slower(replace(case, **{name: quicker}), case)


@SMALL
@given(cases(max_layers=5), st.data())
def test_a_data_degree_that_is_not_listed_is_dominated(case, data):
    """Fewer pipelines with as many microbatches each, on the same tiers, take no longer."""
    planner = case.planner
    cluster, width = planner.cluster, planner.chain.tensor_parallel
    total = cluster.global_batch // planner.chain.microbatch
    options = planner.options
    layers = len(planner.index)
    cuts = data.draw(st.sets(st.integers(1, layers - 1)) if layers > 1 else st.just(set()))
    ends = (0, *sorted(cuts), layers)
    d = data.draw(st.integers(1, total))
    assume(d * width * (len(ends) - 1) <= cluster.devices)
    listed = {int(x) for x in options.data_parallel if x <= d}
    at_least_as_good = [x for x in listed if ceil(total / x) == ceil(total / d)]
    assert min((plan_s(case, x, ends) for x in at_least_as_good), default=inf) <= plan_s(case, d, ends)


@given(st.integers(1, 200), st.integers(1, 200))
def test_data_degrees_are_the_smallest_of_their_kind(devices, microbatches):
    pairs = list(data_degrees(devices, microbatches))
    assert {each for _, each in pairs} == {
        ceil(microbatches / d) for d in range(1, min(devices, microbatches) + 1)
    }
    for d, each in pairs:
        assert each == ceil(microbatches / d)
        assert d == 1 or ceil(microbatches / (d - 1)) > each
    assert all(a < b for (a, _), (b, _) in pairwise(pairs))


def tampered(plan):
    """Every kind of wrong plan, each with what the complaint must mention."""
    first, *rest = plan.stages

    def stage(**what):
        return replace(plan, stages=(replace(first, **what), *rest))

    yield replace(plan, microbatch=plan.microbatch + 1), "microbatch size"
    yield replace(plan, tensor_parallel=plan.tensor_parallel * 2), "tensor-parallel"
    yield replace(plan, data_parallel=0), "pipelines"
    yield replace(plan, microbatches=plan.microbatches + 1), "microbatches per pipeline"
    yield replace(plan, stages=()), "cover"
    yield replace(plan, stages=(*plan.stages, plan.stages[-1])), "devices|cover"
    yield stage(first=first.first + 1), "cover"
    yield stage(recompute=not first.recompute), "recompute"
    yield stage(load_s=first.load_s + 1e-3), "load"
    yield stage(transfer_s=first.transfer_s + 1e-3), "transfers"
    yield stage(parameters=first.parameters + 1), "parameters"
    yield stage(memory_bytes=first.memory_bytes + 1), "memory"
    yield replace(plan, reduction_s=plan.reduction_s + 1e-3), "reduction"
    yield replace(plan, optimizer_s=plan.optimizer_s + 1e-3), "optimizer"
    yield replace(plan, iteration_s=plan.iteration_s * 0.999 - 1e-3), "iteration time"


@settings(SMALL, max_examples=40)
@given(cases())
def test_the_checker_refuses_every_tampered_plan(case):
    plan = case.best()
    assume(plan is not None)
    premises = case.planner.premises(case.times, case.rates)
    check_plan(plan, premises)
    for wrong, complaint in tampered(plan):
        with pytest.raises(PlanError, match=complaint):
            check_plan(wrong, premises)
    less = replace(premises, memory_bytes=plan.memory_bytes * 0.99)
    if plan.memory_bytes > 0 and plan.recompute is Recompute.NONE:
        with pytest.raises(PlanError, match="do not fit"):
            check_plan(plan, less)
    if plan.devices_used > 1:
        fewer = replace(premises.cluster, devices=plan.devices_used - 1)
        with pytest.raises(PlanError, match="devices of"):
            check_plan(plan, replace(premises, cluster=fewer))


@settings(SMALL, max_examples=10)
@given(cases())
def test_no_plan_is_reported_unchecked(case):
    plan = case.best()
    assume(plan is not None)
    wrong = replace(plan, iteration_s=plan.iteration_s * 0.9 - 1e-3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("phaze.placement.planner.Iterations.plans", lambda *_: [wrong])
        with pytest.raises(PlanError, match="iteration time"):
            case.best()
