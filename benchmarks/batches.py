"""Work on many architectures at once: placements, stage partitions and operator costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from phaze.solvers.placement import read_problem
from phaze.solvers.placement.chain.chain_batch import PlacementBatch
from phaze.solvers.placement.chain.chain_search import place_batch
from phaze.solvers.placement.partition import PartitionProblem, bottlenecks, stage_limits
from placement_instances import transformer_chain

from phaze.cost.cost_model import CostModel
from phaze.hardware.cluster_network import load_network
from phaze.hardware.spaces.space_file import load_space
from phaze.workload.workload_loader import load_workload

LAYERS = 96
STAGES = tuple(range(1, 17))


def partition(architectures: int) -> Callable[[], object]:
    """Exact partition of a chain of 96 layers into 1 to 16 stages for so many architectures."""
    rng = np.random.default_rng(0)
    plain = rng.uniform(1.0, 2.0, (architectures, LAYERS))
    boundary = np.full((architectures, LAYERS + 1), 0.1)
    figures = {
        name: np.ones(LAYERS) for name in ("static_bytes", "saved_bytes", "input_bytes", "working_bytes")
    }
    limits = stage_limits(**figures, memory_bytes=1e9, recompute=False, inflight_limit=None)
    problem = PartitionProblem(plain, plain, boundary, limits, np.arange(LAYERS))
    return lambda: bottlenecks(problem, STAGES)


def placements(architectures: int) -> Callable[[], object]:
    """Exact placement of GPT-3, 98 layers, 1024 devices, four widths, for so many architectures.

    They differ by up to a third in how fast each layer runs in each width.
    """
    problem = read_problem(transformer_chain(98, 1024))
    passes = np.array([(model.forward_s, model.backward_s) for model in problem.models])
    faster = np.random.default_rng(0).uniform(0.75, 1.0, (architectures, *passes[:, 0].shape))
    batch = PlacementBatch(problem, passes[:, 0] * faster, passes[:, 1] * faster)
    return lambda: place_batch(batch)


def costs(architectures: int) -> Callable[[], object]:
    """Both latencies of every operator of GPT-3's distinct layers on so many architectures."""
    space, network = load_space(), load_network("default")
    rows = np.linspace(0, space.size - 1, architectures, dtype=np.int64)
    table, every = space.table(rows.tolist()), np.arange(architectures)

    def work() -> object:
        model = CostModel(table, network)
        return [model.costs(p).latencies(every) for p in passes()]

    return work


def operators() -> int:
    """Operators whose costs `costs` works out."""
    return sum(len(p.works) for p in passes())


@cache
def passes() -> tuple:
    """Forward and backward passes of GPT-3's distinct layers on one device."""
    layers = load_workload("gpt3").chain(1, 1).layers
    return tuple(p for layer in layers for p in (layer.forward, layer.backward) if p)
