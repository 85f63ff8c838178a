"""Models with branches for tests: towers of products of any number and width that meet in a sum, and all their cuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
from strategy_cases import estimator, framework

from phaze.parallel.framework import Framework
from phaze.parallel.parallel_plan import ParallelPlan
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
    """A plan with every cut between layers whose stages are no chain."""
    count = len(e.chain(deep).index)
    for ends in combinations(range(1, count), deep.pipeline_parallel - 1):
        plan = replace(deep, stages=tuple(np.diff([0, *ends, count]).tolist()))
        if not e.layouts.edges(plan).graph.is_chain:
            yield plan
