"""The planner against enumeration, on random small problems."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite, isinf

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from placement_cases import FREE, cases, optimum_s

from phaze.hardware.network import two_tiers
from phaze.placement.cluster import FixedDegrees
from phaze.placement.iterations import Iterations

SMALL = settings(max_examples=150, deadline=None, derandomize=True)
some = st.none() | st.integers(1, 4)
degrees = st.builds(FixedDegrees, data_parallel=some, pipeline_parallel=some)


@SMALL
@given(cases())
def test_iteration_time_equals_enumeration(case):
    assert case.iteration_s() == pytest.approx(optimum_s(case), rel=1e-9)


@SMALL
@given(cases(fixed=degrees))
def test_fixed_degrees_are_kept_to_the_letter(case):
    expected, fixed = optimum_s(case), case.planner.fixed
    assert case.iteration_s() == pytest.approx(expected, rel=1e-9)
    plan = case.best()
    assert (plan is None) == isinf(expected)
    if plan is not None:
        assert plan.data_parallel == (fixed.data_parallel or plan.data_parallel)
        assert plan.pipeline_parallel == (fixed.pipeline_parallel or plan.pipeline_parallel)


@SMALL
@given(cases(fixed=FREE | degrees))
def test_best_plan_attains_the_iteration_time(case):
    plan = case.best()  # has passed the independent checker
    assert (inf if plan is None else plan.iteration_s) == pytest.approx(case.iteration_s(), rel=1e-9)
    assert plan == case.best()


@SMALL
@given(cases(fixed=FREE | degrees))
def test_bounds_never_exceed_the_optimum(case):
    seconds = optimum_s(case)
    assert float(case.planner.quick_bound(case.times, case.rates)[0]) <= seconds
    if len(case.planner.roomy.stages):
        assert Iterations(case.planner, case.times, case.rates).lower.min() <= seconds


@SMALL
@given(cases(), st.floats(0.5, 2.0))
def test_giving_up_is_right(case, factor):
    seconds = case.iteration_s()
    assume(0 < seconds < inf)
    found, choice = case.planner.iteration_s(case.times, case.rates, np.array([seconds * factor]))
    if seconds < seconds * factor:
        assert found[0] == seconds
    else:
        assert isinf(found[0])
        assert choice[0] == -1


@SMALL
@given(cases(), st.integers(0, 2**31))
def test_architectures_do_not_disturb_each_other(case, seed):
    rng = np.random.default_rng(seed)
    forward, backward = case.times.forward_s, case.times.backward_s
    others = [
        replace(
            case,
            forward_s=tuple(rng.permutation(forward[0]).tolist()),
            backward_s=tuple(rng.permutation(backward[0]).tolist()),
            link=float(rng.choice([1.0, 4.0, 16.0])),
        )
        for _ in range(3)
    ]
    everyone = [case, *others]
    times = replace(
        case.times,
        forward_s=np.concatenate([c.times.forward_s for c in everyone]),
        backward_s=np.concatenate([c.times.backward_s for c in everyone]),
    )
    rates = replace(
        case.rates,
        link_bytes_per_s=np.array([c.link for c in everyone]),
        optimizer_s=np.array([c.optimizer for c in everyone]),
    )
    together, _ = case.planner.iteration_s(times, rates)
    assert together.tolist() == pytest.approx([c.iteration_s() for c in everyone], rel=1e-12)


@settings(SMALL, max_examples=25)
@given(cases(fixed=FREE | degrees))
def test_least_memory_is_enough_and_little_less_is_not(case):
    least = case.planner.least_memory_bytes()
    if isinf(least):
        assert not len(case.planner.options.stages)
        return
    assert isfinite(optimum_s(case.change(memory_bytes=least)))
    assert isinf(optimum_s(case.change(memory_bytes=least * 0.998))) or least == 0
    assert case.planner.fits == isfinite(optimum_s(case))


@settings(SMALL, max_examples=60)
@given(cases(fixed=FREE | degrees))
def test_a_chip_without_links_stands_alone(case):
    old = case.planner.cluster.network
    outside = old.scale_out_bandwidth_bytes_per_s, old.scale_out_latency_s
    network = two_tiers(old.scale_up_devices, None, 0.0, *outside)
    case = replace(case.change(cluster=replace(case.planner.cluster, network=network)), link=0.0)
    seconds = case.iteration_s()
    assert seconds == pytest.approx(optimum_s(case), rel=1e-9)
    assert float(case.planner.quick_bound(case.times, case.rates)[0]) <= seconds
    assert (case.best() is None) == isinf(seconds)
