"""Cutting a model into layers, and finding the layers that are the same.

A layer lies between two consecutive points that exactly one activation tensor passes. A model input
counts as a tensor that passes until it is read for the last time, so inputs enter at the first layer;
the labels of a loss do not count. Fused operators stay together, so no cut is made through a
tensor that fusion swallows; views belong to the layer that reads them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from phaze.workload.ir import Operator, OperatorGraph, OpKind
from phaze.workload.passes import aliases, schedulable
from phaze.workload.steps import Context, Step
from phaze.workload.training import differentiable, forward_steps, parameter_views, saved_tensors


@dataclass(frozen=True)
class Segment:
    """Operators of one layer and the tensors at its two ends.

    `inputs`: tensors from earlier layers and from outside the model. `outputs`: tensors that later layers
    read, or results of the model. `kept_later`: outputs that a later layer keeps for its own backward.
    """

    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kept_later: frozenset[str]

    @property
    def first_name(self) -> str:
        """Name of the first operator that does something."""
        working = [op for op in self.operators if op.kind is not OpKind.VIEW]
        return (working or self.operators)[0].name

    @property
    def prefix(self) -> str:
        """Dotted path that the names of all working operators share; the first one's name otherwise."""
        names = [op.name.split(".") for op in self.operators if op.kind is not OpKind.VIEW]
        names = names or [self.first_name.split(".")]
        shared = 0
        while all(len(n) > shared for n in names) and len({n[shared] for n in names}) == 1:
            shared += 1
        return ".".join(names[0][:shared]) if shared else ".".join(names[0])

    @property
    def path(self) -> str:
        """What is cut from operator names inside the layer: the prefix, unless it is an operator's name."""
        names = {op.name for op in self.operators}
        return self.prefix.rpartition(".")[0] if self.prefix in names else self.prefix

    @property
    def kind(self) -> str:
        """The prefix without running numbers: what layers of this sort are called."""
        return re.sub(r"\d+", "", self.prefix) or self.operators[0].kind.value


def whole_context(graph: OperatorGraph, *, training: bool) -> Context:
    """Context for rules over the undivided graph."""
    flows = differentiable(graph) if training else frozenset()
    return Context(graph.tensors, parameter_views(graph), flows, training)


def cut(graph: OperatorGraph, ctx: Context, *, fusion: bool = True) -> tuple[Segment, ...]:
    """Split a graph into its layers, in order."""
    steps = forward_steps(graph.operators, ctx)
    same = aliases(steps)
    swallowed = _swallowed(steps, ctx, graph, fusion=fusion)
    stops = _stops(graph, ctx, same, swallowed)
    return _segments(graph, ctx, stops)


def _swallowed(steps: Sequence[Step], ctx: Context, graph: OperatorGraph, *, fusion: bool) -> frozenset[str]:
    """Tensors inside fused steps."""
    kept = saved_tensors(graph.operators, ctx)
    plain = schedulable(steps, kept, graph.outputs, fusion=False)
    fused = schedulable(steps, kept, graph.outputs, fusion=fusion)
    left = {t for step in fused.steps for t in step.writes}
    return frozenset(t for step in plain.steps for t in step.writes if t not in left)


def _stops(graph: OperatorGraph, ctx: Context, same: dict[str, str], swallowed: Collection[str]) -> list[int]:
    """Positions after which the graph is cut; the last is its end."""
    end = len(graph.operators)
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for i, op in enumerate(graph.operators):
        for t in op.outputs:
            if t not in ctx.parameters:
                first.setdefault(same.get(t, t), i)
        for t in op.inputs:
            last[same.get(t, t)] = i
    labels = {op.inputs[1] for op in graph.operators if op.kind is OpKind.LOSS}
    first |= dict.fromkeys((t for t in graph.inputs if t not in labels), 0)
    last |= {same.get(t, t): end for t in graph.outputs}
    crossing, label = [0] * (end + 1), [0] * (end + 1)
    for number, (t, begin) in enumerate(first.items()):
        stop = max(last.get(t, begin), begin)
        for row, weight in ((crossing, 1), (label, number)):
            row[begin] += weight
            row[stop] -= weight
    names = tuple(first)
    works = tuple(accumulate(op.kind is not OpKind.VIEW for op in graph.operators))
    stops: list[int] = []
    for i, (count, number) in enumerate(zip(accumulate(crossing), accumulate(label), strict=True)):
        if i + 1 >= end or count != 1 or names[number] in swallowed:
            continue
        if works[i] > (works[stops[-1] - 1] if stops else 0) and works[-1] > works[i]:
            stops.append(i + 1)
    return [*stops, end]


def _segments(graph: OperatorGraph, ctx: Context, stops: Sequence[int]) -> tuple[Segment, ...]:
    """Segments between the stops, with what passes between them."""
    place = {t: i for i, op in enumerate(graph.operators) for t in op.outputs}
    last = {t: i for i, op in enumerate(graph.operators) for t in op.inputs}
    last |= dict.fromkeys(graph.outputs, len(graph.operators))
    found: list[Segment] = []
    later: frozenset[str] = frozenset()
    for start, stop in reversed(tuple(pairwise((0, *stops)))):
        operators = graph.operators[start:stop]
        read = dict.fromkeys(t for op in operators for t in op.inputs)
        inputs = tuple(t for t in read if place.get(t, -1) < start and t not in ctx.parameters)
        made = (t for op in operators for t in op.outputs)
        outputs = tuple(t for t in made if last.get(t, -1) >= stop and t not in ctx.parameters)
        found.append(Segment(operators, inputs, outputs, later.intersection(outputs)))
        later = frozenset(saved_tensors(operators, ctx)) if ctx.differentiable else frozenset()
    return tuple(reversed(found))


def signature(segment: Segment, graph: OperatorGraph, ctx: Context) -> Hashable:
    """Equal for two segments exactly when renaming tensors and operators turns one into the other.

    Operators are compared in order, tensors numbered by first use; shapes, element sizes, parameters,
    gradients and what happens to the outputs take part, names do not.
    """
    numbers: dict[str, int] = {}
    parts: list[Hashable] = []

    def number(tensor: str) -> Hashable:
        if tensor in numbers:
            return numbers[tensor]
        numbers[tensor] = len(numbers)
        info = graph.tensors[tensor]
        gradient = tensor in ctx.differentiable
        return (numbers[tensor], info.shape, info.element_bytes, tensor in ctx.parameters, gradient)

    for op in segment.operators:
        attributes = tuple(sorted(op.attributes.items()))
        reads = tuple(number(t) for t in op.inputs)
        parts.append((op.kind, attributes, reads, tuple(number(t) for t in op.outputs)))
    ends = (segment.inputs, segment.outputs, tuple(t for t in segment.outputs if t in segment.kept_later))
    parts.extend(tuple(numbers[t] for t in tensors) for tensors in ends)
    model_ends = (segment.inputs, graph.inputs), (segment.outputs, graph.outputs)
    parts.extend(tuple(t in mine for t in tensors) for tensors, mine in model_ends)
    return tuple(parts)
