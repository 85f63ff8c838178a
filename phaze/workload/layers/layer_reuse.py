"""Layers that need not be built: those that are the same, blocks that repeat, microbatches between others.

Layers are the same whatever their tensors and operators are called and in whatever order they stand. A model of
many blocks is known by one of few.

What a size depends on the microbatch by is a sum of what does not and what is proportional to it, the largest
or smallest of several such, or a quotient rounded up. Each of these is a straight line between two microbatches
where it is one through a third between them (convex; concave; rounded up, sums of parts bound it from either
side). So where every number of three chains lies on its line, and all else is the same in them, the chain of
any microbatch between the outer two is known to the last bit. Otherwise nothing is said.

Colours are refined over the operators' dependencies (Weisfeiler and Lehman's idea; on a graph without cycles one
sweep along and one against the edges tell all that refinement can). They give an order of the operators that does
not depend on the file, and in this order two layers are compared exactly: what is taken for the same is the same.
Operators that colours cannot tell apart stand in the order of the file; at worst, equal layers are kept twice.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import Any, TypeVar

from phaze.workload.families.model_family import FamilyDimensions
from phaze.workload.layers.layer_cutting import Segment
from phaze.workload.operators.operator_graph import Operator, OperatorGraph
from phaze.workload.operators.operator_steps import OperatorContext
from phaze.workload.work import Layer, LayerChain


@dataclass
class Signatures:
    """Signatures of segments of one graph; equal ones belong to layers that renaming turns into each other."""

    graph: OperatorGraph
    ctx: OperatorContext
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
        """Key of a tensor, and its part in the layer and the model."""
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


_NUMBERED = re.compile(r"(\D*)(\d+)(.*)")
_BESIDE = 2  # turns of blocks beside those that differ: one to repeat, and the last, which nothing follows


@dataclass(frozen=True, slots=True)
class Repeats:
    """A model of `few` blocks stands for one of `many`, whose further ones are as its last `period` but one."""

    few: int
    many: int
    period: int = 1

    def extended(
        self, index: tuple[int, ...], names: tuple[str, ...]
    ) -> tuple[tuple[int, ...], tuple[str, ...]] | None:
        """Kinds and names of the layers of all blocks; None where layers do not tell to which block they belong."""
        runs = [list(run) for _, run in groupby(range(len(names)), key=lambda i: names[i].split(".")[0])]
        numbered = [(i, m) for i, run in enumerate(runs) if (m := _NUMBERED.fullmatch(names[run[0]]))]
        if len(numbered) != self.few or len({m[1] for _, m in numbered}) != 1:
            return None
        at = numbered[-2][0]
        again = runs[at - self.period + 1 : at + 1]
        order = runs[: at + 1] + again * ((self.many - self.few) // self.period) + runs[at + 1 :]
        first = numbered[0][0]
        renamed = [
            _renumbered(names[i], place - first) if first <= place < first + self.many else names[i]
            for place, run in enumerate(order)
            for i in run
        ]
        return tuple(index[i] for run in order for i in run), tuple(renamed)


def repeats_of(dimensions: FamilyDimensions) -> tuple[FamilyDimensions, Repeats] | None:
    """The same model with as few blocks as show all there are; None where that is no shorter."""
    if len(dimensions.repeats) != 1:
        return None
    ((field, (fewest, many)),) = dimensions.repeats.items()
    few = fewest + _BESIDE * dimensions.period
    if few >= many:
        return None
    return dimensions.model_copy(update={field: few}), Repeats(few, many, dimensions.period)


def _renumbered(name: str, number: int) -> str:
    found = _NUMBERED.fullmatch(name)
    return f"{found[1]}{number}{found[3]}" if found else name


_PARTS = 8  # of one, in which numbers are whole, so that lines are exact
_LARGEST = 2.0**53  # up to which floats hold whole numbers
_T = TypeVar("_T")


class _BentError(Exception):
    """Something is not on a line."""


Interpolated = dict[tuple[int, int, int, int], Layer | None]
"""Layers of microbatches by the identities of the three that tell them; None: they do not."""


def interpolate_layers(
    chains: Sequence[LayerChain], microbatch: int, known: Interpolated | None = None
) -> LayerChain | None:
    """The chain of a microbatch between the smallest and largest of three of one model and sharding, if it is sure.

    `known`: layers that other chains of the same ones had, which goes on; as long as it is kept these have to be, too.
    """
    one, other, last = sorted(chains, key=lambda chain: chain.microbatch)
    line = _Line((one.microbatch, other.microbatch, last.microbatch), microbatch)
    alike = all((one.index, one.names) == (some.index, some.names) for some in (other, last))
    if not alike or not len(one.layers) == len(other.layers) == len(last.layers):
        return None
    known, layers = {} if known is None else known, []
    for first, middle, end in zip(one.layers, other.layers, last.layers, strict=True):
        key = id(first), id(middle), id(end), microbatch
        if key not in known:
            known[key] = line.layer(first, middle, end)
        if (found := known[key]) is None:
            return None
        layers.append(found)
    return replace(one, microbatch=microbatch, layers=tuple(layers))


@dataclass(frozen=True)
class _Line:
    """Through the values at three places, one `at` a fourth."""

    places: tuple[int, int, int]
    at: int

    def layer(self, one: Layer, other: Layer, last: Layer) -> Layer | None:
        """The layer at the fourth place, if it is sure."""
        try:
            return self.of(one, other, last)
        except _BentError:
            return None

    def of(self, one: _T, other: _T, last: _T) -> _T:
        """The same thing with its numbers at the fourth place."""
        if type(one) is not type(other) or type(one) is not type(last):
            raise _BentError
        if one == other == last:  # names and edges, all at once
            return one
        if isinstance(one, int | float) and not isinstance(one, bool):
            return type(one)(self._number(one, other, last))  # type: ignore[arg-type]
        if isinstance(one, tuple):
            return self._several(one, other, last)  # type: ignore[arg-type,return-value]
        if is_dataclass(one):
            kind: Any = type(one)
            values = (tuple(getattr(each, name) for name in _names(kind)) for each in (one, other, last))
            found: _T = kind(*self._several(*values))
            return found
        raise _BentError

    def _several(self, *rows: tuple[object, ...]) -> tuple[object, ...]:
        if len({len(row) for row in rows}) > 1:
            raise _BentError
        return tuple(  # most things are the very same in all three
            one if one is other is last else self.of(one, other, last)
            for one, other, last in zip(*rows, strict=True)
        )

    def _number(self, one: float, other: float, last: float) -> float:
        if one == other == last:
            return one
        first, middle, end = self.places
        low, half, high = (_parts(number) for number in (one, other, last))
        if (high - low) * (middle - first) != (half - low) * (end - first):
            raise _BentError
        step, rest = divmod((half - low) * (self.at - first), middle - first)
        if rest:
            raise _BentError
        return (low + step) / _PARTS


def _parts(number: float) -> int:
    """A number in parts of one, without rounding."""
    if abs(number) > _LARGEST or (_PARTS * number) % 1:
        raise _BentError
    return int(_PARTS * number)


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
