"""Chains cut where the longest stage is shortest, into several numbers of stages at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from phaze.solvers.arrays import Floats, Integers
from phaze.solvers.placement.partition import dp
from phaze.solvers.placement.partition.problem import PartitionProblem, StageLimits


def balanced_cuts(layer_s: Floats, stages: Sequence[int]) -> dict[int, Integers]:
    """How many layers each stage has (A, n), for every number of stages n asked for, of A chains (A, L).

    Exact, by one table of the recurrence over (stages, first layer) for all; memory does not count. Of equally good
    cuts, that whose first stages are as short as can be. Raises ValueError where there are fewer layers than stages.
    """
    count, layers = layer_s.shape
    if max(stages, default=1) > layers:
        raise ValueError(f"{layers} layers do not make {max(stages)} stages")
    limits = StageLimits(np.full((layers, layers), layers), None)
    ends = np.zeros((count, layers + 1))
    problem = PartitionProblem(layer_s, layer_s, ends, limits, np.arange(layers), exactly=True)
    inner, last = dp.stage_loads(problem)
    tables = dp.suffix_tables(inner, last, limits, max(stages, default=1))
    return {n: _sizes(inner, tables, n) for n in stages}


def _sizes(inner: Floats, tables: list[Floats], stages: int) -> Integers:
    """Follow the tables from the first layer on."""
    chains = np.arange(len(inner))
    starts = [np.zeros(len(inner), dtype=np.int64)]
    for left in range(stages - 1, 0, -1):
        longest = np.maximum(inner[chains, starts[-1]], tables[left - 1][:, 1:])
        starts.append(longest.argmin(axis=1) + 1)
    return np.diff([*starts, np.full(len(inner), inner.shape[2])], axis=0).T
