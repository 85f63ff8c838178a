"""Architectures and passes that the tests of the cost room share."""

from __future__ import annotations

import itertools

import numpy as np

from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.cluster_network import two_tiers
from phaze.hardware.hardware_fields import default_values
from phaze.workload.parallel_degrees import Group, Parallel
from phaze.workload.work import Collective, Gemm, Link, Pass, Traffic, Unit, Work

NETWORK = two_tiers(8, None, 1e-6, 50e9, 5e-6)


def chips(**columns) -> ArchitectureTable:
    """Default architectures with some columns exchanged; a number stands for all of them."""
    length = max([np.size(c) for c in columns.values()], default=1)
    base = to_table([Architecture(name="default", fields=default_values())]).take(np.zeros(length, np.intp))
    new = {name: np.broadcast_to(c, length).astype(base[name].dtype) for name, c in columns.items()}
    return base.replace(**new)


def grid(**axes) -> ArchitectureTable:
    """Every combination of the given values."""
    combinations = np.array(list(itertools.product(*axes.values()))).T
    return chips(**dict(zip(axes, combinations, strict=True)))


def product(m, k, n, groups=1, traffic=Traffic.TILED):
    """A product of bf16 tensors."""
    return Gemm(groups, m, k, n, 2.0 * groups * m * k, 2.0 * groups * k * n, 2.0 * groups * m * n, traffic)


def tensor(name, *gemms, **more):
    """A tensor-core operator."""
    return Work(name, "matmul", Unit.TENSOR, gemms, **more)


def vector(name, elements, cycles):
    """An element-wise operator: one read and one write of two bytes per element."""
    return Work(
        name, "elementwise", Unit.VECTOR, (), vector_cycles=elements * cycles, stream_bytes=4.0 * elements
    )


def exchange(collective, payload_bytes, group):
    """A collective of a group of devices."""
    return Work("exchange", collective.value, Unit.LINK, link=Link(collective, payload_bytes, group))


def reduction(payload_bytes, devices):
    """An all-reduce of a tensor-parallel group."""
    return exchange(Collective.ALL_REDUCE, payload_bytes, Group(Parallel.TENSOR, devices))


def transformer_layer(tokens=512, hidden=256, heads=4, group=4) -> Pass:
    """One layer with every kind of operator: norm, three projections, flash attention, collective, MLP."""
    size = hidden // heads
    scores = heads * tokens * tokens
    fused = (
        product(tokens, size, tokens, heads, Traffic.FUSED),
        product(tokens, tokens, size, heads, Traffic.FUSED),
    )
    attention = Work(
        "attention",
        "attention",
        Unit.TENSOR_VECTOR,
        fused,
        vector_cycles=14.0 * scores,
        stream_bytes=8.0 * tokens * hidden,
        reread_bytes=4.0 * tokens * hidden,
        reread_rows_bytes=6.0 * tokens * size,
    )
    works = (
        vector("norm", tokens * hidden, 8),
        *(tensor(name, product(tokens, hidden, hidden)) for name in ("query", "key", "value")),
        attention,
        tensor("out", product(tokens, hidden, hidden)),
        reduction(2.0 * tokens * hidden, group),
        vector("add", tokens * hidden, 1),
        tensor("up", product(tokens, hidden, 4 * hidden)),
        vector("gelu", tokens * 4 * hidden, 18),
        tensor("down", product(tokens, 4 * hidden, hidden)),
    )
    edges = ((0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9), (9, 10))
    return Pass(works, edges)
