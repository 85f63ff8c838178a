"""Pipelines for tests: every schedule, on numbers of stages and microbatches that it accepts."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from phaze.parallel.pipelines.chunk_times import Chunks
from phaze.parallel.pipelines.pipeline_schedule import TRAINING, Schedule, refusal

PLAIN = (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED, Schedule.BREADTH_FIRST)
SPLIT = (Schedule.ZB_H1, Schedule.ZB_H2, Schedule.ZB_V, Schedule.DUALPIPE)

seconds = st.integers(0, 6).map(float) | st.floats(0.01, 10.0)


def shapes(schedule: Schedule, most_stages: int = 6):
    """(stages, microbatches, chunks per device) that the schedule accepts."""
    each = st.integers(2, 3) if schedule.chunks_per_device is None else st.just(schedule.chunks_per_device)
    sizes = st.tuples(st.integers(1, most_stages), st.integers(1, 3 * most_stages), each)
    return sizes.filter(lambda size: refusal(schedule, *size) is None)


@st.composite
def pipelines(draw, schedules=TRAINING, most_stages: int = 6):
    """(schedule, stages, microbatches, uneven chunks with transfers)."""
    schedule = draw(st.sampled_from(schedules))
    stages, microbatches, each = draw(shapes(schedule, most_stages))
    count = stages * each
    f, b, w, x, y = (np.array(draw(st.lists(seconds, min_size=count, max_size=count))) for _ in range(5))
    alone = np.maximum(f, (b + w)[::-1])
    pairs = None if draw(st.booleans()) else alone + y / 10.0 * (f + (b + w)[::-1] - alone)
    return schedule, stages, microbatches, Chunks(f, b, w, x[1:], draw(st.booleans()), pairs)
