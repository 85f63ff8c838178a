"""A pipeline schedule executed action by action: what every step waits for, and when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Integers
from phaze.parallel.pipelines import joined_steps
from phaze.parallel.pipelines.action_order import (
    ActionKind,
    ActionOrder,
    ActionsOfAll,
    all_actions,
    graph_actions,
)
from phaze.parallel.pipelines.chunk_times import Chunks
from phaze.parallel.pipelines.compiled_loops import machine
from phaze.parallel.pipelines.joined_steps import sort_joins
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.pipelines.pipeline_timeline import Timeline
from phaze.parallel.pipelines.stage_graph import StageGraph
from phaze.parallel.pipelines.step_waves import ELEMENTS, STEPS, WIDE, run_waves, waves
from phaze.parallel.pipelines.unit_times import unit_times, waves_at
from phaze.solvers.looks import Look, wanted

Indices = NDArray[np.int32]

PAIRED = 2
"""Inputs of a step at most, but where branches join."""

PAIR = len(ActionKind)
"""Kind of a step that is a forward and a backward pass run as one."""

SMALL = 4096
"""Passes (stages x microbatches x chunks) up to which many are kept."""


@dataclass(frozen=True)
class Precedence:
    """The steps of all devices one after the other: actions, but those that run as one are one step.

    Device d runs steps first[d] .. first[d+1]-1. `kind`, `chunk` (U,) of the (first) action of a step; `step` (A,):
    the step of every action. `before` (U,): the step before it on its device; `source` (U, 2): those that make its
    inputs; U where there is none. `way` (U, 2): the chunk behind which an input changes device, C - 1 where it does
    not. Of a graph of chunks whose parts join more than two inputs, both have as many columns, and ways are edges,
    E where an input does not change device. `queue` (U,): all steps, each behind those it waits for; `waves`: where
    every wave of it starts, as of `step_waves`, none where that was not asked for.
    """

    first: Indices
    kind: Indices
    chunk: Indices
    step: Indices
    before: Indices
    source: Indices
    way: Indices
    queue: Indices
    waves: Indices

    @property
    def longest(self) -> int:
        """Steps of the device that has most: at most as many as there are waves."""
        return int(np.diff(self.first).max())

    @cached_property
    def in_waves(self) -> tuple[Indices, Indices]:
        """The queue and `waves` in any case: many plans fill waves that one does not."""
        if len(self.waves):
            return self.queue, self.waves
        queue, starts = waves(self.first.astype(np.int64), self.source.astype(np.int64))
        return queue.astype(np.int32), starts.astype(np.int32)


def precedence(
    schedule: Schedule,
    stages: int,
    microbatches: int,
    chunks_per_device: int = 1,
    graph: StageGraph | None = None,
) -> Precedence:
    """Precedence graph of a published schedule, or of 1F1B on a graph of stages; kept.

    Raises ValueError where it does not run so.
    """
    small = stages * microbatches * chunks_per_device <= SMALL
    return (_of_small if small else _of_large)(schedule, stages, microbatches, chunks_per_device, graph)


def _precedence(
    schedule: Schedule, stages: int, microbatches: int, chunks_per_device: int, graph: StageGraph | None
) -> Precedence:
    actions = schedule_actions(schedule, stages, microbatches, chunks_per_device, graph)
    unit = unit_times(schedule, actions) if graph is None else None
    return precedence_of(actions, microbatches, stages * chunks_per_device, graph, unit)


def schedule_actions(
    schedule: Schedule, stages: int, microbatches: int, chunks_per_device: int, graph: StageGraph | None
) -> ActionsOfAll:
    """Actions of a schedule on a chain of chunks, or of 1F1B on a graph. Raises ValueError for any other one there."""
    if graph is None:
        return all_actions(schedule, stages, microbatches, chunks_per_device)
    if schedule is not Schedule.ONE_F_ONE_B or (graph.count, chunks_per_device) != (stages, 1):
        raise ValueError(f"a graph of {graph.count} stages runs 1f1b with one on each of as many devices")
    return graph_actions(graph, microbatches)


_of_small, _of_large = lru_cache(maxsize=512)(_precedence), lru_cache(maxsize=8)(_precedence)
"""Half a megabyte each at most, and any size."""


def precedence_of(
    all_: ActionsOfAll,
    microbatches: int,
    chunks: int,
    graph: StageGraph | None = None,
    unit: Integers | None = None,
) -> Precedence:
    """Precedence graph of any orders. Raises ValueError where the devices wait for one another.

    `unit` (A,): when actions run if each takes one unit of time and is a step of its own, where that is known.
    """
    actions = all_.actions
    step = np.cumsum(~actions.joined) - 1
    device = all_.device[~actions.joined]
    first = np.searchsorted(device, np.arange(len(all_.starts)))
    if graph is None:
        source, way = _inputs(actions, step, device, (microbatches, chunks))
    else:
        source, way = _graph_inputs(actions, microbatches, graph)
    before = np.arange(-1, len(device) - 1)
    before[first[:-1]] = len(device)
    known = None if unit is None else waves_at(unit, before, source)
    queue, starts = known or _sorted(first, source)
    if len(queue) < len(device):
        raise ValueError("the devices wait for one another")
    kind, chunk = actions.kind[~actions.joined], actions.chunk[~actions.joined]
    kind[step[actions.joined]] = PAIR
    columns = (first, kind, chunk, step, before, source, way, queue, starts)
    return Precedence(*(column.astype(np.int32) for column in columns))


def _sorted(first: Integers, source: Integers) -> tuple[Integers, Integers]:
    """The queue, and where waves start."""
    if source.shape[1] > PAIRED:
        return sort_joins(first, source), np.zeros(0, dtype=np.int64)
    longest = int(np.diff(first).max())
    if len(first) > WIDE and machine().compiled("sort", STEPS * longest) is None:
        return waves(first, source)
    return machine().sort(first, source), np.zeros(0, dtype=np.int64)


def _inputs(
    actions: ActionOrder, step: Integers, device: Integers, shape: tuple[int, int]
) -> tuple[Integers, Integers]:
    """Source and way (U, 2) of every step; `shape`: microbatches, chunks."""
    none, last = len(device), shape[1] - 1
    needed, behind = _needs(actions, step, none, shape)
    source, way = np.full((none, 2), none), np.full((none, 2), last)
    source[step, actions.joined.astype(np.int64)] = needed
    way[step, actions.joined.astype(np.int64)] = behind
    stays = np.append(device, -1)[source] == device[:, None]
    return source, np.where(stays | (source == none), last, way)


def _needs(
    actions: ActionOrder, step: Integers, none: int, shape: tuple[int, int]
) -> tuple[Integers, Integers]:
    """Step (A,) that makes the input of every action, and the chunk (A,) behind which it comes over."""
    k, c = actions.microbatch, actions.chunk
    forward, weight = actions.kind == ActionKind.FORWARD, actions.kind == ActionKind.WEIGHT_GRADIENT
    backward = ~forward & ~weight
    done = np.full((2, shape[0], shape[1] + 1), none)
    done[0, k[forward], c[forward] + 1] = step[forward]  # column 0 stays: what enters waits for nothing
    done[1, k[backward], c[backward]] = step[backward]
    done[1, :, -1] = done[0, :, -1]  # the loss
    needed = np.where(forward, done[0, k, c], done[1, k, c + backward])
    return needed, c - forward


def _graph_inputs(actions: ActionOrder, microbatches: int, graph: StageGraph) -> tuple[Integers, Integers]:
    """Source and way of every step (U, K), each an action, where chunks are a graph, one on each device.

    A forward pass waits for those of all chunks that feed it, a backward pass for those of all that it feeds, at the
    ends for its own forward pass.
    """
    k, c, none = actions.microbatch, actions.chunk, len(actions)
    forward = actions.kind == ActionKind.FORWARD
    done = np.full((2, microbatches, graph.count), none)
    done[0, k[forward], c[forward]] = np.flatnonzero(forward)
    done[1, k[~forward], c[~forward]] = np.flatnonzero(~forward)
    joins = max(PAIRED, *map(len, (*graph.into, *graph.out_of)))
    source, way = np.full((none, joins), none), np.full((none, joins), len(graph.edges))
    for stage in range(graph.count):
        ahead, turned = (np.flatnonzero((c == stage) & side) for side in (forward, ~forward))
        for slot, edge in enumerate(graph.into[stage]):
            source[ahead, slot], way[ahead, slot] = done[0, k[ahead], graph.edges[edge][0]], edge
        for slot, edge in enumerate(graph.out_of[stage]):
            source[turned, slot], way[turned, slot] = done[1, k[turned], graph.edges[edge][1]], edge
        if not graph.out_of[stage]:
            source[turned, 0] = done[0, k[turned], stage]
    return source, way


_SIDE_BY_SIDE = 16
"""Plans that are simulated at once: more do not fit into a processor's cache."""

