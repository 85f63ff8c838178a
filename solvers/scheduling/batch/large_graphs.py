"""List schedules of graphs of many operators by machine code, once that pays."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
from phaze.solvers.arrays import Flags, Floats
from phaze.solvers.looks import Look

from ..machine_code import Names, OnceWorth
from . import kernel_lists
from .graph import BatchGraph
from .kernel_lists import Operators, Times

MANY_OPERATORS = 48
"""Operators of a graph from which on its list schedules may be worth machine code."""

_AT_ONCE = 1 << 16
"""Operators of all architectures together between two looks at whether they are still wanted."""


@cache
def machine() -> OnceWorth:
    """Machine code of this process."""
    return OnceWorth(_sample, kernel_lists)


def list_schedules(
    graph: BatchGraph,
    single: Floats,
    parallel: Floats,
    priority: Floats,
    shares: Flags,
    free: Mapping[str, Floats],
    look: Look,
) -> Floats:
    """Makespans (A,) of `upper_bounds.dispatch`; `free` (C, A): times at which cores of each unit are free."""
    operators, count = operators_of(graph, tuple(free)), single.shape[1]
    idle = np.full((count, len(free), max(map(len, free.values()), default=0)), np.inf)
    for number, since in enumerate(free.values()):
        idle[:, number, : len(since)] = since.T
    modes = np.ascontiguousarray(single.T), np.ascontiguousarray(parallel.T)
    times = Times(*modes, np.ascontiguousarray(priority.T), np.ascontiguousarray(shares.T))
    makespan, names = np.zeros(count), machine().names
    most = max(_AT_ONCE // graph.size, 1)
    for begin in range(0, count, most):
        look()
        part = slice(begin, begin + most)
        some = Times(times.single[part], times.parallel[part], times.priority[part], times.shares[part])
        names["list_schedules"](operators, some, idle[part], makespan[part])
    return makespan


def operators_of(graph: BatchGraph, units: tuple[str, ...]) -> Operators:
    """The graph as arrays; `units` in their order."""
    kinds: dict[tuple[tuple[str, ...], bool], int] = {}
    kind = [kinds.setdefault(one, len(kinds)) for one in zip(graph.units, graph.core.tolist(), strict=True)]
    return Operators(
        kind=np.array(kind, dtype=np.int64),
        units=np.array([[unit in mine for unit in units] for mine, _ in kinds], dtype=np.bool_),
        core=np.array([core for _, core in kinds], dtype=np.bool_),
        first=np.cumsum([0, *map(len, graph.successors)]).astype(np.int64),
        follows=np.array([j for row in graph.successors for j in row], dtype=np.int64),
        before=np.array([len(row) for row in graph.reverse.successors], dtype=np.int64),
    )


def _sample(names: Names) -> None:
    """Call all functions on two operators in a row."""
    graph, one = BatchGraph((("TC",), ("VC",)), ((0, 1),)), np.ones((1, 2))
    times = Times(one, one, one, np.ones((1, 2), dtype=np.bool_))
    names["list_schedules"](operators_of(graph, ("TC", "VC")), times, np.zeros((1, 2, 1)), np.zeros(1))
