"""Bounds: never above the simulation, for many plans at once, and exact where they can be."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_cases import PLAIN, pipelines, seconds, shapes

from phaze.parallel.pipelines.action_order import INPUT, WEIGHT, B, F, orders
from phaze.parallel.pipelines.chunk_times import Chunks, even_chunks
from phaze.parallel.pipelines.device_turns import TURN_LATE, device_turns
from phaze.parallel.pipelines.pipeline_bounds import pipeline_bound_s
from phaze.parallel.pipelines.pipeline_schedule import TRAINING, Schedule, chunks_of
from phaze.parallel.pipelines.pipeline_simulation import pipeline_s

TURNING = [one for one in TRAINING if one not in TURN_LATE]
SMALL = settings(max_examples=200, deadline=None, derandomize=True)


@SMALL
@given(pipelines())
def test_no_timeline_is_shorter_than_the_bound(case):
    schedule, stages, microbatches, chunks = case
    bound_s = pipeline_bound_s(schedule, microbatches, stages, chunks)
    assert bound_s <= pipeline_s(schedule, microbatches, stages, chunks) * (1 + 1e-12)


@SMALL
@given(pipelines((Schedule.GPIPE,)))
def test_the_bound_of_gpipe_is_its_time(case):
    schedule, stages, microbatches, chunks = case
    chunks = replace(chunks, blocking=False)
    bound_s = pipeline_bound_s(schedule, microbatches, stages, chunks)
    assert bound_s == pytest.approx(pipeline_s(schedule, microbatches, stages, chunks), rel=1e-12)


@SMALL
@given(st.sampled_from(PLAIN), st.data(), seconds, seconds, seconds)
def test_the_bound_of_equal_chunks_is_their_time(schedule, data, f, b, w):
    stages, microbatches, each = data.draw(shapes(schedule))
    run = (schedule, microbatches, stages, even_chunks(stages * each, f, b, w))
    assert pipeline_bound_s(*run) == pytest.approx(pipeline_s(*run), rel=1e-12)


@SMALL
@given(pipelines(), st.integers(1, 3))
def test_plans_are_bounded_side_by_side(case, more):
    schedule, stages, microbatches, chunks = case
    alone_s = float(pipeline_bound_s(schedule, microbatches, stages, chunks))
    scaled = {
        field.name: np.stack([times * (k + 1) for k in range(more)])
        for field in fields(Chunks)
        if isinstance(times := getattr(chunks, field.name), np.ndarray)
    }
    bounds_s = pipeline_bound_s(schedule, microbatches, stages, replace(chunks, **scaled))
    assert bounds_s == pytest.approx([alone_s * (k + 1) for k in range(more)], rel=1e-12)


def test_the_bound_of_unequal_stages_is_the_time_of_most_1f1b_pipelines():
    """Of 300 pipelines with passes of any length; without the waits for the first and last gradient it is of 102."""
    draw, reached, shares = np.random.default_rng(1), 0, []
    for _ in range(300):
        stages, microbatches = int(draw.integers(2, 7)), int(draw.integers(1, 30))
        f, b, w = draw.uniform(0.2, 2.0, (3, stages))
        chunks = Chunks(f, b, w, draw.uniform(0, 0.1, stages - 1), bool(draw.integers(2)))
        run = (Schedule.ONE_F_ONE_B, microbatches, stages, chunks)
        shares.append(float(pipeline_bound_s(*run)) / pipeline_s(*run))
        reached += shares[-1] > 1 - 1e-9
    assert max(shares) <= 1 + 1e-12
    assert reached >= 200
    assert np.mean(shares) > 0.99


def test_devices_wait_for_what_comes_back_while_they_have_little_to_do():
    """A light first stage waits until the heavy second one has had its first microbatch and then its last."""
    chunks = Chunks(np.array([1.0, 4.0]), np.array([1.0, 4.0]), np.zeros(2), np.zeros(1))
    turns = device_turns(Schedule.ONE_F_ONE_B, 2, 5, 1)
    assert turns.passes.tolist() == [[[[1], [0], [0]], [[0], [0], [0]]], [[[0], [1], [0]], [[0], [0], [0]]]]
    assert turns.apart.all()
    assert pipeline_s(Schedule.ONE_F_ONE_B, 5, 2, chunks) == 1 + 5 * 8 + 1  # the second stage never waits
    assert float(pipeline_bound_s(Schedule.ONE_F_ONE_B, 5, 2, chunks)) == 42


@SMALL
@given(st.sampled_from(TURNING), st.data())
def test_turns_are_those_of_the_orders(schedule, data):
    """Counted again from the whole orders, microbatch by microbatch, however many there are."""
    stages, microbatches, each = data.draw(shapes(schedule).filter(lambda one: one[1] > 1))
    turns = device_turns(schedule, stages, microbatches, each)
    for device, order in enumerate(orders(schedule, stages, microbatches, each)):
        actions = list(order)
        slots, forward = (
            chunks_of(schedule, stages, each)[device].tolist(),
            [a for a in actions if a.kind is F],
        )
        for turn, ahead in enumerate((forward, forward[::-1])):
            way = actions if turn == 0 else actions[::-1]
            back = next(a for a in way if a.kind in (B, INPUT))
            assert back.microbatch == ahead[0].microbatch
            assert slots[turns.forward[turn, device]] == ahead[0].chunk
            assert slots[turns.backward[turn, device]] == back.chunk
            between = actions[actions.index(ahead[0]) + 1 : actions.index(back)]
            for row, kinds in enumerate(((F,), (B, INPUT), (WEIGHT,))):
                counted = [sum(a.kind in kinds and a.chunk == chunk for a in between) for chunk in slots]
                assert turns.passes[turn, device, row].tolist() == counted
