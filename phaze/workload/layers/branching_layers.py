"""The layers of a model as a graph, branches and skips included; a chain is the special case.

Where a graph branches it is cut: towers, skips and second inputs become layers and edges of their own.

Operators are put in an order that finishes one branch before it starts the next. A layer ends where exactly one
tensor that it made is still needed, however many others pass by, unless that would tear a residual block apart:
where a tensor that the layer reads is needed again soon after, together with what the layer makes. A skip over
many operators, as a U-Net's, is left to be an edge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from phaze.workload.fusion_rules import Fusion
from phaze.workload.layers.layer_cutting import Segment, swallowed_by_fusion
from phaze.workload.layers.operator_fusion import aliases
from phaze.workload.operators.operator_graph import Operator, OperatorGraph, OpKind
from phaze.workload.operators.operator_steps import OperatorContext
from phaze.workload.sharding.shardable_layers import classify_segments
from phaze.workload.training.backward_pass import forward_steps, saved_tensors
from phaze.workload.work import LayerEdge

SHORT_SKIP = (
    16  # working operators that a skip spans at most if it stays inside a layer: a block's half has 14
)


def depth_first(graph: OperatorGraph) -> OperatorGraph:
    """The same graph with each branch in one piece; what is a chain keeps its order."""
    readers, makers = graph.consumers(), graph.producers()
    waiting = [len({makers[t] for t in op.inputs if t in makers}) for op in graph.operators]
    stack = [i for i in range(len(waiting) - 1, -1, -1) if not waiting[i]]
    order: list[int] = []
    while stack:
        place = stack.pop()
        order.append(place)
        after = sorted({r for t in graph.operators[place].outputs for r in readers.get(t, ())}, reverse=True)
        for reader in after:
            waiting[reader] -= 1
        stack += [reader for reader in after if not waiting[reader]]
    return replace(graph, operators=tuple(graph.operators[i] for i in order))


def branch_stops(graph: OperatorGraph, ctx: OperatorContext, swallowed: Collection[str]) -> list[int]:
    """Positions after which a graph in depth-first order is cut; the last is its end."""
    return _Scan(graph, ctx, swallowed).stops()


class _Scan:
    """Walks over the operators once; what it looks back and ahead at is bounded by layers and short skips."""

    def __init__(self, graph: OperatorGraph, ctx: OperatorContext, swallowed: Collection[str]) -> None:
        self._operators = graph.operators
        self._swallowed = swallowed
        self._parameters = ctx.parameters
        self._same = aliases(forward_steps(graph.operators, ctx))
        self._readers = _under_first_names(graph.operators, self._same)
        for t in graph.outputs:
            self._readers.setdefault(self._first(t), []).append(len(graph.operators))
        self._working = [op.kind is not OpKind.VIEW for op in graph.operators]

    def _first(self, tensor: str) -> str:
        return self._same.get(tensor, tensor)

    def stops(self) -> list[int]:
        """Cut as early as is allowed, again and again."""
        found: list[int] = []
        end, start = len(self._operators), 0
        done, left = 0, sum(self._working)
        for i in range(end - 1):
            done, left = done + self._working[i], left - self._working[i]
            if done and left and self._may_end(start, i):
                found.append(i + 1)
                start, done = i + 1, 0
        return [*found, end]

    def _may_end(self, start: int, last: int) -> bool:
        """Whether a layer of the operators from `start` to `last` is whole."""
        part = self._operators[start : last + 1]
        made = {self._first(t) for op in part for t in op.outputs if t not in self._parameters}
        leaving = [t for t in made - self._pieces(part, made) if self._needed_after(t, last)]
        if len(leaving) != 1 or leaving[0] in self._swallowed:
            return False
        read = {self._first(t) for op in part for t in op.inputs if t not in self._parameters} - made
        again = {r for t in read for r in self._readers[t] if r > last}
        return again.isdisjoint(self._soon_made_of(leaving[0], last))

    def _pieces(self, part: Sequence[Operator], made: Collection[str]) -> set[str]:
        """Pieces of a tensor from before: what some later layer reads of them passes by."""
        apart = (op for op in part if op.kind is OpKind.VIEW and len(op.outputs) > 1)
        return {t for op in apart if self._first(op.inputs[0]) not in made for t in op.outputs}

    def _needed_after(self, tensor: str, last: int) -> bool:
        return any(reader > last for reader in self._readers.get(tensor, ()))

    def _soon_made_of(self, tensor: str, last: int) -> set[int]:
        """Operators not far behind `last` that depend on a tensor."""
        known, found, seen = {tensor}, set(), 0
        for i in range(last + 1, len(self._operators)):
            seen += self._working[i]
            if seen > SHORT_SKIP:
                break
            op = self._operators[i]
            if any(self._first(t) in known for t in op.inputs):
                found.add(i)
                known.update(self._first(t) for t in op.outputs)
        return found


def _under_first_names(operators: Sequence[Operator], same: Mapping[str, str]) -> dict[str, list[int]]:
    """Positions of the operators that read every tensor; what only renames it does not count."""
    readers: dict[str, list[int]] = {}
    for i, op in enumerate(operators):
        if len(op.outputs) == 1 and op.outputs[0] in same:
            continue
        for t in op.inputs:
            readers.setdefault(same.get(t, t), []).append(i)
    return readers


def branching_graph(graph: OperatorGraph) -> OperatorGraph:
    """The same graph with every branch in one piece, and none that travels beside another one."""
    return depth_first(_apart(graph))


def branching_segments(
    graph: OperatorGraph, ctx: OperatorContext, fusion: Collection[Fusion]
) -> tuple[Segment, ...]:
    """The layers of a graph in depth-first order, towers and skips apart."""
    steps = forward_steps(graph.operators, ctx)
    swallowed = swallowed_by_fusion(steps, ctx, graph, fusion=fusion)
    return classify_segments(_segments(graph, ctx, branch_stops(graph, ctx, swallowed)), graph)


def _apart(graph: OperatorGraph) -> OperatorGraph:
    """The graph without tensors that are put together to be taken apart again, as what travels along a chain is."""
    joints: dict[str, Operator] = {}
    same: dict[str, str] = {}
    operators = []
    for op in graph.operators:
        inputs = tuple(same.get(t, t) for t in op.inputs)
        now = replace(op, inputs=inputs)
        joint = joints.get(op.inputs[0]) if op.kind is OpKind.VIEW and len(op.inputs) == 1 else None
        if joint is not None and _shapes(graph, op.outputs) == _shapes(graph, joint.inputs):
            same |= dict(zip(op.outputs, joint.inputs, strict=True))
            continue
        if op.kind is OpKind.VIEW and len(inputs) > 1 and len(op.outputs) == 1:
            joints[op.outputs[0]] = now
        operators.append(now)
    read = {t for op in operators for t in op.inputs} | set(graph.outputs)
    kept = tuple(op for op in operators if op.outputs[0] not in joints or op.outputs[0] in read)
    return replace(graph, operators=kept) if same else graph


def _shapes(graph: OperatorGraph, tensors: Sequence[str]) -> list[tuple[int, ...]]:
    return [graph.tensors[t].shape for t in tensors]


def _segments(graph: OperatorGraph, ctx: OperatorContext, stops: list[int]) -> tuple[Segment, ...]:
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


def layer_edges(segments: tuple[Segment, ...], ctx: OperatorContext) -> tuple[LayerEdge, ...]:
    """One edge from each layer to each that reads of what it makes."""
    maker = {t: i for i, segment in enumerate(segments) for t in segment.outputs}
    sizes: Counter[tuple[int, int]] = Counter()
    for target, segment in enumerate(segments):
        for t in segment.inputs:
            if t in maker:
                sizes[maker[t], target] += int(ctx.bytes(t))
    return tuple(LayerEdge(*pair, float(size)) for pair, size in sorted(sizes.items()))
