"""Cheap lower bounds on layer times for every architecture of a space at once.

An operator's latency is at least what its tensor-core half needs and at least what its vector half needs.
The first depends on a few thousand distinct combinations of fields, the second on a few hundred, so a
space of hundreds of thousands of architectures is bounded by two gathers and an addition per pass.

For a pass on N tensor and V vector cores, with P a path through it, the bound is the largest of
  c = tensor halves on P + vector halves on P + collectives on P        (critical path, best modes)
  a - min((a - c) / v, vector halves on P), a = tensor work / N + vector halves on P
  HBM bytes / bandwidth, buffer bytes / bandwidth                        (memory is shared)
where v is the least speed-up of those vector operators from one core to all. The second holds because a
core-parallel vector operator blocks the tensor cores: sparing them that (x seconds of it) means running
vector operators on one core, which lengthens the path by (v - 1) x.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from phaze.cost.model import CostModel
from phaze.explore.request import Task
from phaze.hardware.table import ArchitectureTable, factor
from phaze.scheduling.layers import LayerTimes
from phaze.workload.work import LayerChain, Pass, Unit, Work

FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]
VECTOR_FIELDS = ("vector_cores", "vector_core_alus")
TENSOR_FIELDS = ("tensor_cores", "tensor_core_rows", "tensor_core_columns", "local_buffer_bytes", "global_buffer_bytes")


@dataclass(frozen=True)
class _Half:
    """A table reduced to the distinct combinations that one half of the operators can tell apart."""

    model: CostModel
    table: ArchitectureTable
    inverse: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class _PassBound:
    """Per distinct combination: tensor side (K1,), vector side (K2,)."""

    path_tensor_s: FloatArray
    work_tensor_s: FloatArray
    floor_s: FloatArray
    path_vector_s: FloatArray
    speedup: FloatArray


@dataclass
class FactoredBounds:
    """Lower bounds on layer times over a whole table."""

    task: Task
    table: ArchitectureTable
    _tensor: _Half = field(init=False)
    _vector: _Half = field(init=False)
    _passes: dict[Pass, _PassBound] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find the distinct combinations."""
        self._tensor = self._half(VECTOR_FIELDS)
        self._vector = self._half(TENSOR_FIELDS)

    def _half(self, ignored: tuple[str, ...]) -> _Half:
        fields = [name for name in self.table.columns if name not in ignored]
        rows, inverse = factor(self.table, fields)
        reduced = self.table.take(rows)
        return _Half(CostModel(reduced, self.task.network), reduced, inverse)

    def layer_times(self, chain: LayerChain, rows: Rows) -> LayerTimes:
        """Lower bounds on the times of the chain's unique layers, (len(rows), U) seconds."""
        forward = [self._bound(layer.forward, rows) for layer in chain.layers]
        backward = [self._bound(layer.backward, rows) for layer in chain.layers]
        return LayerTimes(np.stack(forward, axis=1), np.stack(backward, axis=1))

    def _bound(self, pass_: Pass | None, rows: Rows) -> FloatArray:
        if pass_ is None or not pass_.works:
            return np.zeros(len(rows))
        if pass_ not in self._passes:
            self._passes[pass_] = self._measure(pass_)
        known = self._passes[pass_]
        k1, k2 = self._tensor.inverse[rows], self._vector.inverse[rows]
        vector = known.path_vector_s[k2]
        path = known.path_tensor_s[k1] + vector
        busy = known.work_tensor_s[k1] + vector
        spared = np.minimum((busy - path) / known.speedup[k2], vector)
        bound: FloatArray = np.maximum(np.maximum(path, busy - np.maximum(spared, 0.0)), known.floor_s[k1])
        return bound

    def _measure(self, pass_: Pass) -> _PassBound:
        tensor = self._latencies(self._tensor, _halves(pass_, _tensor_half))
        vector = self._latencies(self._vector, _halves(pass_, _vector_half))
        tensor_best, vector_best = np.minimum(tensor[0], tensor[1]), np.minimum(vector[0], vector[1])
        means = tensor_best.mean(axis=0), vector_best.mean(axis=0)
        path = _longest_path(pass_, np.maximum(*means))
        on_vector = np.array([o for o in path if means[1][o] > means[0][o]], dtype=np.intp)
        on_tensor = np.array([o for o in path if means[1][o] <= means[0][o]], dtype=np.intp)
        cores = self._tensor.table["tensor_cores"][:, None]
        occupies = [i for i, w in enumerate(pass_.works) if w.gemms and i not in set(on_vector.tolist())]
        return _PassBound(
            path_tensor_s=tensor_best[:, on_tensor].sum(axis=1),
            work_tensor_s=np.minimum(tensor[0] / cores, tensor[1])[:, occupies].sum(axis=1),
            floor_s=tensor[2],
            path_vector_s=vector_best[:, on_vector].sum(axis=1),
            speedup=_least_speedup(vector[0][:, on_vector], vector_best[:, on_vector]),
        )

    @staticmethod
    def _latencies(half: _Half, pass_: Pass) -> tuple[FloatArray, FloatArray, FloatArray]:
        every = np.arange(len(half.table))
        found = half.model.costs(pass_).latencies(every)
        return found.single_s, found.parallel_s, np.maximum(found.hbm_s, found.buffer_s)


def _halves(pass_: Pass, half: object) -> Pass:
    return Pass(tuple(half(w) for w in pass_.works), pass_.edges)  # type: ignore[operator]


def _tensor_half(work: Work) -> Work:
    if work.unit is Unit.LINK:
        return work
    return replace(work, vector_cycles=0.0)


def _vector_half(work: Work) -> Work:
    if work.unit in (Unit.VECTOR, Unit.TENSOR_VECTOR):
        return replace(work, gemms=(), unit=Unit.VECTOR)
    return Work(work.name, work.kind, Unit.VECTOR)


def _longest_path(pass_: Pass, weight: FloatArray) -> list[int]:
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(pass_.works)))
    graph.add_edges_from(pass_.edges)
    finish: dict[int, tuple[float, int]] = {}
    for o in nx.topological_sort(graph):
        before = max(((finish[p][0], p) for p in graph.predecessors(o)), default=(0.0, -1))
        finish[o] = (before[0] + float(weight[o]), before[1])
    at = max(finish, key=lambda o: finish[o][0])
    path = []
    while at >= 0:
        path.append(at)
        at = finish[at][1]
    return path[::-1]


def _least_speedup(single: FloatArray, best: FloatArray) -> FloatArray:
    if single.shape[1] == 0:
        return np.ones(len(single))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(best > 0, single / best, np.inf)
    least: FloatArray = np.maximum(ratio.min(axis=1), 1.0)
    return least
