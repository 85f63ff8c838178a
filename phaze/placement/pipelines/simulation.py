"""A pipeline schedule executed action by action."""

from __future__ import annotations

import numpy as np

from phaze.arrays import Floats
from phaze.placement.pipelines.chunks import Chunks
from phaze.placement.pipelines.machine import machine
from phaze.placement.pipelines.orders import orders
from phaze.placement.pipelines.precedence import Precedence, precedence
from phaze.placement.pipelines.schedule import Schedule
from phaze.placement.pipelines.timeline import Timeline

_SIDE_BY_SIDE = 16
"""Plans that are simulated at once: more do not fit into a processor's cache."""


def pipeline_s(schedule: Schedule, microbatches: int, stages: int, chunks: Chunks) -> float:
    """Seconds from the first start to the last end. Raises ValueError where the schedule does not run so."""
    _, _, end_s = _run(schedule, microbatches, stages, chunks)
    return float(end_s.max())


def pipelines_s(schedule: Schedule, microbatches: int, stages: int, chunks: Chunks) -> Floats:
    """`pipeline_s` of many plans, (N,) for chunks (N, C), side by side; of equal ones only one."""
    columns = [
        chunks.forward_s,
        chunks.input_gradient_s,
        chunks.weight_gradient_s,
        chunks.pairs_s,
        chunks.transfer_s,
    ]
    numbers: dict[bytes, int] = {}
    which = [numbers.setdefault(row.tobytes(), len(numbers)) for row in np.concatenate(columns, axis=1)]
    first = np.unique(which, return_index=True)[1]
    work = precedence(schedule, stages, microbatches, chunks.per_device(stages))
    found = [
        _ends_s(work, chunks.take(first[some : some + _SIDE_BY_SIDE]))
        for some in range(0, len(first), _SIDE_BY_SIDE)
    ]
    return np.concatenate(found)[which]


def _ends_s(work: Precedence, chunks: Chunks) -> Floats:
    """The last end of each of some plans, (N,)."""
    steps, (plans, count) = len(work.kind), chunks.forward_s.shape
    seconds = np.ascontiguousarray(_kinds_s(chunks).transpose(0, 2, 1))
    way_s = np.zeros((count, plans))
    way_s[:-1] = chunks.transfer_s.T
    end_s, sent_s = np.zeros((steps + 1, plans)), np.zeros((steps + 1 if chunks.blocking else 1, plans))
    order = (work.queue, work.before, work.source, work.kind, work.chunk, work.way)
    machine().function("run_many", steps * plans)(*order, seconds, way_s, chunks.blocking, end_s, sent_s)
    latest: Floats = end_s.max(axis=0)
    return latest


def pipeline_period_s(schedule: Schedule, microbatches: int, stages: int, chunks: Chunks) -> float:
    """Seconds from one iteration to the next, see `Timeline.period_s`."""
    work, start_s, end_s = _run(schedule, microbatches, stages, chunks)
    return float((end_s[work.first[1:] - 1] - start_s[work.first[:-1]]).max())


def simulate(schedule: Schedule, microbatches: int, stages: int, chunks: Chunks) -> Timeline:
    """When every action runs, each as early as it can. Raises ValueError where the schedule does not run so."""
    work, start_s, end_s = _run(schedule, microbatches, stages, chunks)
    each = orders(schedule, stages, microbatches, chunks.per_device(stages))
    cuts = np.cumsum([len(order) for order in each])[:-1]
    return Timeline(each, tuple(np.split(start_s[work.step], cuts)), tuple(np.split(end_s[work.step], cuts)))


def _run(
    schedule: Schedule, microbatches: int, stages: int, chunks: Chunks
) -> tuple[Precedence, Floats, Floats]:
    """Start and end (U,) of every step."""
    if chunks.forward_s.ndim != 1:
        raise ValueError("the simulation takes one plan at a time")
    work = precedence(schedule, stages, microbatches, chunks.per_device(stages))
    seconds = _kinds_s(chunks)[work.kind, work.chunk]
    way_s = np.append(chunks.transfer_s, 0.0)[work.way]
    end_s = np.zeros(len(seconds) + 1)
    sent_s = np.bincount(work.source.ravel(), way_s.ravel(), len(end_s)) if chunks.blocking else end_s
    source, way = (work.source[:, 0], work.source[:, 1]), (way_s[:, 0], way_s[:, 1])
    end_s = machine().run(
        *(work.queue, work.before, source, seconds, way, sent_s, chunks.blocking), end_s=end_s
    )
    return work, end_s[:-1] - seconds, end_s[:-1]


def _kinds_s(chunks: Chunks) -> Floats:
    """Seconds of every kind of step in every chunk, (kinds, ..., C)."""
    each = (chunks.forward_s, chunks.backward_s, chunks.input_gradient_s, chunks.weight_gradient_s)
    return np.stack([*each, chunks.pairs_s])
