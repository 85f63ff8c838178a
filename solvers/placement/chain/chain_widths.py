"""Figures of one tensor-parallel width that all architectures share: degrees worth trying, stages, their memory.

A stage takes t devices, or one if no layer of it is tensor-parallel (a narrow stage). Where stages fit in
memory stands as the largest index from the end, in tables [length - 1, first layer].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np
from phaze.solvers.arrays import Flags, Floats, Integers
from phaze.solvers.placement.chain.chain_problem import Optimizer, PlacementProblem, WidthModel
from phaze.solvers.placement.stage_costs import DepthArray, Transfers, crossing, sums_by_length, transfers


@dataclass(frozen=True)
class Degrees:
    """In growing order, the smallest degree of each number of microbatches per pipeline.

    A larger degree with the same number of microbatches has fewer devices per pipeline and a longer resync.
    """

    data_parallel: Integers
    microbatches: Integers
    devices_per_pipeline: Integers
    resync_s_per_byte: Floats

    def admitting(self, devices: Integers | int) -> Integers:
        """How many of the degrees, the first ones, leave a pipeline so many devices (n,)."""
        return np.asarray(np.searchsorted(-self.devices_per_pipeline, -np.asarray(devices), side="right"))


def data_parallel_degrees(problem: PlacementProblem) -> Degrees:
    """All degrees d in 1..min(D, m) that are smallest for their value of ceil(m / d): O(sqrt m) of them."""
    total, limit = problem.microbatches_per_batch, min(problem.num_devices, problem.microbatches_per_batch)
    small = np.arange(1, min(math.isqrt(total) + 1, limit) + 1, dtype=np.int64)
    # Either d or ceil(m / d) is small; ceil(m / ceil(m / d)) is the smallest degree that is as good as d.
    d = np.unique(-(-total // np.concatenate([-(-total // small), small])))
    d = d[d <= limit]
    resync_s_per_byte = 4 * (d - 1) / problem.link_bandwidth_bytes_per_s / d
    return Degrees(d, -(-total // d), problem.num_devices // d, resync_s_per_byte)


@dataclass(frozen=True)
class StageDevices:
    """`narrow` (L, L): whether the stage at [length - 1, first layer] is narrow where that makes a difference.

    `wide`: devices of any other stage; `most_narrow` (S + 1,): most narrow stages among S, at [S];
    `most_narrow_behind` (S + 1,): the same without the first layer.
    """

    narrow: Flags
    wide: int
    most_narrow: Integers
    most_narrow_behind: Integers

    def of(self, stages: Integers | int, narrow: Integers | int) -> Integers:
        """Devices of so many stages, some of them narrow (n,)."""
        return np.asarray(self.wide * (stages - narrow) + narrow)


def stage_devices(model: WidthModel, most_stages: int) -> StageDevices:
    """Devices of the stages of one width, for up to so many stages."""
    sharded = np.array(model.is_tensor_parallel)
    layers = sharded.size
    narrow = np.zeros((layers, layers), dtype=np.bool_)
    if model.tensor_parallel == 1 or sharded.all() or not sharded.any():
        wide = model.tensor_parallel if sharded.any() else 1
        none = np.zeros(most_stages + 1, dtype=np.int64)
        return StageDevices(narrow, wide, none, none)
    narrow[:] = np.arange(layers)[:, None] < _run_lengths(sharded)
    most, behind = (_most_narrow(model.is_tensor_parallel[first:], most_stages) for first in (0, 1))
    return StageDevices(narrow, model.tensor_parallel, most, behind)


def _run_lengths(sharded: Flags) -> Integers:
    """Layers from each one on until the next tensor-parallel one (L,)."""
    stops = np.append(np.flatnonzero(sharded), sharded.size)
    ahead: Integers = stops[np.searchsorted(stops, np.arange(sharded.size))] - np.arange(sharded.size)
    return ahead


def _most_narrow(is_tensor_parallel: Sequence[bool], most_stages: int) -> Integers:
    """Narrow stages lie in runs of layers that are not tensor-parallel; w wide stages leave w + 1 runs apart."""
    runs = sorted(
        (len(list(run)) for sharded, run in groupby(is_tensor_parallel) if not sharded), reverse=True
    )
    longest = [0, *accumulate(runs)]
    most = [0]
    for stages in range(1, most_stages + 1):
        # One stage more makes room for one narrow stage more, or none.
        wide = stages - most[-1] - 1
        most.append(most[-1] + (most[-1] < longest[min(wide + 1, len(runs))]))
    return np.array(most)


@dataclass(frozen=True)
class StageMemory:
    """Bytes that a stage holds anyway and once more per stage behind it (L, L)."""

    held_bytes: Floats
    stash_bytes: Floats
    num_devices: int

    def deepest(self, capacity_bytes: Floats) -> DepthArray:
        """Largest index from the end, at most L, at which a stage fits (L, L, n) under n capacities; or 0."""
        held, stash = self.held_bytes[..., None], self.stash_bytes[..., None]
        room = capacity_bytes - held
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            steps = np.minimum(1.0 + np.floor(room / stash), self.num_devices)
        unlimited = held + (self.num_devices - 1) * stash <= capacity_bytes
        deepest = np.where(room < 0, 0.0, np.where(unlimited, self.num_devices, steps))
        return np.minimum(deepest, len(held)).astype(np.int16)


def stage_memory(problem: PlacementProblem, model: WidthModel) -> StageMemory:
    """Memory of all stages of one width by the rules of placement.md."""
    layers = len(model.forward_s)
    parameters = sums_by_length(np.array(model.parameter_bytes))
    activations = sums_by_length(np.array(model.activation_bytes))
    held = 2 * parameters + (parameters if problem.optimizer is Optimizer.ADAM else 0.0) + activations
    stash = _entering(model, layers) if problem.activation_recomputation else activations
    held[np.arange(layers)[:, None] + np.arange(layers) >= layers] = np.inf  # beyond the last layer
    return StageMemory(held, stash, problem.num_devices)


def _entering(model: WidthModel, layers: int) -> Floats:
    """Bytes of all edges from outside into a stage."""
    into = crossing(model.edges, layers, np.add)
    entering, running = np.zeros((layers, layers)), np.zeros(layers)
    for place in range(layers):
        running = running[: layers - place] + into[place, place:]
        entering[place, : layers - place] = running
    return entering


def fewest_stages(deepest: DepthArray, most: int) -> int:
    """Fewest stages that fit under limits (L, L); one more than `most` if so many do not."""
    layers = len(deepest)
    starts = np.zeros(2 * layers + 1, dtype=np.bool_)  # where a suffix in so many stages may start
    starts[layers] = True
    longest = deepest.max(axis=1)
    behind = np.lib.stride_tricks.sliding_window_view(starts[1:], layers)
    for stages in range(1, most + 1):
        lengths = int(np.flatnonzero(longest >= stages).max(initial=-1)) + 1
        fits = (deepest[:lengths] >= stages) & behind[:lengths]
        found = np.asarray(fits.any(axis=0))
        starts[:layers], starts[layers] = found, False
        if found[0]:
            return stages
        if not found.any():
            break
    return most + 1


@dataclass(frozen=True)
class Width:
    """One width of a problem, the one at `index`.

    `first_bytes` (L,): parameters of a first stage by its last layer; `depth`: most stages that have devices.
    """

    problem: PlacementProblem
    index: int
    model: WidthModel
    degrees: Degrees
    transfers: Transfers
    memory: StageMemory
    devices: StageDevices
    first_bytes: Floats
    depth: int

    @property
    def layers(self) -> int:
        """Number of layers L."""
        return len(self.model.forward_s)


def widths(problem: PlacementProblem) -> list[Width]:
    """The widths of a problem of which one stage has devices, in its order."""
    degrees = data_parallel_degrees(problem)
    layers, found = len(problem.layer_ids), []
    for index, model in enumerate(problem.models):
        devices = stage_devices(model, layers)
        fewest = devices.of(np.arange(layers + 1), devices.most_narrow)
        depth = int(np.count_nonzero(fewest[1:] <= problem.num_devices))
        if not depth:
            continue
        moved = transfers(model.edges, layers, problem.link_bandwidth_bytes_per_s)
        memory, first_bytes = stage_memory(problem, model), np.cumsum(model.parameter_bytes)
        found.append(Width(problem, index, model, degrees, moved, memory, devices, first_bytes, depth))
    return found
