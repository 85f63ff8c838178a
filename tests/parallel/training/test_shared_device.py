"""Two loops of kernels on one device: invariants of arXiv 2501.16909, and pairs that are worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.parallel.timeline.shared_device import KernelLoop, asked, both_fit, shared

THREADS, ISSUES, PIPE = 2048, 4.0, 2.0
"""An SM of an H100: threads, instructions that are issued in a cycle, and what of them the FP64 pipe takes."""


def loop(*kernels):
    """Kernels as (seconds, demands, threads on an SM)."""
    seconds, demands, threads = zip(*kernels, strict=True)
    return KernelLoop(
        np.array(seconds, dtype=float),
        np.array(demands, dtype=float),
        np.array(threads, dtype=float)[:, None] / THREADS,
    )


def test_threads_that_fit_and_shares_that_add_up():
    assert both_fit([0.5, 0.3], [0.5, 0.7])
    assert not both_fit([0.5, 0.3], [0.5, 0.71])
    assert asked([0.25, 1.0], [0.5, 0.25]) == [0.75, 1.25]


@pytest.mark.parametrize(("blocks", "worth"), [(1, 2.0), (2, 1.0)])
def test_kernels_overlap_where_their_threads_fit(blocks, worth):
    """One block of 1,024 threads each runs beside the other, twice as fast as in turn; two blocks each take turns."""
    one = loop((1.0, [0.2], blocks * 1024))
    found = shared(one, one)
    assert found.devices_worth == pytest.approx(worth)
    assert found.progress[0] == pytest.approx(found.progress[1], rel=0.1)
    assert not found.contended.any()


def test_a_pipe_saturates_before_issue_slots_do():
    """Two kernels of 2 instructions a cycle fit into 4 issue slots, and slow each other down twofold on one pipe."""
    fp64 = loop((1.0, [2 / ISSUES, 2 / PIPE], 1024))
    fp32 = loop((1.0, [2 / ISSUES, 0.0], 1024))
    assert shared(fp64, fp64).progress == pytest.approx((0.5, 0.5))
    assert shared(fp64, fp32).devices_worth == pytest.approx(2.0)
    assert shared(fp64, fp64).contended.tolist() == [0.0, 1.0]


def test_occupancy_tells_nothing_of_it():
    """As many threads, and another slowdown: what counts is what they ask for."""
    busy, idle = loop((1.0, [0.9], 1024)), loop((1.0, [0.1], 1024))
    worth = [shared(a, b).devices_worth for a, b in ((busy, busy), (busy, idle), (idle, idle))]
    assert worth == pytest.approx([2 / 1.8, 2.0, 2.0])


def test_short_kernels_wait_for_long_ones():
    """In turns of a kernel each, 1 s and 0.1 s: the short job gets an eleventh of the time."""
    long, short = loop((1.0, [0.1], 2048)), loop((0.1, [0.1], 2048))
    assert shared(long, short).progress == pytest.approx((1 / 1.1, 0.1 / 1.1), rel=0.02)


def test_two_phases_by_hand():
    """A: 1 s on one resource, 1 s on another, both whole; B the other way round: nothing is lost, or all."""
    a, b = loop((1.0, [1, 0], 1), (1.0, [0, 1], 1)), loop((1.0, [0, 1], 1), (1.0, [1, 0], 1))
    assert shared(a, b).devices_worth == pytest.approx(2.0)
    assert shared(a, a).devices_worth == pytest.approx(1.0)


shares = st.floats(0.0, 1.0)
kernels = st.lists(
    st.tuples(st.floats(0.01, 2.0), st.tuples(shares, shares), st.integers(1, 2048)), min_size=1, max_size=5
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(kernels, kernels)
def test_two_jobs_do_the_work_of_one_to_two_devices(one, other):
    a, b = loop(*one), loop(*other)
    found = shared(a, b)
    assert all(0 < each <= 1 + 1e-9 for each in found.progress)
    assert 1 - 1e-9 <= found.devices_worth <= 2 + 1e-9
    assert found.contended.sum() <= found.beside + 1e-9 <= 1 + 2e-9
    swapped = shared(b, a)
    assert swapped.devices_worth == pytest.approx(
        found.devices_worth, rel=0.3
    )  # who is first matters a while


def test_time_steps_agree_with_events():
    """The same two loops in steps of a thousandth of the shortest kernel, with the rule alone."""
    a = loop((0.3, [0.9, 0.1], 1), (0.5, [0.2, 0.8], 1), (0.1, [0.6, 0.6], 1))
    b = loop((0.7, [0.3, 0.7], 1), (0.2, [0.8, 0.3], 1))
    at, left, done, step = [0, 0], [0.3, 0.7], [0.0, 0.0], 1e-4
    loops = (a, b)
    time = 0.0
    while time < 20.0:
        slow = max(1.0, float((a.demands[at[0]] + b.demands[at[1]]).max()))
        for which in (0, 1):
            left[which] -= step / slow
            done[which] += step / slow
            if left[which] <= 0:
                at[which] = (at[which] + 1) % len(loops[which].seconds)
                left[which] += float(loops[which].seconds[at[which]])
        time += step
    assert shared(a, b).progress == pytest.approx((done[0] / time, done[1] / time), rel=0.03)
