"""Orders as published, written out for small pipelines."""

from __future__ import annotations

import numpy as np
import pytest

from phaze.parallel.pipelines.action_order import orders
from phaze.parallel.pipelines.pipeline_schedule import Schedule, chunks_of, device_of, refusal

LETTERS = "FBIW"


def written(order, chunks=True):
    """F forward, B both gradients, I and W input and weight gradient; then microbatch.chunk; + runs with the next."""
    text = [f"{LETTERS[kind]}{k}" + f".{c}" * chunks + " +"[joined] for kind, k, c, joined in order]
    marks = [mark[-1] for mark in text[1:]] + [" "]
    return "".join(mark[:-1] + sign for mark, sign in zip(text, marks, strict=True)).strip()


def test_gpipe():
    for order in orders(Schedule.GPIPE, 2, 3):
        assert written(order, chunks=False) == "F0 F1 F2 B0 B1 B2"


def test_one_forward_one_backward():
    first, second, third = (written(order, chunks=False) for order in orders(Schedule.ONE_F_ONE_B, 3, 5))
    assert first == "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4"
    assert second == "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4"
    assert third == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4"


def test_interleaved_as_in_megatron_lm():
    """Microbatches in groups of p; the last chunk turns back first."""
    first, second = (written(order) for order in orders(Schedule.INTERLEAVED, 2, 4, 2))
    assert first == "F0.0 F1.0 F0.2 F1.2 F2.0 B0.2 F3.0 B1.2 F2.2 B0.0 F3.2 B1.0 B2.2 B3.2 B2.0 B3.0"
    assert second == "F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 F2.1 B0.1 F3.1 B1.1 F2.3 B2.3 F3.3 B3.3 B2.1 B3.1"


def test_breadth_first_passes_a_chunk_with_all_microbatches():
    first, second = (written(order) for order in orders(Schedule.BREADTH_FIRST, 2, 3, 2))
    assert first == "F0.0 F1.0 F2.0 F0.2 F1.2 F2.2 B0.2 B1.2 B2.2 B0.0 B1.0 B2.0"
    assert second == "F0.1 F1.1 F2.1 F0.3 F1.3 F2.3 B0.3 B1.3 B2.3 B0.1 B1.1 B2.1"


def test_zb_h1_keeps_as_many_microbatches_everywhere():
    each = [written(order, chunks=False) for order in orders(Schedule.ZB_H1, 3, 5)]
    assert each[0] == "F0 F1 F2 I0 W0 F3 I1 W1 F4 I2 W2 I3 W3 I4 W4"
    assert each[1] == "F0 F1 I0 F2 I1 W0 F3 I2 W1 F4 I3 W2 I4 W3 W4"
    assert each[2] == "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 F4 I4 W2 W3 W4"


def test_zb_h2_runs_twice_as_far_ahead():
    first, second = (written(order, chunks=False) for order in orders(Schedule.ZB_H2, 2, 4))
    assert first == "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3"
    assert second == "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3"


def test_zb_v_goes_down_and_up():
    first, second = (written(order) for order in orders(Schedule.ZB_V, 2, 3, 2))
    assert first == (
        "F0.0 F1.0 F2.0 F0.3 I0.3 W0.3 F1.3 I1.3 W1.3 I0.0 W0.0 F2.3 I2.3 W2.3 I1.0 W1.0 I2.0 W2.0"
    )
    assert second == (
        "F0.1 F0.2 F1.1 F1.2 I0.2 W0.2 F2.1 I0.1 W0.1 F2.2 I1.2 W1.2 I1.1 I2.2 I2.1 W1.1 W2.2 W2.1"
    )


def test_dualpipe_runs_passes_of_both_directions_as_one():
    outer, inner, across, far = (written(order) for order in orders(Schedule.DUALPIPE, 4, 8))
    assert outer == (
        "F0.0 F1.0 F2.0 F4.3 I4.3 W4.3 F5.3 F3.0+B5.3 F6.3+B0.0 B6.3 F7.3+B1.0 B7.3 I2.0 W2.0 I3.0 W3.0"
    )
    assert inner == (
        "F0.1 F4.2 F1.1 F5.2 F2.1 B4.2 F6.2+B0.1 F3.1+B5.2 F7.2+B1.1 B6.2 B2.1 I7.2 I3.1 W7.2 W3.1"
    )
    swapped = str.maketrans("01234567", "45670123")
    for own, mirrored in ((outer, far), (inner, across)):
        other = [word.split(".") for word in own.replace("+", " +").split()]
        assert mirrored.replace("+", " +").split() == [f"{k.translate(swapped)}.{c}" for k, c in other]


@pytest.mark.parametrize(
    ("schedule", "sizes", "sentence"),
    [
        (Schedule.GPIPE, (0, 4, 1), "a pipeline needs at least one of each, not 0 stages"),
        (Schedule.ONE_F_ONE_B, (4, 8, 2), "1f1b takes 1 chunk per device, not 2"),
        (Schedule.ZB_V, (4, 8, 1), "zb-v takes 2 chunks per device, not 1"),
        (Schedule.INTERLEAVED, (4, 8, 1), "interleaved needs at least 2 chunks per device, not 1"),
        (
            Schedule.INTERLEAVED,
            (4, 6, 2),
            "interleaved needs a multiple of 4 microbatches for 4 stages, not 6",
        ),
        (Schedule.BREADTH_FIRST, (4, 8, 1), "breadth-first needs at least 2 chunks per device, not 1"),
        (
            Schedule.BREADTH_FIRST,
            (4, 3, 2),
            "breadth-first needs at least 4 microbatches for 4 stages, not 3",
        ),
        (Schedule.ZB_H1, (4, 3, 1), "zb-h1 needs at least 4 microbatches for 4 stages, not 3"),
        (Schedule.ZB_H2, (4, 6, 1), "zb-h2 needs at least 7 microbatches for 4 stages, not 6"),
        (Schedule.DUALPIPE, (4, 6, 1), "dualpipe needs at least 8 microbatches for 4 stages, not 6"),
        (Schedule.DUALPIPE, (3, 8, 1), "dualpipe needs even numbers of stages and microbatches, not 3 and 8"),
    ],
)
def test_a_schedule_says_what_it_does_not_run_on(schedule, sizes, sentence):
    assert refusal(schedule, *sizes) == sentence
    with pytest.raises(ValueError, match=sentence):
        orders(schedule, *sizes)


@pytest.mark.parametrize(
    ("schedule", "each", "devices"),
    [
        (Schedule.ONE_F_ONE_B, 1, [[0, 1, 2, 3]]),
        (Schedule.INTERLEAVED, 2, [[0, 1, 2, 3, 0, 1, 2, 3]]),
        (Schedule.BREADTH_FIRST, 2, [[0, 1, 2, 3, 0, 1, 2, 3]]),
        (Schedule.ZB_V, 2, [[0, 1, 2, 3, 3, 2, 1, 0]]),
        (Schedule.DUALPIPE, 1, [[0, 1, 2, 3], [3, 2, 1, 0]]),
    ],
)
def test_chunks_are_where_the_schedule_wants_them(schedule, each, devices):
    assert device_of(schedule, 4, each).tolist() == devices
    assert len(devices) == schedule.weight_copies
    for device, own in enumerate(chunks_of(schedule, 4, each)):
        assert sorted(own) == sorted(np.nonzero(np.array(devices) == device)[1])
