"""Microbatches held: closed forms of the papers, and a count of our own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_cases import shapes

from phaze.parallel.pipelines.action_order import ActionKind, orders
from phaze.parallel.pipelines.in_flight import _in_flight_peak, in_flight, in_flight_peak
from phaze.parallel.pipelines.pipeline_schedule import TRAINING, Schedule, chunks_of, refusal

SIZES = [(1, 3), (2, 4), (4, 8), (4, 12), (8, 16), (8, 40)]


def weight(schedule, stages, microbatches, each=1, until=ActionKind.WEIGHT_GRADIENT):
    """Chunk activations held at once, per device."""
    return in_flight_peak(schedule, stages, microbatches, each, until).sum(axis=2).max(axis=1).tolist()


@pytest.mark.parametrize(("p", "m"), [*SIZES, (8, 3)])
def test_gpipe_holds_all_and_1f1b_one_for_each_stage_from_here_on(p, m):
    assert weight(Schedule.GPIPE, p, m) == [m] * p
    assert weight(Schedule.ONE_F_ONE_B, p, m) == [min(m, p - i) for i in range(p)]


@pytest.mark.parametrize(("p", "v"), [(2, 2), (4, 2), (4, 3), (8, 4)])
def test_interleaving_holds_a_little_more(p, v):
    """Korthikanti 2205.05198, section 4.2.3: 1 + (p-1)/(p v) times as much on the first device as 1F1B."""
    first = weight(Schedule.INTERLEAVED, p, 4 * p, v)[0]
    assert first == p * v + p - 1
    assert first / (p * v) == pytest.approx(1 + (p - 1) / (p * v))


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 12), (8, 16), (8, 40)])
def test_zero_bubbles_as_published(p, m):
    """2401.10241, table 2: p and 2p-1; 2405.15362: p; all of them on every device alike."""
    assert weight(Schedule.ZB_H1, p, m) == [p] * p
    assert weight(Schedule.ZB_H2, p, m) == [2 * p - 1] * p
    assert weight(Schedule.ZB_V, p, m, 2) == [2 * p] * p  # chunks of half a stage


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 20), (8, 40)])
def test_dualpipe_holds_one_more_than_there_are_devices(p, m):
    """DeepSeek-V3, table 2: PP + 1."""
    assert weight(Schedule.DUALPIPE, p, m) == [p + 1] * p


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 40)])
def test_what_waits_for_input_gradients_and_what_for_weight_gradients(p, m):
    """2401.10241, section 2.3: p-i+1 and i-1 microbatches on the i-th device in ZB-H1, 2p-2i+1 and 2i-2 in ZB-H2."""
    until = ActionKind.INPUT_GRADIENT
    assert weight(Schedule.ZB_H1, p, m, until=until) == [p - i + 1 for i in range(1, p + 1)]
    assert weight(Schedule.ZB_H2, p, m, until=until) == [2 * p - 2 * i + 1 for i in range(1, p + 1)]


@pytest.mark.parametrize(("schedule", "each"), [(Schedule.ZB_V, 2), (Schedule.DUALPIPE, 1)])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 6, 9])
def test_pieces_from_both_ends_are_held_as_orders_say(schedule, each, p):
    for m in range(1, 5 * p + 3):
        if refusal(schedule, p, m, each) is not None:
            continue
        formula = in_flight_peak(schedule, p, m, each)
        counted = _in_flight_peak(schedule, p, m, each, ActionKind.WEIGHT_GRADIENT)
        for one, other in zip(formula.tolist(), counted.tolist(), strict=True):
            assert {*map(tuple, one)} == {*map(tuple, other)}


@pytest.mark.parametrize("schedule", TRAINING)
@pytest.mark.parametrize("p", [2, 4, 6])
def test_long_runs_hold_what_is_counted(schedule, p):
    each = schedule.chunks_per_device or 3
    run = (schedule, p, 9 * p, each)
    for own, order, chunks in zip(
        in_flight(*run), orders(*run), chunks_of(schedule, p, each).tolist(), strict=True
    ):
        assert own.tolist() == counted(order, chunks, ActionKind.WEIGHT_GRADIENT).max(axis=0).tolist()
    with pytest.raises(ValueError, match="at least one"):
        in_flight(schedule, p, 0, each)


def counted(order, chunks, until):
    """Everything held at once, action by action."""
    now, seen = dict.fromkeys(chunks, 0), []
    for kind, _, chunk, _ in order:
        now[chunk] += kind is ActionKind.FORWARD
        seen.append(tuple(now.values()))
        now[chunk] -= kind in {ActionKind.BACKWARD, until}
    assert not any(now.values())
    return np.array(seen)


@pytest.mark.parametrize("until", [ActionKind.INPUT_GRADIENT, ActionKind.WEIGHT_GRADIENT])
@pytest.mark.parametrize("schedule", TRAINING)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.data())
def test_the_combinations_tell_the_peak_for_any_bytes(schedule, until, data):
    stages, microbatches, each = data.draw(shapes(schedule))
    slots = each * schedule.weight_copies
    size = np.array(data.draw(st.lists(st.integers(0, 9), min_size=slots, max_size=slots)))
    run = (schedule, stages, microbatches, each)
    every = in_flight_peak(*run, until)
    for device, (order, chunks) in enumerate(
        zip(orders(*run), chunks_of(schedule, stages, each), strict=True)
    ):
        seen = counted(order, chunks.tolist(), until)
        assert (every[device] @ size).max() == (seen @ size).max()
        assert in_flight(*run, until)[device].tolist() == seen.max(axis=0).tolist()
        assert {tuple(row) for row in every[device].tolist()} <= {tuple(row) for row in seen.tolist()}
