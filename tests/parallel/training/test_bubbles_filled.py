"""Bubbles of pipelines: published shares, what a played plan does in its time, and fillings step by step."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cases import small_decoder

from phaze.explore.evaluation.planned_iteration import estimator_of, strategy_of
from phaze.explore.plans.filled_plan import PlanIdling, fill_jobs
from phaze.explore.plans.plan_search import find_best_plan
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import two_tiers
from phaze.parallel.pipelines.chunk_times import Chunks
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.pipelines.pipeline_simulation import simulate
from phaze.parallel.timeline.bubble_filling import FillJob, Room, filled
from phaze.parallel.timeline.pipeline_bubbles import Bubble, BubbleKind, bubbles, idle_between
from phaze.parallel.timeline.plan_runs import Run, closing, runs
from phaze.parallel.timeline.replayed_plan import ReplayedPlan
from phaze.workload.workload import Mode
from phaze.workload.workload_loader import load_workload

PIPEFILL = ((64, 0.190), (32, 0.319), (16, 0.484), (8, 0.652))
"""Microbatches, and share of an iteration that 16 stages wait: a batch that stays as clusters grow (2410.07192)."""


def passes(schedule, stages, microbatches, f=1.0, b=2.0):
    """Passes of every device of a pipeline of equal stages without transfers, and its makespan."""
    each = np.full(stages, f), np.full(stages, b), np.zeros(stages), np.zeros(stages - 1)
    found = simulate(schedule, microbatches, stages, Chunks(*each))
    devices = zip(found.orders, found.starts_s, found.ends_s, strict=True)
    return [
        [Run(d, (a,), s, e) for a, s, e in zip(order, starts, ends, strict=True)]
        for d, (order, starts, ends) in enumerate(devices)
    ], found.makespan_s


@pytest.mark.parametrize("schedule", [Schedule.GPIPE, Schedule.ONE_F_ONE_B])
@pytest.mark.parametrize(("microbatches", "share"), PIPEFILL)
def test_shares_as_published(schedule, microbatches, share):
    devices, whole_s = passes(schedule, 16, microbatches)
    for at, own in enumerate(devices):
        inside = sum(one.length_s for one in idle_between(own))
        outside = own[0].start_s + whole_s - own[-1].end_s
        assert inside + outside == pytest.approx(15 * 3.0)
        assert outside == pytest.approx(at * 3.0)
        assert (inside + outside) / whole_s == pytest.approx(share, abs=6e-4)
        assert (inside + outside) / whole_s == pytest.approx(15 / microbatches / (1 + 15 / microbatches))


def test_kinds_of_gpipe_and_1f1b():
    """GPipe waits once between forward and backward; 1F1B waits as long as backward passes need and is late after."""
    for at, own in enumerate(passes(Schedule.GPIPE, 4, 8)[0]):
        told = [(one.kind, one.length_s) for one in idle_between(own)]
        assert told == ([(BubbleKind.FORWARD_BACKWARD, pytest.approx((3 - at) * 3.0))] if at < 3 else [])
    for at, own in enumerate(passes(Schedule.ONE_F_ONE_B, 4, 8)[0][:3]):
        first, *rest = idle_between(own)
        assert (first.kind, first.length_s) == (BubbleKind.FORWARD_BACKWARD, pytest.approx((3 - at) * 2.0))
        assert {one.kind for one in rest} == {BubbleKind.SCATTERED}
        assert sum(one.length_s for one in rest) == pytest.approx((3 - at) * 1.0)


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A small model on a pipeline of four, played."""
    workload = small_decoder(tmp_path_factory.mktemp("decoder"))
    held = {"pipeline": (4,), "microbatches": (1,), "chunks": (1,), "schedules": (Schedule.ONE_F_ONE_B,)}
    task, chip = (
        Task(workload, 8, two_tiers(4, 200e9, 1e-6, 25e9, 5e-6), 16, held=held),
        load_architecture("h100"),
    )
    found = find_best_plan(task, chip)
    costs = estimator_of(task, to_table([chip]))
    strategy = strategy_of(found.best.strategy)
    return task, ReplayedPlan.of(costs, strategy, costs.iteration(strategy))


