"""What all architectures share of one tensor-parallel width."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from phaze.solvers.arrays import Floats
from phaze.solvers.placement.chain.degrees import Degrees, data_parallel_degrees
from phaze.solvers.placement.chain.instance import PlacementProblem, WidthModel
from phaze.solvers.placement.chain.stage_devices import StageDevices, stage_devices
from phaze.solvers.placement.chain.stage_memory import StageMemory, stage_memory
from phaze.solvers.placement.stage_costs import Transfers, transfers


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
