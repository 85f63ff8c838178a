"""Cutting a model into layers, and finding the layers that are the same.

A layer lies between two consecutive points that exactly one activation tensor passes, carried ones aside. A
tensor is carried if at least three later layers read it, as every block of a decoder reads the encoder's output,
or if it skips at least three layers of many operators, as those of a U-Net: it is sent along with the one that
passes (decision 0012). A model input counts as a tensor that passes until it is read for the last time, so inputs
enter at the first layer, but for those that nothing reads before the fourth; the labels of a loss do not count.
A long layer is cut further where two streams pass from block to block, as text and image through a diffusion
transformer.
Fused operators stay together, so no cut is made through a tensor that fusion swallows; views belong to the layer
that reads them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import isqrt
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from phaze.workload.fusion_rules import ALL_FUSION, NO_FUSION, Fusion
from phaze.workload.layers.operator_fusion import aliases, schedulable
from phaze.workload.operators.operator_graph import Operator, OperatorGraph, OpKind
from phaze.workload.operators.operator_steps import OperatorContext, Step
from phaze.workload.parallel_degrees import Shardable
from phaze.workload.training.backward_pass import (
    differentiable,
    forward_steps,
    parameter_views,
    saved_tensors,
)
from phaze.workload.work import Format

CARRIED_LAYERS = 3  # that must read a tensor for it to be carried along the chain, or that it skips
LONG_SKIP = 64  # working operators that such a skip spans at least; it stays inside a layer otherwise


@dataclass(frozen=True)
class Segment:
    """Operators of one layer and the tensors at its two ends.

    `inputs`: tensors from earlier layers and from outside the model. `outputs`: tensors that later layers read,
    or results of the model; inputs that later layers read as well are among them. `kept_later`: outputs that
    the next layer keeps for its own backward. `passing`: carried tensors that nothing here touches. `shared`:
    outputs that several layers read and send gradients of, with their number (never so in a chain). `shardable`: its
    sort, where tensor parallelism divides it.
    """

    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kept_later: frozenset[str]
    passing: tuple[str, ...] = ()
    shared: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    shardable: Shardable | None = None

    def arriving(self, tensor: str) -> int:
        """Number of gradients of a tensor that come from later layers."""
        return self.shared.get(tensor, 1) if tensor in self.outputs or tensor in self.passing else 0

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
        """Prefix that is cut from operator names inside the layer, unless it is an operator's name."""
        names = {op.name for op in self.operators}
        return self.prefix.rpartition(".")[0] if self.prefix in names else self.prefix

    @property
    def kind(self) -> str:
        """The prefix without running numbers: what layers of this sort are called."""
        return re.sub(r"\d+", "", self.prefix) or self.operators[0].kind.value


def whole_context(graph: OperatorGraph, *, training: bool, operands: Format | None = None) -> OperatorContext:
    """Context for rules over the undivided graph; `operands`: format of the products' operands."""
    flows = differentiable(graph) if training else frozenset()
    return OperatorContext(graph.tensors, parameter_views(graph), flows, training, operands=operands)


def cut(
    graph: OperatorGraph, ctx: OperatorContext, *, fusion: Collection[Fusion] = ALL_FUSION
) -> tuple[Segment, ...]:
    """Split a graph into its layers, in order."""
    steps = forward_steps(graph.operators, ctx)
    same = aliases(steps)
    swallowed = swallowed_by_fusion(steps, ctx, graph, fusion=fusion)
    lives = _lives(graph, ctx, same)
    carried = _carried(graph, lives, same, swallowed)
    return _segments(graph, ctx, _stops(graph, lives, carried, swallowed))


def swallowed_by_fusion(
    steps: Sequence[Step], ctx: OperatorContext, graph: OperatorGraph, *, fusion: Collection[Fusion]
) -> frozenset[str]:
    """Tensors inside fused steps."""
    kept = saved_tensors(graph.operators, ctx)
    plain = schedulable(steps, kept, graph.outputs, fusion=NO_FUSION)
    fused = schedulable(steps, kept, graph.outputs, fusion=fusion)
    left = {t for step in fused.steps for t in step.writes}
    return frozenset(t for step in plain.steps for t in step.writes if t not in left)


