"""What every step of a pipeline waits for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Integers
from phaze.placement.pipelines.machine import machine
from phaze.placement.pipelines.order import Kind, Order
from phaze.placement.pipelines.orders import orders
from phaze.placement.pipelines.schedule import Schedule

Indices = NDArray[np.int32]

PAIR = len(Kind)
"""Kind of a step that is a forward and a backward pass run as one."""

SMALL = 4096
"""Passes (stages x microbatches x chunks) up to which many are kept."""


@dataclass(frozen=True)
class Precedence:
    """The steps of all devices one after the other: actions, but those that run as one are one step.

    Device d runs steps first[d] .. first[d+1]-1. `kind`, `chunk` (U,) of the (first) action of a step; `step` (A,):
    the step of every action. `before` (U,): the step before it on its device; `source` (U, 2): those that make its
    inputs; U where there is none. `way` (U, 2): the chunk behind which an input changes device, C - 1 where it does
    not. `queue` (U,): all steps, each behind those it waits for.
    """

    first: Indices
    kind: Indices
    chunk: Indices
    step: Indices
    before: Indices
    source: Indices
    way: Indices
    queue: Indices


def precedence(schedule: Schedule, stages: int, microbatches: int, chunks_per_device: int = 1) -> Precedence:
    """Of a published schedule; kept. Raises ValueError where it does not run so."""
    small = stages * microbatches * chunks_per_device <= SMALL
    return (_of_small if small else _of_large)(schedule, stages, microbatches, chunks_per_device)


def _precedence(schedule: Schedule, stages: int, microbatches: int, chunks_per_device: int) -> Precedence:
    each = orders(schedule, stages, microbatches, chunks_per_device)
    return precedence_of(each, microbatches, stages * chunks_per_device)


_of_small, _of_large = lru_cache(maxsize=512)(_precedence), lru_cache(maxsize=8)(_precedence)
"""Half a megabyte each at most, and any size."""


def precedence_of(each: tuple[Order, ...], microbatches: int, chunks: int) -> Precedence:
    """Of any orders. Raises ValueError where the devices wait for one another."""
    actions = _one_after_the_other(each)
    step = np.cumsum(~actions.joined) - 1
    device = np.repeat(np.arange(len(each)), [len(order) for order in each])[~actions.joined]
    first = np.searchsorted(device, np.arange(len(each) + 1))
    source, way = _inputs(actions, step, device, (microbatches, chunks))
    before = np.arange(-1, len(device) - 1)
    before[first[:-1]] = len(device)
    queue = machine().function("sort", len(device))(first, source)
    if len(queue) < len(device):
        raise ValueError("the devices wait for one another")
    kind, chunk = actions.kind[~actions.joined], actions.chunk[~actions.joined]
    kind[step[actions.joined]] = PAIR
    columns = (first, kind, chunk, step, before, source, way, queue)
    return Precedence(*(column.astype(np.int32) for column in columns))


def _one_after_the_other(each: tuple[Order, ...]) -> Order:
    """The actions of all devices."""
    names = ("kind", "microbatch", "chunk", "joined")
    return Order(*(np.concatenate([getattr(order, name) for order in each]) for name in names))


def _inputs(
    actions: Order, step: Integers, device: Integers, shape: tuple[int, int]
) -> tuple[Integers, Integers]:
    """Source and way (U, 2) of every step; `shape`: microbatches, chunks."""
    none, last = len(device), shape[1] - 1
    needed, behind = _needs(actions, step, none, shape)
    source, way = np.full((none, 2), none), np.full((none, 2), last)
    source[step, actions.joined.astype(np.int64)] = needed
    way[step, actions.joined.astype(np.int64)] = behind
    stays = np.append(device, -1)[source] == device[:, None]
    return source, np.where(stays | (source == none), last, way)


def _needs(actions: Order, step: Integers, none: int, shape: tuple[int, int]) -> tuple[Integers, Integers]:
    """Step (A,) that makes the input of every action, and the chunk (A,) behind which it comes over."""
    k, c = actions.microbatch, actions.chunk
    forward, weight = actions.kind == Kind.FORWARD, actions.kind == Kind.WEIGHT_GRADIENT
    backward = ~forward & ~weight
    done = np.full((2, shape[0], shape[1] + 1), none)
    done[0, k[forward], c[forward] + 1] = step[forward]  # column 0 stays: what enters waits for nothing
    done[1, k[backward], c[backward]] = step[backward]
    done[1, :, -1] = done[0, :, -1]  # the loss
    needed = np.where(forward, done[0, k, c], done[1, k, c + backward])
    return needed, c - forward
