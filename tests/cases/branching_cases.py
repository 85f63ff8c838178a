"""Models with branches for tests: towers of products of any number and width that meet in a sum, and all their cuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import networkx
import numpy as np
from strategy_cases import estimator, framework

from phaze.parallel.framework import Framework
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.plan_search.branches.branch_cuts import ordered_cut
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.operators.operator_graph import GraphBuilder, OperatorGraph, OpKind
from phaze.workload.workload import Mode, Workload
from phaze.workload.workload_loader import LoadOptions, workload_of


class Towers:
    """Branches of products with a fork ahead of them, or an input of each; `widths`: of the products of each."""

    heads = None

    def __init__(self, widths: Sequence[Sequence[int]], *, forked: bool = False, rows: int = 512) -> None:
        self.name, self.widths, self.forked, self.rows = "towers", widths, forked, rows

    def graph(self, batch: int) -> OperatorGraph:
        g, shape = GraphBuilder(self.name), (batch, self.rows, 256)
        stem = self._half(g, "stem.0", g.input("x", shape), 256) if self.forked else None
        ends = []
        for t, widths in enumerate(self.widths):
            x = stem or g.input(f"x{t}", shape)
            for k, width in enumerate(widths):
                x = self._half(g, f"tower{t}.{k}", x, width)
            ends.append(x)
        joined = g.add("join.sum", OpKind.ELEMENTWISE, ends, shape, function="add") if ends[1:] else ends[0]
        return g.build((self._half(g, "head.0", joined, 256),))

    @staticmethod
    def _half(g: GraphBuilder, name: str, x: str, width: int) -> str:
        """Two products, of which the first makes so many features."""
        shape = g.shape(x)
        up, down = g.parameter(f"{name}.up.w", (256, width)), g.parameter(f"{name}.down.w", (width, 256))
        y = g.add(f"{name}.up", OpKind.MATMUL, (x, up), (*shape[:-1], width))
        return g.add(f"{name}.down", OpKind.MATMUL, (y, down), shape)


@cache
def small_clip(image: int = 4, text: int = 4) -> Workload:
    """An image tower and a text tower of a few blocks, whose vectors meet in one product."""
    shared = {"activation": "silu", "hidden": 256, "heads": 4}
    content = {
        "schema_version": 1,
        "name": "small-clip",
        "family": "two-tower",
        "source": {"dimensions": "made up for tests"},
        "dimensions": {
            "image": {**shared, "layers": image, "image": 224, "patch": 16, "classes": 128},
            "text": {**shared, "layers": text, "vocabulary": 5000, "max_positions": 64, "features": 128},
        },
        "sequence_length": 64,
    }
    return workload_of(content, "small-clip", LoadOptions(Mode.TRAINING))


def workload(widths: Sequence[Sequence[int]], **options: object) -> GraphWorkload:
    """Training of such a model."""
    return GraphWorkload(Towers(widths, **options), Mode.TRAINING, global_batch=16)


def costs(
    model: GraphWorkload, devices: int = 4, batch: int = 16, under: Framework | None = None
) -> Estimator:
    """It on so many chips."""
    return estimator(devices, batch, "a100", under or framework(), workload=model)


def cut_before(e: Estimator, plan: ParallelPlan, *names: str) -> ParallelPlan:
    """The plan whose stages start with the first layer and with those of some names."""
    layers = e.chain(plan).names
    ends = [0, *map(layers.index, names), len(layers)]
    return replace(plan, pipeline_parallel=len(names) + 1, stages=tuple(np.diff(ends).tolist()))


def every_cut(e: Estimator, deep: ParallelPlan) -> Iterator[ParallelPlan]:
    """A plan with every cut into convex stages, whatever branches they hold parts of; chains of blocks aside."""
    edges = [(way.source, way.target) for way in e.workload.layer_graph(deep.microbatch, deep.sharding).edges]
    for stages in every_partition(len(e.chain(deep).index), tuple(edges), deep.pipeline_parallel):
        cut = ordered_cut(stages, edges)
        assert cut is not None
        plan = replace(deep, stages=cut.sizes, layer_order=cut.order)
        if cut.order or not e.layouts.edges(plan).graph.is_chain:
            yield plan


@cache
def every_partition(count: int, edges: tuple[tuple[int, int], ...], parts: int) -> list[list[list[int]]]:
    """All ways to deal layers out to so many stages that do not feed one another both ways."""
    found = []
    for homes in _dealt(count, parts):
        ways = networkx.DiGraph((homes[u], homes[v]) for u, v in edges if homes[u] != homes[v])
        if networkx.is_directed_acyclic_graph(ways):
            found.append([[i for i in range(count) if homes[i] == part] for part in range(parts)])
    return found


def _dealt(count: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Stages of so many layers, numbered as they are met."""
    if count == 0:
        yield from [()] if parts == 0 else []
    elif 0 < parts <= count:
        yield from ((*few, parts - 1) for few in _dealt(count - 1, parts - 1))
        yield from ((*few, home) for few in _dealt(count - 1, parts) for home in range(parts))
