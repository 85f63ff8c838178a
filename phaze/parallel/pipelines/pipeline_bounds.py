"""Lower bounds of the time of a pipeline, for many plans at once, to screen them before any is simulated.

Three chains of actions that every timeline of a schedule contains, so none can be shorter:

- device: nothing reaches a device before it came through the chunks in front of it; then the device does all its
  work, one action at a time; after its last backward pass the gradient still has to go back to the first chunk. Twice
  it waits where later chunks take longer than what its order gives it to do: from its first forward pass until the
  gradient of that microbatch is back, and from its last forward pass until the last gradient is. For 1F1B of unequal
  chunks this is the exact time, as a rule.
- loop: a device holds at most `in_flight` microbatches of a chunk. Each slot takes microbatches first in, first out, so
  microbatch k + held enters the chunk only when k has come back to it, a round through all later chunks and back.
- turn (GPipe, and forward passes alone): the last device sees all microbatches before it turns back the first, and
  microbatches pass through devices as through a flow shop, at the pace of the slowest. This one is the exact time,
  but where transfers block forward passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from phaze.arrays import Floats, Integers
from phaze.parallel.pipelines.action_order import ActionKind, orders
from phaze.parallel.pipelines.chunk_times import Chunks
from phaze.parallel.pipelines.device_turns import TURN_LATE, DeviceTurns, device_turns
from phaze.parallel.pipelines.in_flight import in_flight
from phaze.parallel.pipelines.pipeline_schedule import Schedule, chunks_of, device_of
from phaze.parallel.pipelines.stage_graph import StageGraph


def pipeline_bound_s(schedule: Schedule, microbatches: int, stages: int, chunks: Chunks) -> Floats:
    """Lower bound of `pipeline_s` of every plan, (...,) for chunks (..., C).

    Raises ValueError where the schedule does not run so.
    """
    if chunks.graph is not None:
        return _graph_s(microbatches, chunks, chunks.graph)
    if schedule.forward_only:
        return _forward_s(microbatches, chunks)
    paths = _paths(schedule, stages, chunks)
    bound = np.maximum(
        _device_s(schedule, microbatches, stages, chunks, paths),
        _loop_s(schedule, microbatches, stages, chunks, paths),
    )
    if schedule is Schedule.GPIPE:
        slowest = chunks.forward_s.max(axis=-1) + chunks.backward_s.max(axis=-1)
        bound = np.maximum(bound, paths.round_s[..., 0] + (microbatches - 1) * slowest)
    return bound


def _graph_s(m: int, chunks: Chunks, graph: StageGraph) -> Floats:
    """Lower bound of 1F1B on a graph of chunks: devices and loops as above, along the longest ways through the graph.

    head(v) = max over edges u-v of head(u) + f(u) + t; tail(v) the same of backward passes;
    round(v) = f(v) + b(v) + max over edges v-u of 2 t + round(u).
    """
    ahead_s, turned_s, way_s = chunks.forward_s, chunks.backward_s, chunks.transfer_s
    head_s, tail_s, behind_s, received_s = (np.zeros_like(ahead_s) for _ in range(4))
    for number, (u, v) in enumerate(graph.edges):
        way = way_s[..., number]
        head_s[..., v] = np.maximum(head_s[..., v], head_s[..., u] + ahead_s[..., u] + way)
        tail_s[..., v] = np.maximum(tail_s[..., v], tail_s[..., u] + turned_s[..., u] + way)
        received_s[..., v] += (m - 1) * way
        received_s[..., u] += m * way
    for number, (u, v) in reversed(tuple(enumerate(graph.edges))):
        round_s = ahead_s[..., v] + turned_s[..., v] + behind_s[..., v]
        behind_s[..., u] = np.maximum(behind_s[..., u], 2 * way_s[..., number] + round_s)
    both_s = ahead_s + turned_s
    device_s = m * both_s + (received_s if chunks.blocking else 0.0)
    loop_s = np.ceil(m / graph.held(m)) * (both_s + behind_s)
    bound: Floats = (head_s + tail_s + np.maximum(device_s, loop_s)).max(axis=-1)
    return bound


def _forward_s(microbatches: int, chunks: Chunks) -> Floats:
    """Lower bound of forward passes alone, one chunk on each device: a flow shop at the pace of its slowest device.

    A transfer that blocks both its devices belongs to the pace of either.
    """
    between = np.zeros((*chunks.forward_s.shape[:-1], 1))
    way_s = np.concatenate([between, chunks.transfer_s, between], axis=-1)
    pace_s = chunks.forward_s
    if chunks.blocking:
        pace_s = pace_s + np.maximum(way_s[..., :-1], way_s[..., 1:])
    through_s = chunks.forward_s.sum(axis=-1) + chunks.transfer_s.sum(axis=-1)
    found: Floats = through_s + (microbatches - 1) * pace_s.max(axis=-1)
    return found


@dataclass(frozen=True)
class _Paths:
    """Seconds (..., C) of the shortest ways of one microbatch around every chunk.

    `way_s` (..., C): transfer into the chunk, in either direction of its front end. `head_s`: from the first start to
    the chunk; `round_s`: through it and all later ones and back through it; `tail_s`: from there to the end.
    `ahead_s`: from the end of its forward pass to that of the last chunk; `back_s`: from there to the start of its
    backward pass, which takes `backward_s` (without weight gradients that are put off).
    """

    way_s: Floats
    head_s: Floats
    round_s: Floats
    tail_s: Floats
    ahead_s: Floats
    back_s: Floats
    backward_s: Floats


def _paths(schedule: Schedule, stages: int, chunks: Chunks) -> _Paths:
    device = device_of(schedule, stages, chunks.per_device(stages))[0]
    way_s = np.zeros_like(chunks.forward_s)
    way_s[..., 1:] = np.where(device[1:] != device[:-1], chunks.transfer_s, 0.0)
    backward_s = chunks.input_gradient_s if schedule.splits_backward else chunks.backward_s
    head_s = np.cumsum(way_s, axis=-1) + _before(chunks.forward_s)
    tail_s = np.cumsum(way_s, axis=-1) + _before(backward_s)
    if schedule.splits_backward:
        tail_s = tail_s + chunks.weight_gradient_s[..., :1]
    ahead_s, back_s = (_behind(one) + _behind(way_s) for one in (chunks.forward_s, backward_s))
    round_s = ahead_s + back_s + chunks.forward_s + backward_s
    return _Paths(way_s, head_s, round_s, tail_s, ahead_s, back_s, backward_s)


def _before(times: Floats) -> Floats:
    """Sum of all earlier chunks."""
    return np.cumsum(times, axis=-1) - times


def _behind(times: Floats) -> Floats:
    """Sum of all later chunks."""
    found: Floats = times.sum(axis=-1, keepdims=True) - np.cumsum(times, axis=-1)
    return found


def _loop_s(schedule: Schedule, m: int, p: int, chunks: Chunks, paths: _Paths) -> Floats:
    each = chunks.per_device(p)
    most = np.empty(chunks.count)
    at_once = in_flight(schedule, p, m, each, ActionKind.INPUT_GRADIENT)
    most[chunks_of(schedule, p, each)] = at_once  # both copies of a chunk hold the same number
    rounds = np.ceil(m // schedule.weight_copies / most)
    bound: Floats = (paths.head_s + rounds * paths.round_s + paths.tail_s).max(axis=-1)
    return bound


def _device_s(schedule: Schedule, m: int, p: int, chunks: Chunks, paths: _Paths) -> Floats:
    own = chunks_of(schedule, p, chunks.per_device(p))
    per_copy = m // schedule.weight_copies
    passes_s = per_copy * (chunks.forward_s + chunks.backward_s)
    work_s = passes_s[..., own].sum(axis=-1) - _saved_s(schedule, m, p, chunks)
    if chunks.blocking:
        work_s = work_s + _received_s(per_copy, own, paths.way_s)
    put_off_s = per_copy * chunks.weight_gradient_s[..., own].sum(axis=-1)
    if schedule not in TURN_LATE:
        turns = device_turns(schedule, p, m, chunks.per_device(p))
        work_s = work_s + _idle_s(turns, own, chunks, paths)
        put_off_s = (turns.late * chunks.weight_gradient_s[..., own]).sum(axis=-1)
    head_s, tail_s = paths.head_s[..., own].min(axis=-1), paths.tail_s[..., own].min(axis=-1)
    ends_s = work_s + tail_s
    if schedule.splits_backward:
        ends_s = np.maximum(work_s, ends_s - put_off_s)
    bound: Floats = (head_s + ends_s).max(axis=-1)
    return bound


def _idle_s(turns: DeviceTurns, own: Integers, chunks: Chunks, paths: _Paths) -> Floats:
    """Seconds (..., p) that devices wait, at least, in the turns of their first and of their last microbatch."""
    into_s = paths.way_s * chunks.blocking
    back_s = np.roll(into_s, -1, axis=-1)  # the first chunk has none, so the last gets none from behind
    passes_s = (chunks.forward_s + into_s, paths.backward_s + back_s, chunks.weight_gradient_s)
    device, waits_s = np.arange(len(own)), []
    for forward, backward, passes in zip(turns.forward, turns.backward, turns.passes, strict=True):
        there, here = own[device, forward], own[device, backward]
        busy_s = sum((passes[:, k] * one[..., own]).sum(axis=-1) for k, one in enumerate(passes_s))
        away_s = paths.ahead_s[..., there] + paths.back_s[..., here] - back_s[..., here]
        waits_s.append(np.maximum(away_s - busy_s, 0.0))
    first_s, last_s = waits_s
    found: Floats = np.where(turns.apart, first_s + last_s, np.maximum(first_s, last_s))
    return found


def _saved_s(schedule: Schedule, m: int, p: int, chunks: Chunks) -> Floats:
    """Seconds (..., p) that pairs take less than their passes one after the other."""
    if chunks.paired_s is None or schedule is not Schedule.DUALPIPE:
        return np.zeros(p)
    less_s = chunks.forward_s + chunks.backward_s[..., ::-1] - chunks.paired_s
    saved_s: Floats = less_s @ _pairs(schedule, p, m).T
    return saved_s


@lru_cache(maxsize=256)
def _pairs(schedule: Schedule, p: int, m: int) -> Floats:
    """Number of times (devices, C) that the forward pass of a chunk runs with a backward pass on a device."""
    leading = (order.chunk[:-1][order.joined[1:]] for order in orders(schedule, p, m))
    return np.array([np.bincount(chunks, minlength=p) for chunks in leading], dtype=float)


def _received_s(per_copy: int, own: Integers, way_s: Floats) -> Floats:
    """Seconds (..., p) that a device spends receiving after its first action has started."""
    into = way_s + np.roll(way_s, -1, axis=-1)  # the first chunk has none, so the last gets none from behind
    received_s: Floats = per_copy * into[..., own].sum(axis=-1) - way_s[..., own].max(axis=-1)
    return received_s
