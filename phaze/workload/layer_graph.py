"""The layers of a model as a graph, branches and skips included; a chain is the special case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import pairwise

from phaze.workload.branches import branch_stops, depth_first
from phaze.workload.cut import Segment, distinct_names, swallowed_by_fusion
from phaze.workload.degrees import Sharding
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.ir import OperatorGraph
from phaze.workload.isomorphism import Signatures
from phaze.workload.layers import build_layer, tied_parameters
from phaze.workload.parallel.divide import Whole
from phaze.workload.shardable import sorted_out
from phaze.workload.steps import Context
from phaze.workload.training import forward_steps, saved_tensors
from phaze.workload.work import LayerChain


@dataclass(frozen=True, slots=True)
class LayerEdge:
    """What one layer makes and another reads: positions of both and the bytes of one microbatch, undivided."""

    source: int
    target: int
    boundary_bytes: float


@dataclass(frozen=True, slots=True)
class LayerGraph:
    """A model as a graph of layers: `order` holds them in topological order, edges are by (source, target).

    What a layer of `order` exchanges is told by the edges, not by its place between two others.
    """

    order: LayerChain
    edges: tuple[LayerEdge, ...]

    @property
    def is_chain(self) -> bool:
        """Whether every layer feeds the next one and no other."""
        return [(e.source, e.target) for e in self.edges] == list(pairwise(range(len(self.order.index))))


def layer_graph(workload: GraphWorkload, microbatch: int = 1, tensor_parallel: int = 1) -> LayerGraph:
    """Layers and edges of any model. Isomorphic layers are built once."""
    graph = depth_first(workload.operator_graph(microbatch))
    ctx = workload.rules_context(graph)
    steps = forward_steps(graph.operators, ctx)
    swallowed = swallowed_by_fusion(steps, ctx, graph, fusion=workload.fusion)
    segments = sorted_out(_segments(graph, ctx, branch_stops(graph, ctx, swallowed)), graph)
    signatures, numbers = Signatures(graph, ctx), dict[Hashable, int]()
    index = tuple(numbers.setdefault(signatures.of(s), len(numbers)) for s in segments)
    unique = [segments[index.index(number)] for number in range(len(numbers))]
    whole, sharding = Whole(graph, ctx), Sharding(tensor_parallel)
    tied = tied_parameters(segments, ctx)
    layers = tuple(build_layer(s, whole, sharding, fusion=workload.fusion, tied=tied) for s in unique)
    names = distinct_names(segments)
    order = LayerChain(workload.name, microbatch, sharding, layers, index, names)
    return LayerGraph(order, _edges(segments, ctx))


def _segments(graph: OperatorGraph, ctx: Context, stops: list[int]) -> tuple[Segment, ...]:
    """Operators between the stops, and how many later layers read what each of them makes."""
    parts = [graph.operators[a:b] for a, b in pairwise((0, *stops))]
    reads = [{t for op in part for t in op.inputs if t not in ctx.parameters} for part in parts]
    readers = Counter(t for tensors in reads for t in tensors)
    kept = [frozenset(saved_tensors(p, ctx)) if ctx.differentiable else frozenset[str]() for p in parts]
    holders = Counter(t for tensors in kept for t in tensors)
    found = []
    for part, mine, own_kept in zip(parts, reads, kept, strict=True):
        made = dict.fromkeys(t for op in part for t in op.outputs if t not in ctx.parameters)
        others = {t: readers[t] - (t in mine) for t in made}
        outputs = tuple(t for t in made if others[t] or t in graph.outputs)
        inputs = dict.fromkeys(t for op in part for t in op.inputs if t in mine and t not in made)
        later = frozenset(t for t in outputs if holders[t] > (t in own_kept))
        shared = {t: others[t] for t in outputs if others[t] > 1}
        found.append(Segment(part, tuple(inputs), outputs, later, shared=shared))
    return tuple(found)


def _edges(segments: tuple[Segment, ...], ctx: Context) -> tuple[LayerEdge, ...]:
    """One edge from each layer to each that reads of what it makes."""
    maker = {t: i for i, segment in enumerate(segments) for t in segment.outputs}
    sizes: Counter[tuple[int, int]] = Counter()
    for target, segment in enumerate(segments):
        for t in segment.inputs:
            if t in maker:
                sizes[maker[t], target] += int(ctx.bytes(t))
    return tuple(LayerEdge(*pair, float(size)) for pair, size in sorted(sizes.items()))