def _lives(graph: OperatorGraph, ctx: OperatorContext, same: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Positions of the operators that make and last need every activation, under its first name."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    labels = {op.inputs[1] for op in graph.operators if op.kind is OpKind.LOSS}
    for i, op in enumerate(graph.operators):
        for t in op.inputs:
            last[same.get(t, t)] = i
        for t in op.outputs:
            if t not in ctx.parameters:
                first.setdefault(same.get(t, t), i)
    first |= dict.fromkeys((t for t in graph.inputs if t not in labels), 0)
    last |= {same.get(t, t): len(graph.operators) for t in graph.outputs}
    return {t: (begin, max(last.get(t, begin), begin)) for t, begin in first.items()}


def _readers(graph: OperatorGraph, same: Mapping[str, str]) -> dict[str, list[int]]:
    """Positions of the operators that read every tensor, under its first name.

    Views are none, but for casts of inputs and those that put several tensors together.
    """
    readers: dict[str, list[int]] = {}
    for i, op in enumerate(graph.operators):
        for t in op.inputs:
            cast = same.get(t, t) in graph.inputs and op.outputs[0] not in same
            if op.kind is not OpKind.VIEW or cast or len(op.inputs) > 1:
                readers.setdefault(same.get(t, t), []).append(i)
    return readers


def _stops(
    graph: OperatorGraph,
    lives: Mapping[str, tuple[int, int]],
    carried: Collection[str],
    swallowed: Collection[str],
) -> list[int]:
    """Positions after which the graph is cut; the last is its end."""
    end, names = len(graph.operators), tuple(lives)
    begin, stop = np.array(tuple(lives.values()), dtype=np.int64).reshape(-1, 2).T
    plain = np.array([t not in carried for t in names], dtype=np.int64)

    def passing(weights: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sums of weights of the tensors that pass every position."""
        rows = (np.bincount(at, weights, minlength=end + 1) for at in (begin, stop))
        return np.cumsum(next(rows) - next(rows)).astype(np.int64)

    number = np.arange(len(names))
    every, any_, count, own = map(passing, (np.ones_like(plain), number, plain, plain * number))
    one = np.where(count == 1, own, np.where(every == 1, any_, -1))
    works = tuple(accumulate(op.kind is not OpKind.VIEW for op in graph.operators))
    stops: list[int] = []
    for i in np.flatnonzero(one[: end - 1] >= 0).tolist():
        if names[one[i]] in swallowed:
            continue
        if works[i] > (works[stops[-1] - 1] if stops else 0) and works[-1] > works[i]:
            stops.append(i + 1)
    squares = passing(plain * number * number)
    twos = _twos(np.where(count == 2, own, -1), squares, [t in swallowed for t in names])
    return sorted({*stops, end, *_advances(twos, works, [0, *stops, end])})


def _twos(
    sums: NDArray[np.int64], squares: NDArray[np.int64], swallowed: Sequence[bool]
) -> dict[int, tuple[int, int]]:
    """Both tensors, by number, at the positions that exactly two pass, by the sum of their numbers and of the squares.

    Positions where one of them is inside a fused operator are left out.
    """
    found: dict[int, tuple[int, int]] = {}
    for i in np.flatnonzero(sums >= 0).tolist():
        apart = isqrt(2 * int(squares[i]) - int(sums[i]) ** 2)
        pair = (int(sums[i]) - apart) // 2, (int(sums[i]) + apart) // 2
        if not any(swallowed[number] for number in pair):
            found[i] = pair
    return found


def _advances(
    twos: Mapping[int, tuple[int, int]], works: Sequence[int], stops: Sequence[int]
) -> Iterator[int]:
    """Cuts in long layers through two streams, as of text and image, each time both are others than at the last cut.

    Only where that happens several times: what two tensors pass once is the inside of a layer.
    """
    for begin, end in pairwise(stops):
        before = works[begin - 1] if begin else 0
        if works[end - 1] - before < LONG_SKIP:
            continue
        cuts: list[int] = []
        last: tuple[int, ...] = ()
        for i in range(begin, end - 1):
            pair = twos.get(i, ())
            ahead = bool(pair) and not set(pair) & set(last)
            if ahead and before < works[i] < works[end - 1]:
                cuts.append(i + 1)
                last, before = pair, works[i]
        if len(cuts) >= CARRIED_LAYERS:
            yield from cuts


def _carried(
    graph: OperatorGraph,
    lives: Mapping[str, tuple[int, int]],
    same: Mapping[str, str],
    swallowed: Collection[str],
) -> frozenset[str]:
    """Tensors that several later layers read, where they are cut as if these tensors were not there.

    Starts from every tensor that several operators read and leaves out, again and again, what too few layers do.
    Inputs that enter late are treated alike: as if they were read by all layers before.
    """
    readers = {t: at for t, at in _readers(graph, same).items() if t in lives}
    late = {t for t in graph.inputs if t in readers and readers[t][0] >= CARRIED_LAYERS}
    works = tuple(accumulate(op.kind is not OpKind.VIEW for op in graph.operators))
    skips = {t for t, at in readers.items() if works[at[-1]] - works[lives[t][0]] >= LONG_SKIP}
    carried = frozenset[str]()
    left = (late | skips).union(t for t, at in readers.items() if len(at) >= CARRIED_LAYERS)
    while left != carried:
        carried = frozenset(left)
        stops = _stops(graph, lives, carried, swallowed)
        layers = {t: {bisect_right(stops, i) for i in readers[t]} for t in carried}
        left = {t for t in carried if len(layers[t] - {bisect_right(stops, lives[t][0])}) >= CARRIED_LAYERS}
        left |= {t for t in carried & late if min(layers[t]) >= CARRIED_LAYERS}
        left |= {
            t for t in carried & skips if max(layers[t]) - bisect_right(stops, lives[t][0]) > CARRIED_LAYERS
        }
    return carried


def _segments(graph: OperatorGraph, ctx: OperatorContext, stops: Sequence[int]) -> tuple[Segment, ...]:
    """Segments between the stops, with what passes between them."""
    place = {t: i for i, op in enumerate(graph.operators) for t in op.outputs}
    last = {t: i for i, op in enumerate(graph.operators) for t in op.inputs}
    last |= dict.fromkeys(graph.outputs, len(graph.operators))
    found: list[Segment] = []
    later: frozenset[str] = frozenset()
    passing: dict[str, None] = {}  # tensors from before the segment that later ones need
    for start, stop in reversed(tuple(pairwise((0, *stops)))):
        operators = graph.operators[start:stop]
        read = dict.fromkeys(t for op in operators for t in op.inputs)
        inputs = tuple(t for t in read if place.get(t, -1) < start and t not in ctx.parameters)
        made = (t for op in operators for t in op.outputs)
        own = (t for t in made if last.get(t, -1) >= stop and t not in ctx.parameters)
        outputs = (*own, *(t for t in inputs if t in passing))
        through = tuple(t for t in passing if place.get(t, -1) < start and t not in read)
        found.append(Segment(operators, inputs, outputs, later.intersection(outputs), through))
        later = frozenset(saved_tensors(operators, ctx)) if ctx.differentiable else frozenset()
        entering = (t for t in (*inputs, *through) if place.get(t, -1) >= 0)
        passing = dict.fromkeys(entering)
    return tuple(reversed(found))


def distinct_names(segments: tuple[Segment, ...]) -> tuple[str, ...]:
    """Names of the layers: the shared prefix, the first operator where two share one, then numbers."""
    prefixes = Counter(segment.prefix for segment in segments)
    seen: Counter[str] = Counter()
    names = []
    for segment in segments:
        name = segment.prefix if prefixes[segment.prefix] == 1 else segment.first_name
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return tuple(names)
