"""Where stages fit in memory: largest index from the end, in tables [length - 1, first layer]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from phaze.solvers.arrays import Floats
from phaze.solvers.placement.chain.instance import Optimizer, PlacementProblem, WidthModel
from phaze.solvers.placement.stage_costs import DepthArray, crossing, sums_by_length


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
