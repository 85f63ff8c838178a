"""Bubbles as published, from the simulation; and that formulas and simulation agree for equal chunks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_cases import seconds, shapes

from phaze.parallel.pipelines.chunk_times import Chunks, even_chunks
from phaze.parallel.pipelines.pipeline_closed_forms import closed_form_period_s, closed_form_s
from phaze.parallel.pipelines.pipeline_schedule import TRAINING, Schedule
from phaze.parallel.pipelines.pipeline_simulation import pipeline_period_s, pipeline_s

SIZES = [(2, 4), (4, 8), (4, 16), (8, 16), (8, 64)]
USUAL = [(1.0, 1.0, 1.0), (3.0, 3.5, 2.5), (2.0, 2.5, 1.5)]
"""Forward, input gradient, weight gradient: the weight gradient the shortest, as in transformers."""

SMALL = settings(max_examples=60, deadline=None, derandomize=True)


def bubbles(schedule, p, m, f, b, w, each=1):
    """Of the makespan and of the period."""
    run = (schedule, m, p, even_chunks(p * each, f, b, w))
    work_s = m * each * (f + b + w)
    return pipeline_s(*run) - work_s, pipeline_period_s(*run) - work_s


@pytest.mark.parametrize("v", [1, 2, 3])
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_share_of_the_bubble_is_p_minus_1_over_v_m(p, m, v):
    """Narayanan SC'21 (2104.04473), section 2.2.2."""
    schedules = [Schedule.GPIPE, Schedule.ONE_F_ONE_B] if v == 1 else [Schedule.INTERLEAVED]
    f, b, w = 3.0 / v, 4.0 / v, 2.0 / v
    for schedule in schedules:
        bubble_s, _ = bubbles(schedule, p, m, f, b, w, v)
        assert bubble_s / (m * 9.0) == pytest.approx((p - 1) / (v * m))


@pytest.mark.parametrize(("f", "b", "w"), USUAL)
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_zb_h1_leaves_a_third(p, m, f, b, w):
    """Qi 2401.10241, table 2: (p-1)(f+b-w), against (p-1)(f+b+w) of 1F1B."""
    assert bubbles(Schedule.ZB_H1, p, m, f, b, w) == pytest.approx([(p - 1) * (f + b - w)] * 2)


@pytest.mark.parametrize(("f", "b", "w"), USUAL)
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_zb_h2_has_none_if_no_device_waits_between_iterations(p, m, f, b, w):
    """The same table: (p-1)(f+b-2w). Up to the last end it is (p-1) f longer where times are equal."""
    bubble_s, period_bubble_s = bubbles(Schedule.ZB_H2, p, m, f, b, w)
    assert period_bubble_s == pytest.approx((p - 1) * (f + b - 2 * w))
    if f == b == w:
        assert (bubble_s, period_bubble_s) == ((p - 1) * f, 0.0)


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_zb_v_has_none_for_equal_times(p, m):
    """Qi 2405.15362: with no more memory than 1F1B."""
    bubble_s, period_bubble_s = bubbles(Schedule.ZB_V, p, m, 1.0, 1.0, 1.0, 2)
    assert (bubble_s, period_bubble_s) == (p - 1.0, 0.0)


@pytest.mark.parametrize(("f", "b", "w"), USUAL)
@pytest.mark.parametrize(("p", "m"), [(4, 8), (4, 16), (8, 16), (8, 64)])
def test_dualpipe_comes_close_to_the_published_bubble(p, m, f, b, w):
    """DeepSeek-V3, table 2: (p/2-1)(F&B + B - 3W), B both gradients; a pair takes as long as its two passes here.

    The released code leaves the first pair of the two middle devices apart, and gains f; then another chain counts.
    """
    half = p / 2 - 1
    published = half * ((f + b + w) + (b + w) - 3 * w)
    bubble_s = max(published - f, half * (2 * f + b - w))
    assert bubbles(Schedule.DUALPIPE, p, m, f, b, w) == pytest.approx([bubble_s] * 2)
    if f == b == w:
        assert bubble_s == published


@pytest.mark.parametrize("schedule", TRAINING)
@SMALL
@given(st.data(), seconds, seconds, seconds)
def test_formulas_are_the_simulation_of_equal_chunks(schedule, data, f, b, w):
    stages, microbatches, each = data.draw(shapes(schedule, 8))
    chunks = even_chunks(stages * each, f, b, w)
    run, sizes = (schedule, microbatches, stages, chunks), (microbatches, stages, each, f, b, w)
    assert closed_form_s(schedule, *sizes) == pytest.approx(pipeline_s(*run), rel=1e-9)
    assert closed_form_period_s(schedule, *sizes) == pytest.approx(pipeline_period_s(*run), rel=1e-9)


@SMALL
@given(shapes(Schedule.DUALPIPE, 8), seconds, seconds, seconds, st.floats(0.0, 1.0))
def test_so_are_they_where_pairs_overlap(size, f, b, w, overlap):
    stages, microbatches, each = size
    pair = f + b + w - overlap * min(f, b + w)
    one = np.ones(stages)
    chunks = Chunks(f * one, b * one, w * one, np.zeros(stages - 1), paired_s=pair * one)
    formula_s = closed_form_s(Schedule.DUALPIPE, microbatches, stages, each, f, b, w, pair)
    assert formula_s == pytest.approx(pipeline_s(Schedule.DUALPIPE, microbatches, stages, chunks), rel=1e-9)


def test_formulas_take_arrays():
    f = np.array([1.0, 2.0, 3.0])
    each = closed_form_s(Schedule.ZB_H1, [[8], [16]], 4, 1, f, 1.0, 1.0)
    assert each.shape == (2, 3)
    assert each[1, 2] == closed_form_s(Schedule.ZB_H1, 16, 4, 1, 3.0, 1.0, 1.0)