def test_passes_bubbles_and_the_end_are_the_iteration(planned):
    _, played = planned
    for device, own in enumerate(bubbles(played)):
        busy = [(run.start_s, run.end_s) for run in runs(played) if run.device == device]
        busy += [(part.start_s, part.end_s) for part in closing(played) if part.device == device]
        idle = [(one.start_s, one.end_s) for one in own]
        stretches = sorted(busy + idle)
        assert stretches[0][0] == 0.0
        assert stretches[-1][1] == pytest.approx(played.iteration.iteration_s)
        for one, other in pairwise(stretches):
            assert one[1] == pytest.approx(other[0], abs=1e-9 * played.iteration.iteration_s)
    told = PlanIdling(played, planned[0]).record()
    assert told.fill is None
    assert told.share == pytest.approx(
        told.fill_drain_share + told.forward_backward_share + told.scattered_share
    )


def test_work_in_the_bubbles(planned):
    task, played = planned
    other = load_workload("bert-base", Mode.PREFILL)
    plain, slow = (PlanIdling(played, task, switch_s).record(other) for switch_s in (0.0, 1e-4))
    most = max(job.batch / job.alone_s for job in fill_jobs(played, task, other))
    devices = played.strategy.devices
    assert 0 < slow.fill.samples_per_s < plain.fill.samples_per_s <= most * devices * plain.share
    assert plain.fill.device_equivalents <= devices * plain.share * (1 + 1e-9)
    assert plain.fill.device_equivalents == pytest.approx(plain.fill.samples_per_s / most)
    for one in plain.stages:
        assert one.filled_s <= one.fill_drain_s + one.forward_backward_s + one.scattered_s
        assert one.free_bytes <= one.free_drained_bytes
    never = PlanIdling(played, task, 1.0).record(other)
    assert (never.fill.samples_per_s, never.fill.filled_share) == (0, 0)


def job_of(seconds, load_s=0.0, need=1.0, resident=1.0):
    n = len(seconds)
    return FillJob(2, np.array(seconds), np.full(n, load_s), np.full(n, need), resident, 6.0)


def room_of(lengths, least=10.0, drained=10.0, switch_s=0.0):
    starts = np.cumsum([0.0, *lengths])
    kinds = [BubbleKind.SCATTERED] * (len(lengths) - 1) + [BubbleKind.FILL_DRAIN]
    own = [Bubble(k, s, s + n) for k, s, n in zip(kinds, starts, lengths, strict=False)]
    free = {BubbleKind.SCATTERED: least, BubbleKind.FILL_DRAIN: drained}
    return Room(own, lambda one: free[one.kind], least, switch_s)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.lists(st.integers(1, 30), min_size=1, max_size=5),
    st.integers(0, 3),
)
def test_the_long_run_is_that_of_many_iterations(seconds, lengths, switch):
    """Piece by piece through 720 x pieces iterations, a multiple of every period."""
    pieces, found = (
        [float(s) for s in seconds],
        filled(room_of(map_(lengths), switch_s=switch), job_of(map_(seconds))),
    )
    at = done = 0
    warm, many = len(pieces), 720 * len(pieces)
    for iteration in range(warm + many):
        for length in lengths:
            left = length - switch
            while length > switch and left >= pieces[at]:
                left -= pieces[at]
                at = (at + 1) % len(pieces)
                done += iteration >= warm
    assert found.passes == pytest.approx(done / len(pieces) / many, abs=1e-9)
    assert found.busy_s == pytest.approx(found.passes * sum(pieces))
    assert found.busy_s <= sum(lengths)
    assert found.samples == 2 * found.passes
    assert found.flops == 6 * found.passes


def map_(values):
    return [float(value) for value in values]


def test_memory_decides_what_is_read_again():
    lengths = [10.0, 10.0]
    resident = filled(room_of(lengths), job_of([1.0, 1.0], load_s=4.0, resident=10.0))
    assert resident.passes == 10
    streamed = filled(room_of(lengths), job_of([1.0, 1.0], load_s=4.0, resident=11.0))
    assert streamed.passes == 2  # a piece takes 5 s, so two fit into each
    drained = filled(room_of(lengths, least=1.0), job_of([1.0, 1.0], load_s=4.0, need=5.0, resident=11.0))
    assert drained.passes == 1  # only while the pipeline fills and drains
    assert filled(room_of(lengths, 1.0, 1.0), job_of([1.0], need=5.0, resident=11.0)).passes == 0
    assert filled(room_of(lengths), job_of([11.0])).passes == 0
    unlinked = job_of([1.0], load_s=np.inf, resident=11.0)
    assert (filled(room_of(lengths), unlinked).passes, filled(room_of(lengths), unlinked).busy_s) == (0, 0)
