"""The checker sees every kind of fault."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from phaze.parallel.pipelines.action_order import ActionKind
from phaze.parallel.pipelines.chunk_times import Chunks
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.pipelines.pipeline_simulation import simulate
from phaze.parallel.recount.timeline_checker import TimelineError, check_timeline

F, B, W = ActionKind.FORWARD, ActionKind.BACKWARD, ActionKind.WEIGHT_GRADIENT


def chunks(count, blocking=False):
    one = np.ones(count)
    return Chunks(one, 2 * one, one, 0.5 * one[1:], blocking)


class Run:
    """A correct run, to be spoilt."""

    def __init__(self, schedule, stages, microbatches, blocking=False):
        self.about = (schedule, microbatches, stages, chunks(stages, blocking))
        self.timeline = simulate(*self.about)
        self.check()

    def check(self):
        check_timeline(self.timeline, *self.about)

    def at(self, device, kind, microbatch):
        order = self.timeline.orders[device]
        return int(np.nonzero((order.kind == kind) & (order.microbatch == microbatch))[0][0])

    def change_order(self, device, **columns):
        each = list(self.timeline.orders)
        each[device] = replace(each[device], **columns)
        self.timeline = replace(self.timeline, orders=tuple(each))

    def shift(self, device, first, last, by):
        for times in (self.timeline.starts_s[device], self.timeline.ends_s[device]):
            times[first:last] += by


def fails(run, *words):
    with pytest.raises(TimelineError) as told:
        run.check()
    assert all(word in str(told.value) for word in words), told.value


def test_an_action_that_is_missing_or_done_twice():
    run = Run(Schedule.ONE_F_ONE_B, 2, 3)
    microbatch = run.timeline.orders[0].microbatch.copy()
    microbatch[run.at(0, F, 1)] = 0
    run.change_order(0, microbatch=microbatch)
    fails(run, "forward pass (1, 0)", "missing")
    run = Run(Schedule.ZB_H1, 2, 3)
    microbatch = run.timeline.orders[1].microbatch.copy()
    microbatch[run.at(1, W, 1)] = 7
    run.change_order(1, microbatch=microbatch)
    fails(run, "weight gradient (1, 1)", "missing")


def test_an_action_that_is_no_part_of_the_work():
    run = Run(Schedule.ONE_F_ONE_B, 2, 3)
    check = (run.about[0], 2, *run.about[2:])
    with pytest.raises(TimelineError, match=r"forward pass \(2, 0\).* not part of the work"):
        check_timeline(run.timeline, *check)


def test_an_action_on_the_wrong_device():
    run = Run(Schedule.ONE_F_ONE_B, 2, 3)
    line = run.timeline
    swap = slice(None, None, -1)
    run.timeline = replace(
        line, orders=line.orders[swap], starts_s=line.starts_s[swap], ends_s=line.ends_s[swap]
    )
    fails(run, "belongs on device")


def test_an_action_that_is_too_short():
    run = Run(Schedule.ONE_F_ONE_B, 2, 3)
    run.timeline.ends_s[1][run.at(1, B, 2)] -= 0.25
    fails(run, "takes 2.75 s, not 3.0")


def test_two_actions_at_a_time():
    run = Run(Schedule.GPIPE, 2, 3)
    run.shift(0, 1, 2, -0.5)
    fails(run, "microbatch=1", "is over and sent")


@pytest.mark.parametrize("blocking", [False, True])
def test_an_action_that_starts_before_its_input_has_arrived(blocking):
    run = Run(Schedule.ONE_F_ONE_B, 2, 3, blocking)
    run.shift(1, 0, 1, -0.25)
    fails(run, "before its input is there")
    run = Run(Schedule.ONE_F_ONE_B, 2, 3, blocking)
    first = run.at(0, B, 0)
    run.shift(0, first, first + 1, -0.25)
    fails(run, "before its input is there")


def test_a_weight_gradient_before_its_input_gradient():
    run = Run(Schedule.ZB_H1, 2, 3)
    order = run.timeline.orders[0]
    pair = [run.at(0, ActionKind.INPUT_GRADIENT, 1), run.at(0, W, 1)]
    kind = order.kind.copy()
    kind[pair] = kind[pair[::-1]]
    run.change_order(0, kind=kind)
    starts, ends = run.timeline.starts_s[0], run.timeline.ends_s[0]
    ends[pair[0]] = starts[pair[0]] + 1.0
    starts[pair[1]] = ends[pair[1]] - 2.0
    fails(run, "WEIGHT_GRADIENT", "before its input is there")


def test_a_sender_that_does_not_wait_for_its_transfer():
    run = Run(Schedule.GPIPE, 2, 3, blocking=True)
    run.shift(0, 1, 2, -0.25)
    fails(run, "microbatch=1", "is over and sent")


def test_passes_that_may_not_run_as_one():
    run = Run(Schedule.GPIPE, 2, 3)
    joined = run.timeline.orders[0].joined.copy()
    joined[1] = True
    run.change_order(0, joined=joined)
    fails(run, "no pair")


def test_a_pair_that_starts_at_two_times():
    run = Run(Schedule.DUALPIPE, 4, 8)
    second = int(np.nonzero(run.timeline.orders[0].joined)[0][0])
    run.shift(0, second, second + 1, 0.25)
    fails(run, "does not start with")
