"""Minimal bottleneck by dynamic programming over (stages, first layer): any loads, also non-monotone ones.

Its tables also cut a chain where the longest stage is shortest, into several numbers of stages at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from phaze.solvers.arrays import Flags, Floats, Integers
from phaze.solvers.placement.partition.partition_problem import PartitionProblem, StageLimits

# Elements of one (architectures, L, L) block: about 16 MB each.
BLOCK = 2_000_000
ROW_BLOCK = 64


def stage_loads(problem: PartitionProblem) -> tuple[Floats, Floats]:
    """Loads of inner stages i..j (A, L, L), infinite below the diagonal, and of last ones (A, L)."""
    inner = problem.ends_s[:, None, 1:] - problem.starts_s[:, :-1, None]
    return np.where(np.triu(np.ones(inner.shape[1:], dtype=np.bool_)), inner, np.inf), problem.last_s


def suffix_tables(inner: Floats, last: Floats, limits: StageLimits, stages: int) -> list[Floats]:
    """f[s - 1] (A, L+1): smallest maximal value of layers i.. in exactly s stages, for s up to `stages`.

    `inner` (A, L, L), `last` (A, L): the value of a stage.
    """
    architectures, layers = last.shape
    values = inner.reshape(architectures, -1).copy()
    shallow_first, passed = limits.shallow_first
    square = values.reshape(inner.shape)
    room = np.empty((architectures, ROW_BLOCK, layers))
    tables = [np.concatenate([last, np.full((architectures, 1), np.inf)], axis=1)]
    for depth in range(2, min(stages, layers) + 1):
        # Stages whose limit the last step has passed fit no more.
        values[:, shallow_first[passed[depth - 2] : passed[depth - 1]]] = np.inf
        table = np.full_like(tables[-1], np.inf)
        # Stages end where they start or later: a block of rows skips the columns before its first.
        for begin in range(0, layers, ROW_BLOCK):
            rows = square[:, begin : begin + ROW_BLOCK, begin:]
            both = room[:, : rows.shape[1], begin:]
            np.maximum(rows, tables[-1][:, None, begin + 1 :], out=both)
            both.min(axis=2, out=table[:, begin : begin + rows.shape[1]])
        tables.append(table)
    return tables


def trace(problem: PartitionProblem, stages: int, allowed: Flags) -> tuple[int, ...]:
    """First layers of the stages of one architecture with the least maximal load; empty if nothing fits.

    `allowed` (L, L): whether i..j may be a stage, beside its memory.
    """
    deepest = problem.limits.inner
    inner, last = stage_loads(problem)
    inner, last = np.where(allowed, inner, np.inf), np.where(allowed[:, -1], last, np.inf)
    tables = suffix_tables(inner, last, problem.limits, stages)
    depth = stages if problem.exactly else int(np.argmin([table[0, 0] for table in tables])) + 1
    if depth > len(tables) or np.isinf(tables[depth - 1][0, 0]):
        return ()
    starts = [0]
    for index in range(depth, 1, -1):
        row = np.where(deepest[starts[-1]] >= index, inner[0, starts[-1]], np.inf)
        starts.append(int(np.argmin(np.maximum(row, tables[index - 2][0, 1:]))) + 1)
    return tuple(starts)


def bottlenecks(problem: PartitionProblem, most_stages: int) -> Floats:
    """Minimal maximal load (A, most_stages) with at most (or exactly) 1, 2, ... stages."""
    inner, last = stage_loads(problem)
    tables = suffix_tables(inner, last, problem.limits, most_stages)
    exact = np.full((problem.architectures, most_stages), np.inf)
    exact[:, : len(tables)] = np.stack([table[:, 0] for table in tables], axis=1)
    return exact if problem.exactly else np.minimum.accumulate(exact, axis=1)


def balanced_cuts(layer_s: Floats, stages: Sequence[int]) -> dict[int, Integers]:
    """Layers of each stage (A, n), for every number of stages n asked for, of A chains (A, L).

    Exact, by one table of the recurrence over (stages, first layer) for all; memory does not count. Of equally good
    cuts, that whose first stages are as short as can be. Raises ValueError where there are fewer layers than stages.
    """
    count, layers = layer_s.shape
    if max(stages, default=1) > layers:
        raise ValueError(f"{layers} layers do not make {max(stages)} stages")
    limits = StageLimits(np.full((layers, layers), layers), None)
    ends = np.zeros((count, layers + 1))
    problem = PartitionProblem(layer_s, layer_s, ends, limits, np.arange(layers), exactly=True)
    inner, last = stage_loads(problem)
    tables = suffix_tables(inner, last, limits, max(stages, default=1))
    return {n: _sizes(inner, tables, n) for n in stages}


def _sizes(inner: Floats, tables: list[Floats], stages: int) -> Integers:
    """Follow the tables from the first layer on."""
    chains = np.arange(len(inner))
    starts = [np.zeros(len(inner), dtype=np.int64)]
    for left in range(stages - 1, 0, -1):
        longest = np.maximum(inner[chains, starts[-1]], tables[left - 1][:, 1:])
        starts.append(longest.argmin(axis=1) + 1)
    return np.diff([*starts, np.full(len(inner), inner.shape[2])], axis=0).T
