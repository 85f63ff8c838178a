"""Loads of every possible stage, for many architectures at once.

Tables over stages are indexed [length - 1, first layer] with the architectures last: a stage grows by one layer
from row to row, and all starts of all architectures are one contiguous run of memory. Entries whose stage would
reach beyond the last layer are infinite.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from phaze.solvers.arrays import Floats
from phaze.solvers.placement.chain.chain_problem import Edge

# Indices of stages.
DepthArray = NDArray[np.int16]


@dataclass(frozen=True)
class Transfers:
    """Latest arrivals from outside a stage (L, L), in seconds from its start; 0 without any.

    `into_s[n - 1, v]`: at layer v as the n-th layer of a stage; `back_s[n - 1, v]`: of gradients, at layer v as
    the n-th from the end.
    """

    into_s: Floats
    back_s: Floats


def transfers(edges: tuple[Edge, ...], layers: int, bandwidth_bytes_per_s: float) -> Transfers:
    """Transfers of a graph of L layers."""
    return Transfers(
        crossing(edges, layers, np.maximum) / bandwidth_bytes_per_s,
        crossing([(v, u, size) for u, v, size in edges], layers, np.maximum) / bandwidth_bytes_per_s,
    )


def crossing(edges: list[Edge] | tuple[Edge, ...], layers: int, combine: np.ufunc) -> Floats:
    """Combined bytes at [n - 1, v] of the edges (u, v) from outside a stage in which v is n-th from that side."""
    table = np.zeros((layers, layers))
    if edges:
        source, target, size = map(np.array, zip(*edges, strict=True))
        # An edge over k layers comes from outside for the first k places of its target.
        combine.at(table, (abs(target - source) - 1, target), size)
    combine.accumulate(table[::-1], axis=0, out=table[::-1])
    return table


def stage_loads(
    moved: Transfers, forward_s: Floats, backward_s: Floats, *, recompute: bool
) -> tuple[Floats, Floats]:
    """Seconds per microbatch of inner stages (L, L, A) and of last stages by first layer (L, A).

    `forward_s`, `backward_s` (L, A). A path joins all layers, so that a layer waits for the one before it and for
    arrivals from outside, and never for an edge that skips layers of the same stage.

    The recomputed forward takes the sum of its layers and holds every backward layer back: the pass ends after
    all its work, or as without recomputing where an incoming gradient is later still.
    """
    layers, architectures = forward_s.shape
    inner = np.full((layers, layers, architectures), np.inf)
    last = np.empty((layers, architectures))
    forward = backward = work = np.zeros((layers + 1, architectures))
    for place in range(layers):
        count = layers - place
        forward = np.maximum(forward[:count], moved.into_s[place, place:, None])
        forward += forward_s[place:]
        backward = np.maximum(backward[1 : count + 1], moved.back_s[place, :count, None])
        backward += backward_s[:count]
        last[count - 1] = forward[-1] + backward[-1]
        if recompute:
            work = work[:count] + (forward_s[place:] + backward_s[place:])
            np.add(forward, np.maximum(work, backward), out=inner[place, :count])
        else:
            np.add(forward, backward, out=inner[place, :count])
    return inner, last


def sums_by_length(values: Floats) -> Floats:
    """Sum of values[i], ..., values[i + n - 1] at [n - 1, i], added from left to right; 0 beyond the end (L, L)."""
    sums, running = np.zeros((values.size, values.size)), np.zeros(values.size)
    for place in range(values.size):
        running = running[: values.size - place] + values[place:]
        sums[place, : running.size] = running
    return sums


def interval_sums(values: ArrayLike) -> Floats:
    """Sum of values[i..j] at [i, j], added from left to right (differences of prefix sums would round)."""
    row = np.asarray(values, dtype=np.float64)
    return np.cumsum(np.triu(np.broadcast_to(row, (row.size, row.size))), axis=1)


def prefix_sums(values: Floats) -> Floats:
    """Running sums along the last axis, with a leading zero."""
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    return sums
