"""Bounds: never above the simulation, for many plans at once, and exact where they can be."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_cases import PLAIN, pipelines, seconds, shapes

from phaze.parallel.pipelines.chunk_times import Chunks, even_chunks
from phaze.parallel.pipelines.pipeline_bounds import pipeline_bound_s
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.pipelines.pipeline_simulation import pipeline_s

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
