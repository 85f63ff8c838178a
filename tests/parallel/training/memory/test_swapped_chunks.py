"""Chunks that swap their weights and gradients with the host, once for all microbatches (Harmony, arXiv 2202.01306)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from strategy_cases import estimator, framework, small_gpt

from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import Offload, ParallelPlan, Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule

STATE = frozenset({Offload.WEIGHTS, Offload.OPTIMIZER})
SAME_BYTES = {"reduced_bytes": 2.0}
"""Gradients go over the link in as many bytes as weights, as the published volumes count them."""


def swapping(stages, replicas, chunks, offload=STATE, **changes):
    return ParallelPlan(
        1,
        data_parallel=replicas,
        pipeline_parallel=stages,
        schedule=Schedule.BREADTH_FIRST,
        chunks=chunks,
        recompute=Recompute.FULL,
        offload=offload,
        **changes,
    )


def moved_bytes(e, plan):
    return e.host_link_bytes(plan).sum() * plan.data_parallel


def model_bytes(e):
    plan = ParallelPlan(1)
    return 2 * sum(e.chain(plan).layers[i].parameters for i in e.chain(plan).index)


@pytest.mark.parametrize(("devices", "microbatches"), [(4, 16), (2, 8)])
def test_swapped_bytes_are_those_of_harmony(devices, microbatches):
    """Per iteration 3 N |W| data-parallel and 3 |W| in a pipeline; (4 m + 2) N |W| is what paging by each device takes.

    16 microbatches on 4 devices: 88 times fewer. One microbatch after the other, as before, each move m times as often.
    """
    e = estimator(devices, devices * microbatches, software=framework(**SAME_BYTES), workload=small_gpt(8))
    whole, alone = model_bytes(e), swapping(1, devices, 4)
    assert e.microbatches(alone) == microbatches
    assert moved_bytes(e, alone) == pytest.approx(3 * devices * whole)
    one_by_one = replace(alone, schedule=Schedule.ONE_F_ONE_B, chunks=1)
    assert moved_bytes(e, one_by_one) == pytest.approx(3 * microbatches * devices * whole)
    piped = replace(alone, data_parallel=1, pipeline_parallel=devices, chunks=8 // devices)
    assert moved_bytes(e, piped) == pytest.approx(3 * whole)
    if devices == 4:
        assert (4 * microbatches + 2) * devices * whole / moved_bytes(e, piped) == pytest.approx(88)


def test_activations_move_with_every_microbatch():
    e = estimator(2, 16, workload=small_gpt(4))
    for plan in (swapping(1, 1, 2, frozenset({Offload.ACTIVATIONS})),):
        (device,) = e.memory(plan)
        moved = e.host_link_bytes(plan)[0]
        assert moved == pytest.approx(
            2 * device.host_bytes
        )  # all microbatches lie there when the last chunk turns


def played_s(e, plan):
    """A pipeline that swaps, played step by step: every transfer and pass starts as soon as it can.

    A device has room for two chunks: one comes while the one before runs, once the one before that has left.
    """
    found, m, p = e.stage_times(plan), e.microbatches(plan), plan.pipeline_parallel
    traffic, link = e.traffic(plan), e.traffic(plan).host.link_bytes_per_s
    first = traffic.division.first_groups
    weights_s, gradients_s = (np.add.reduceat(x, first) / link for x in (traffic.weights, traffic.gradients))
    pass_s = [side.pass_s - side.moved_s for side in (found.forward, found.backward)]
    pass_s[1] = pass_s[1] + found.recomputation.pass_s
    chunks = len(first)
    done = {}
    free, came, left = np.zeros(p), np.zeros(p), np.zeros(p)
    uses = [[] for _ in range(p)]
    gone = [[0.0, 0.0] for _ in range(p)]
    for turned in (0, 1):
        for chunk in range(chunks)[:: -1 if turned else 1]:
            device = chunk % p
            room = uses[device][-2] if len(uses[device]) > 1 else 0.0
            came[device] = max(came[device], room) + weights_s[chunk]
            start = max(came[device], gone[device][-2])
            for k in range(m):
                ahead = (turned, k, chunk + (1 if turned else -1))
                if turned and chunk == chunks - 1:
                    ahead = (0, k, chunk)
                ready = done.get(ahead, 0.0)
                free[device] = max(free[device], start, ready) + pass_s[turned][chunk]
                done[turned, k, chunk] = free[device]
            uses[device].append(free[device])
            if turned:
                left[device] = max(left[device], free[device]) + gradients_s[chunk]
                gone[device].append(left[device])
    return max(free.max(), left.max())


@pytest.mark.parametrize(
    ("stages", "chunks", "link", "batch", "most"),
    [
        (1, 4, 8e9, 64, 1.04),
        (1, 4, 1e9, 16, 1.01),
        (2, 4, 16e9, 64, 1.03),
        (2, 4, 1e9, 16, 1.12),
        (4, 2, 16e9, 64, 1.05),
        (4, 2, 8e9, 64, 1.08),
        (4, 2, 1e9, 16, 1.40),
    ],
)
def test_a_swapping_pipeline_is_never_told_shorter_than_step_by_step(stages, chunks, link, batch, most):
    """Waits for a chunk are dealt to its microbatches, and the last chunk comes anew for backward: a bit too long."""
    said = framework(hides_offload=True, hides_transfers=True)
    e = estimator(4, batch, software=said, workload=small_gpt(8))
    e.table.columns["host_bandwidth_bytes_per_s"][:] = link
    plan = swapping(stages, 1, chunks)
    busy_s, exact_s = e.timeline(plan).makespan_s, played_s(e, plan)
    assert exact_s <= busy_s <= most * exact_s


def test_with_one_device_a_pass_waits_for_what_does_not_hide():
    """Forward: the first chunk's weights, then of each chunk what its weights take longer than the chunk before."""
    e = estimator(1, 16, software=framework(hides_offload=True), workload=small_gpt(8))
    e.table.columns["host_bandwidth_bytes_per_s"][:] = 2e9
    plan, m = swapping(1, 1, 4, frozenset({Offload.WEIGHTS})), 16
    found, traffic = e.stage_times(plan).forward, e.traffic(plan)
    weights_s = np.add.reduceat(traffic.weights, traffic.division.first_groups) / 2e9
    computes_s = m * (found.pass_s - found.moved_s)
    late = np.maximum(weights_s[1:] - computes_s[:-1], 0.0)
    assert (late > 0).any()
    ends, came = [0.0, 0.0], 0.0
    for k in range(4):
        came = max(came, ends[-2]) + weights_s[k]
        ends.append(max(ends[-1], came) + computes_s[k])
    assert m * found.moved_s.sum() == pytest.approx(ends[-1] - computes_s.sum())


