"""Cost of every possible stage of one model at once: (L, L) matrices over first and last layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from phaze.solvers.placement.instance import Edge, Optimizer, PlacementProblem, WidthModel

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class StageCosts:
    """Stage i..j at [i, j], both ends included; entries below the diagonal mean nothing.

    `load_last_s`: seconds per microbatch in the last stage; `load_inner_s`: in any other one.
    `parameter_bytes`: sum over the stage. `deepest`: largest index from the end at which the stage fits in
    memory, 0 if it fits nowhere. `narrow`: no layer of the stage is tensor-parallel: one device is enough.
    """

    tensor_parallel: int
    load_last_s: FloatArray
    load_inner_s: FloatArray
    parameter_bytes: FloatArray
    deepest: IntArray
    narrow: BoolArray


def stage_costs(problem: PlacementProblem, model: WidthModel) -> StageCosts:
    """All stage costs of one width by the rules of placement.md, in O(L * (L + edges)) array operations."""
    bandwidth = problem.link_bandwidth_bytes_per_s
    forward_s = _pass_time(model.forward_s, model.edges, bandwidth)
    # A backward pass is a forward pass over the mirrored chain.
    last = len(model.forward_s) - 1
    mirrored = tuple((last - v, last - u, size) for u, v, size in model.edges)
    backward_s = _pass_time(model.backward_s[::-1], mirrored, bandwidth)[::-1, ::-1].T
    plain = forward_s + backward_s
    inner = plain
    if problem.activation_recomputation:
        # Times are longest paths. The recomputed forward takes the sum of F, because a path joins all layers
        # of a stage, and holds every backward layer back; so the pass ends at sum F + sum B, or as without
        # it where an incoming gradient is later still.
        compute = interval_sums(model.forward_s) + interval_sums(model.backward_s)
        inner = forward_s + np.maximum(compute, backward_s)
    return StageCosts(
        tensor_parallel=model.tensor_parallel,
        load_last_s=plain,
        load_inner_s=inner,
        parameter_bytes=interval_sums(model.parameter_bytes),
        deepest=_deepest(problem, model),
        narrow=interval_sums(model.is_tensor_parallel) == 0,
    )


def interval_sums(values: ArrayLike) -> FloatArray:
    """Sum of values[i..j] at [i, j], added from left to right (differences of prefix sums would round)."""
    row = np.asarray(values, dtype=np.float64)
    return np.cumsum(np.triu(np.broadcast_to(row, (row.size, row.size))), axis=1)


def prefix_sums(values: FloatArray) -> FloatArray:
    """Running sums along the last axis, with a leading zero."""
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    return sums


def _pass_time(latency_s: tuple[float, ...], edges: tuple[Edge, ...], bandwidth: float) -> FloatArray:
    """Finish time at [i, v] of layer v in a stage that starts with layer i; its last layer ends the pass."""
    count = len(latency_s)
    incoming: list[list[Edge]] = [[] for _ in range(count)]
    for edge in edges:
        incoming[edge[1]].append(edge)
    finish = np.zeros((count, count))
    for v in range(count):
        start = np.zeros(v + 1)
        for u, _, size in incoming[v]:
            np.maximum(start[: u + 1], finish[: u + 1, u], out=start[: u + 1])
            np.maximum(start[u + 1 :], size / bandwidth, out=start[u + 1 :])
        finish[: v + 1, v] = start + latency_s[v]
    return finish


def _deepest(problem: PlacementProblem, model: WidthModel) -> IntArray:
    """Largest feasible index from the end, capped at the number of devices."""
    parameters = interval_sums(model.parameter_bytes)
    activations = interval_sums(model.activation_bytes)
    held = 2 * parameters + (parameters if problem.optimizer is Optimizer.ADAM else 0.0) + activations
    stash = _entering_bytes(model) if problem.activation_recomputation else activations
    room = problem.device_memory_bytes - held
    fits_all = held + (problem.num_devices - 1) * stash <= problem.device_memory_bytes
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(fits_all | (room < 0), 0.0, np.floor(room / stash))
    deepest = np.where(fits_all, problem.num_devices, np.where(room < 0, 0.0, 1.0 + steps))
    capped: IntArray = np.minimum(deepest, problem.num_devices).astype(np.int64)
    return capped


def _entering_bytes(model: WidthModel) -> FloatArray:
    """Bytes of all edges from outside into stage i..j, at [i, j]."""
    count = len(model.forward_s)
    entering = np.zeros((count, count))
    for u, v, size in model.edges:
        entering[u + 1 : v + 1, v:] += size
    return entering
