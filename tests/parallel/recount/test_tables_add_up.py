"""Tables of time add up: parts make the whole, none is negative, each stands where it belongs."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import islice

import numpy as np
import pytest
from random_plans import costs, plans
from strategy_cases import estimator, framework, small_gpt

from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import Offload, ParallelPlan, Zero
from phaze.parallel.pipelines.pipeline_schedule import TRAINING, Schedule
from phaze.parallel.training.iteration import TimeBreakdown
from phaze.parallel.training.kind_times import kind_times

NAMES = [f.name for f in fields(TimeBreakdown)]


@pytest.mark.parametrize(("chip", "count"), [("a100", 150), ("tpuv4", 60)])
def test_parts_of_any_plan_make_its_iteration_and_none_is_negative(chip, count):
    seen = set()
    for e, strategy in plans(count, count, (chip,)):
        found, seen = e.iteration(strategy), seen | {strategy.schedule, strategy.zero, strategy.recompute}
        time = found.time
        assert time.total_s == pytest.approx(found.iteration_s, rel=1e-9), strategy
        assert min(getattr(time, name) for name in NAMES) >= -1e-12 * found.iteration_s, (strategy, time)
        kinds = kind_times(e, strategy)
        assert sum(k.time_s for k in kinds) == pytest.approx(time.product_s + time.vector_s, rel=1e-9)
        assert all(0 <= k.stall_s <= k.time_s * (1 + 1e-12) for k in kinds)
    assert seen >= {*TRAINING, *Zero, *Recompute}


def test_a_device_of_dualpipe_computes_as_much_as_one_of_any_schedule():
    """Two copies of the model, each of which sees half of the microbatches."""
    e = estimator(4, 16, workload=small_gpt(8))
    times = [
        e.iteration(ParallelPlan(1, 1, 4, schedule=schedule, stages=(2, 2, 2, 2))).time
        for schedule in (Schedule.DUALPIPE, Schedule.ONE_F_ONE_B)
    ]
    assert 0.5 < times[0].product_s / times[1].product_s < 1.0  # the ends are shared by two devices
    assert times[0].bubble_s > 0


@pytest.mark.parametrize("schedule", [Schedule.ZB_V, Schedule.DUALPIPE, Schedule.ONE_F_ONE_B])
def test_all_devices_together_receive_what_every_microbatch_passes_on(schedule):
    """The receipts of the busiest device, counted in the timeline: what its actions wait for from other devices."""
    e = costs("dense", "ideal")
    s = ParallelPlan(2, 1, 4, schedule=schedule, chunks=schedule.chunks_per_device or 2)
    found, loads, chunks = e.iteration(s), e.stage_times(s), e.chunks(s)
    seconds = []
    for order in e.timeline(s).orders:
        here = {(a.microbatch, a.chunk) for a in order}
        passed = [(a, a.chunk - 1) for a in order if a.kind == 0] + [
            (a, a.chunk + 1) for a in order if a.kind in (1, 2)
        ]
        ways = [min(a.chunk, c) for a, c in passed if 0 <= c < chunks.count and (a.microbatch, c) not in here]
        seconds.append(float(chunks.transfer_s[ways].sum()))
    assert any(found.time.transfer_s == pytest.approx(one) for one in seconds)
    assert np.all(loads.transfer_s > 0)


@pytest.mark.parametrize("hides", [False, True])
def test_reductions_of_zero_2_are_no_gathers(hides):
    said = framework(hides_gathers=hides)
    time = estimator(software=said).iteration(ParallelPlan(1, 8, zero=Zero.GRADIENTS)).time
    plain = estimator(software=said).iteration(ParallelPlan(1, 8, zero=Zero.OPTIMIZER)).time
    assert time.gather_s == pytest.approx(plain.gather_s)  # once, after the step
    assert time.reduction_s > plain.reduction_s > 0


@pytest.mark.parametrize("hides", [False, True])
def test_transfers_with_the_host_are_no_gathers(hides):
    e = estimator(software=framework(hides_offload=hides))
    plain, away = (
        e.iteration(ParallelPlan(1, 8, zero=Zero.NONE, offload=frozenset(what))).time
        for what in ((), (Offload.WEIGHTS, Offload.ACTIVATIONS))
    )
    assert plain.offload_s == 0 < away.offload_s
    assert (away.gather_s, away.reduction_s) == pytest.approx((plain.gather_s, plain.reduction_s))


def test_gathers_and_reductions_of_zero_3_are_told_apart():
    for e, strategy in islice(plans(7, 40), 40):
        s = replace(strategy, zero=Zero.WEIGHTS, reshards=True, offload=frozenset())
        side = e.stage_times(s).backward
        assert side.gathered_s + side.reduced_s == pytest.approx(side.zero_s)
        if s.replicas > 1 and not s.sharding.replicated:
            assert side.gathered_s.any() or e.framework.hides_gathers
            assert side.reduced_s.any() == e.framework.reduces_every_microbatch


def test_optimizer_is_that_of_the_device_that_has_most_to_do():
    """The head computes on the last stage; more parameters, a longer step, lie on the first."""
    e = estimator(2, 64, workload=small_gpt(8))
    s = ParallelPlan(1, 1, 2, stages=(4, 4), recompute=Recompute.NONE)
    parameters = [part.weights_bytes / 2 for part in e.memory(s)]
    loads = e.stage_times(s)
    busiest = int(np.argmax(loads.forward.pass_s + loads.turned_s))
    assert busiest != int(np.argmax(parameters))
    assert e.iteration(s).time.optimizer_s == pytest.approx(parameters[busiest] * e.rates.optimizer_s)
