"""Which layers are the same, whatever their tensors and operators are called and in whatever order they stand.

Colours are refined over the operators' dependencies (Weisfeiler and Lehman's idea; on a graph without cycles one
sweep along and one against the edges tell all that refinement can). They give an order of the operators that does
not depend on the file, and in this order two layers are compared exactly: what is taken for the same is the same.
Operators that colours cannot tell apart stand in the order of the file; at worst, equal layers are kept twice.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from phaze.workload.cut import Segment
from phaze.workload.ir import Operator, OperatorGraph
from phaze.workload.steps import Context


@dataclass
class Signatures:
    """Signatures of segments of one graph; equal ones belong to layers that renaming turns into each other."""

    graph: OperatorGraph
    ctx: Context
    _colours: dict[Hashable, int] = field(default_factory=dict)

    def of(self, segment: Segment) -> Hashable:
        """Signature of a segment: operators, tensors and what becomes of them; names take no part."""
        operators = segment.operators
        makers = {t: i for i, op in enumerate(operators) for t in op.outputs}
        colours = self._refined(segment, makers)
        order = _order(operators, makers, colours)
        numbers = {t: n for n, t in enumerate(dict.fromkeys(_tensors(operators, order)))}
        passing = (self._tensor(t, segment) for t in segment.passing)
        return (
            tuple(colours[i] for i in order),
            tuple(tuple(numbers[t] for t in (*operators[i].inputs, *operators[i].outputs)) for i in order),
            tuple(sorted(passing)),
        )

    def _colour(self, key: Hashable) -> int:
        """One number for each distinct key, in order of first appearance: equal numbers mean equal keys."""
        return self._colours.setdefault(key, len(self._colours))

    def _tensor(self, name: str, segment: Segment) -> tuple[Hashable, ...]:
        """What a tensor is, and its part in the layer and the model."""
        info, inside = self.graph.tensors[name], name not in segment.inputs
        part = (inside, segment.arriving(name), name in segment.kept_later)
        ends = (name in self.graph.inputs, name in self.graph.outputs)
        kinds = (name in self.ctx.parameters, name in self.ctx.differentiable)
        return (info.shape, info.element_bytes, *part, *ends, *kinds)

    def _refined(self, segment: Segment, makers: Mapping[str, int]) -> list[int]:
        """A colour of each operator: itself, all it depends on, and all that depends on it."""
        operators = segment.operators
        above: list[int] = []
        for op in operators:
            own = (op.kind, tuple(sorted(op.attributes.items())))
            tensors = tuple(self._tensor(t, segment) for t in (*op.inputs, *op.outputs))
            sources = tuple(_source(t, makers, operators, above) for t in op.inputs)
            above.append(self._colour((own, tensors, sources)))
        readers: dict[str, list[tuple[int, int]]] = {}
        colours = [0] * len(operators)
        for i in range(len(operators) - 1, -1, -1):
            op = operators[i]
            uses = tuple(tuple(sorted(readers.get(t, ()))) for t in op.outputs)
            colours[i] = self._colour((above[i], uses))
            for place, t in enumerate(op.inputs):
                readers.setdefault(t, []).append((colours[i], place))
        return colours


def _source(
    tensor: str, makers: Mapping[str, int], operators: Sequence[Operator], colours: Sequence[int]
) -> tuple[int, int]:
    """Colour of the operator that makes a tensor and which of its outputs it is; (-1, 0) from outside."""
    maker = makers.get(tensor, -1)
    return (colours[maker], operators[maker].outputs.index(tensor)) if maker >= 0 else (-1, 0)


def _order(operators: Sequence[Operator], makers: Mapping[str, int], colours: Sequence[int]) -> list[int]:
    """A topological order by colour; of equal colours, what reads earlier results comes first."""
    before = [{makers[t] for t in op.inputs if t in makers} for op in operators]
    after: list[list[int]] = [[] for _ in operators]
    for i, sources in enumerate(before):
        for source in sources:
            after[source].append(i)
    waiting = [len(sources) for sources in before]
    ready: list[tuple[int, tuple[int, ...], int]] = [
        (colours[i], (), i) for i, n in enumerate(waiting) if not n
    ]
    heapify(ready)
    place: dict[int, int] = {}
    while ready:
        _, _, i = heappop(ready)
        place[i] = len(place)
        for reader in after[i]:
            waiting[reader] -= 1
            if not waiting[reader]:
                inputs = tuple(place[makers[t]] for t in operators[reader].inputs if t in makers)
                heappush(ready, (colours[reader], inputs, reader))
    return list(place)


def _tensors(operators: Sequence[Operator], order: Collection[int]) -> list[str]:
    """Tensors as they occur in that order."""
    return [t for i in order for t in (*operators[i].inputs, *operators[i].outputs)]