_ENDS = 1 << 20
"""Ends of steps that are worked out at once, for memory's sake."""


def pipeline_s(schedule: Schedule, microbatches: int, stages: int, chunks: Chunks) -> float:
    """Seconds from the first start to the last end. Raises ValueError where the schedule does not run so."""
    _, _, end_s = _run(schedule, microbatches, stages, chunks)
    return float(end_s.max())


def pipelines_s(
    schedule: Schedule, microbatches: int, stages: int, chunks: Chunks, look: Look = wanted
) -> Floats:
    """`pipeline_s` of many plans, (N,) for chunks (N, C), side by side; of equal ones only one.

    `look` is called between those that do not run side by side.
    """
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
    if chunks.graph is not None:
        each = (pipeline_s(schedule, microbatches, stages, chunks.of_plan(row)) for row in first)
        return np.array(list(each))[which]
    work = precedence(schedule, stages, microbatches, chunks.per_device(stages))
    found, most = [], min(_SIDE_BY_SIDE, max(1, _ENDS // len(work.kind)))
    for some in range(0, len(first), most):
        look()
        found.append(_ends_s(work, chunks.take(first[some : some + most])))
    return np.concatenate(found)[which]


def _ends_s(work: Precedence, chunks: Chunks) -> Floats:
    """The last end of each of some plans, (N,)."""
    steps, (plans, count) = len(work.kind), chunks.forward_s.shape
    seconds = np.ascontiguousarray(_kinds_s(chunks).transpose(0, 2, 1))
    way_s = np.zeros((count, plans))
    way_s[:-1] = chunks.transfer_s.T
    name = "run_many_blocking" if chunks.blocking else "run_many"
    run_many = machine().compiled(name, STEPS * work.longest + steps * plans // ELEMENTS)
    if run_many is None:
        end_s = _wave_ends(work, seconds[work.kind, work.chunk], way_s[work.way], chunks.blocking)
    else:
        end_s = np.empty((steps + 1, plans))
        end_s[-1] = 0.0
        filled = (np.zeros_like(end_s), end_s) if chunks.blocking else (end_s,)
        order = (work.queue, work.before, work.source, work.kind, work.chunk, work.way)
        run_many(*order, seconds, way_s, *filled)
    latest: Floats = end_s[work.first[1:] - 1].max(axis=0)  # a device ends with its last step
    return latest


def _wave_ends(work: Precedence, seconds: Floats, way_s: Floats, blocking: bool) -> Floats:
    """Ends (U + 1, N) of steps that take so long, (U, N), behind transfers from their sources, (U, 2, N)."""
    sent_s = np.zeros((len(seconds) + 1, seconds.shape[1]))
    if blocking:
        senders = work.source.ravel()
        for plan, each in enumerate(way_s.reshape(len(senders), -1).T):
            sent_s[:, plan] = np.bincount(senders, each, len(sent_s))
    source, way = (work.source[:, 0], work.source[:, 1]), (way_s[:, 0], way_s[:, 1])
    return run_waves(*work.in_waves, work.before, source, seconds, way, sent_s, blocking)


def pipeline_period_s(schedule: Schedule, microbatches: int, stages: int, chunks: Chunks) -> float:
    """Seconds from one iteration to the next, see `Timeline.period_s`."""
    work, start_s, end_s = _run(schedule, microbatches, stages, chunks)
    return float((end_s[work.first[1:] - 1] - start_s[work.first[:-1]]).max())


def simulate(schedule: Schedule, microbatches: int, stages: int, chunks: Chunks) -> Timeline:
    """When every action runs, each as early as it can. Raises ValueError where the schedule does not run so."""
    work, start_s, end_s = _run(schedule, microbatches, stages, chunks)
    every = schedule_actions(schedule, stages, microbatches, chunks.per_device(stages), chunks.graph)
    each, cuts = every.each(), every.starts[1:-1]
    return Timeline(each, tuple(np.split(start_s[work.step], cuts)), tuple(np.split(end_s[work.step], cuts)))


def _run(
    schedule: Schedule, microbatches: int, stages: int, chunks: Chunks
) -> tuple[Precedence, Floats, Floats]:
    """Start and end (U,) of every step."""
    if chunks.forward_s.ndim != 1:
        raise ValueError("the simulation takes one plan at a time")
    work = precedence(schedule, stages, microbatches, chunks.per_device(stages), chunks.graph)
    seconds = np.ascontiguousarray(_kinds_s(chunks)[work.kind, work.chunk])
    times = seconds.tobytes(), chunks.transfer_s.tobytes(), chunks.blocking, chunks.graph
    end_s = _known_ends(schedule, microbatches, stages, chunks.per_device(stages), *times)
    return work, end_s[:-1] - seconds, end_s[:-1]


@lru_cache(maxsize=8)
def _known_ends(
    schedule: Schedule,
    microbatches: int,
    stages: int,
    chunks_per_device: int,
    seconds: bytes,
    transfer_s: bytes,
    blocking: bool,
    graph: StageGraph | None,
) -> Floats:
    """Ends (U + 1,) of the steps, kept: plans that differ in what follows have the same, and the best is checked."""
    work = precedence(schedule, stages, microbatches, chunks_per_device, graph)
    lasting = np.frombuffer(seconds)
    end_s = _step_ends(work, lasting, np.append(np.frombuffer(transfer_s), 0.0)[work.way], blocking)
    end_s.flags.writeable = False
    return end_s


def _step_ends(work: Precedence, seconds: Floats, way_s: Floats, blocking: bool) -> Floats:
    """Ends (U + 1,) of steps that take so long, (U,), behind transfers from their sources, (U, K)."""
    end_s = np.zeros(len(seconds) + 1)
    sent = np.bincount(work.source.ravel(), way_s.ravel(), len(end_s)) if blocking else end_s
    sent_s = np.asarray(sent, dtype=np.float64)
    if work.source.shape[1] > PAIRED:
        steps_s = (work.queue, work.before, work.source, seconds, way_s, sent_s, blocking)
        return machine(joined_steps).fill("run_joins", *steps_s, end_s=end_s)
    source, way = (work.source[:, 0], work.source[:, 1]), (way_s[:, 0], way_s[:, 1])
    steps = (work.before, source, seconds, way, sent_s, blocking)
    wide = len(work.waves) and len(work.first) > WIDE
    if wide and machine().compiled("run", STEPS * len(work.waves)) is None:
        return run_waves(work.queue, work.waves, *steps)
    return machine().fill("run", work.queue, *steps, end_s=end_s)


def _kinds_s(chunks: Chunks) -> Floats:
    """Seconds of every kind of step in every chunk, (kinds, ..., C)."""
    each = (chunks.forward_s, chunks.backward_s, chunks.input_gradient_s, chunks.weight_gradient_s)
    return np.stack([*each, chunks.pairs_s])