@pytest.mark.parametrize("zero", [Zero.NONE, Zero.OPTIMIZER])
def test_two_chunks_at_a_time_lie_on_a_device(zero):
    e = estimator(2, 16, workload=small_gpt(8))
    plan = swapping(1, 2, 4, zero=zero)
    (device,) = e.memory(plan)
    chain, division = e.chain(plan), e.division(plan)
    sizes = [
        sum(chain.layers[chain.index[at]].parameters for at in range(*_span(division, chunk)))
        for chunk in range(4)
    ]
    assert device.weights_bytes == device.gradients_bytes == device.optimizer_bytes == 0
    assert device.buffers_bytes == pytest.approx((2 + 4) * 2 * max(sizes))


def _span(division, chunk):
    inside = division.layers(chunk)
    return inside.start, inside.stop


def test_fewer_bytes_take_less_time_where_nothing_hides():
    """Small microbatches on a slow link: the same work, weights and gradients once in place of 16 times."""
    e = estimator(1, 16, workload=small_gpt(8))
    e.table.columns["host_bandwidth_bytes_per_s"][:] = 12e9
    swapped = swapping(1, 1, 4)
    streamed = replace(swapped, schedule=Schedule.ONE_F_ONE_B, chunks=1)
    fast, slow = e.iteration(swapped), e.iteration(streamed)
    assert fast.time.offload_s == pytest.approx(slow.time.offload_s / 16)
    assert fast.iteration_s < slow.iteration_s
    assert fast.host_bytes == slow.host_bytes
    assert e.energy_j(swapped, fast) < e.energy_j(streamed, slow)
