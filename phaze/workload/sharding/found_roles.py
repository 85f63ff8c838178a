"""Roles in tensor parallelism of a graph that tells none: found by following heads and widths through it.

A division of one axis of one tensor asks the same of the operators on both sides of it, and so on, until it ends: at
products with a matrix of their own that make the axis (column-parallel) or sum over it (row-parallel), as in
Megatron-LM (arXiv 1909.08053). It starts at every attention (heads) and at every activation between two products.
Where it meets anything that needs the whole axis, nothing around that start is divided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import gcd, prod
from types import MappingProxyType

from phaze.workload.operators.operator_graph import Operator, OperatorGraph, OpKind
from phaze.workload.operators.operator_steps import flag, integer, word
from phaze.workload.sharding.divisions import Division, Shape, WholeError, carried_division, divided_units
from phaze.workload.sharding.shard_roles import Shard, in_expert, shard_of
from phaze.workload.training.backward_pass import parameter_views

_LARGEST = 500  # tensors of a region: a block has fewer

_CURVES = frozenset(
    {
        "relu",
        "gelu",
        "gelu_tanh",
        "silu",
        "sigmoid",
        "tanh",
        "elu",
        "leaky_relu",
        "hard_swish",
        "hard_sigmoid",
    }
    | {"swiglu", "geglu", "geglu_tanh", "reglu", "softplus", "mish", "clip", "mul"}
)
"""Functions between the products of a feed-forward half."""


def with_roles(graph: OperatorGraph) -> OperatorGraph:
    """The same graph with the roles of its operators; one that has some already is left as it is."""
    if any(shard_of(op) is not Shard.NONE for op in graph.operators):
        return graph
    roles: dict[str, dict[str, object]] = {}
    finder = _Finder(graph)
    for start in finder.starts():
        if finder.is_open(start):
            roles |= finder.region(start)
    roles |= finder.experts(roles)
    roles |= finder.vocabulary(roles)
    operators = (
        replace(op, attributes=MappingProxyType({**op.attributes, **roles[op.name]}))
        if op.name in roles
        else op
        for op in graph.operators
    )
    return replace(graph, operators=tuple(operators))


def divisible_heads(graph: OperatorGraph) -> tuple[int | None, int | None]:
    """Heads of queries, and of keys and values, whose divisors divide the graph; None, None where nothing is divided.

    Without attention, or where not all of it is divided, what divides every width that is.
    """
    kernels = [op for op in graph.operators if op.kind is OpKind.ATTENTION]
    if kernels and all(shard_of(op) is Shard.HEADS for op in kernels):
        heads, keys = (gcd(*(integer(op, key, 1) for op in kernels)) for key in ("heads", "kv_heads"))
        return heads, keys
    parts = (op.attributes.get("shard_parts") for op in graph.operators if op.kind is not OpKind.COMBINE)
    units = [n for each in parts if isinstance(each, tuple) for n, _ in each]
    common = gcd(*units) if units else 0
    return (common, common) if common > 1 else (None, None)


class _Finder:
    """Regions of one graph; `divided` are the tensors of all that were found."""

    def __init__(self, graph: OperatorGraph) -> None:
        self._graph = graph
        self._constants = parameter_views(graph)
        self._makers = {t: op for op in graph.operators for t in op.outputs}
        self._readers: dict[str, list[Operator]] = {}
        for op in graph.operators:
            for t in dict.fromkeys(op.inputs):
                self._readers.setdefault(t, []).append(op)
        self.divided: dict[str, Division] = {}
        self._whole: set[str] = set()

    def is_open(self, start: Iterable[str]) -> bool:
        """Whether nobody knows yet of some tensors if they can be divided."""
        return self.divided.keys().isdisjoint(start) and self._whole.isdisjoint(start)

    def shape(self, tensor: str) -> Shape:
        """Shape of a tensor."""
        return self._graph.tensors[tensor].shape

    def starts(self) -> Iterator[dict[str, Division]]:
        """What may be divided, attention first: its operands and result, or the result of an activation."""
        ops = self._graph.operators
        for op in ops:
            if op.kind is OpKind.ATTENTION:
                yield self._of_attention(op)
        for op in ops:
            scores = op.kind is OpKind.SOFTMAX and len(self.shape(op.outputs[0])) == 4
            if scores and integer(op, "axis", -1) % 4 == 3:
                yield {op.outputs[0]: Division(1, ((self.shape(op.outputs[0])[1], 1),))}
        for op in ops:
            if op.kind is OpKind.ELEMENTWISE and word(op, "function") in _CURVES:
                shape = self.shape(op.outputs[0])
                if not shape:
                    continue  # one number, such as the scale of similarities
                yield {op.outputs[0]: Division(len(shape) - 1, ((shape[-1], 1),))}

    def _of_attention(self, op: Operator) -> dict[str, Division]:
        heads, keys = integer(op, "heads", 1), integer(op, "kv_heads", 1)
        sizes = [(t, keys if i else heads) for i, t in enumerate(op.inputs[:3])] + [(op.outputs[0], heads)]
        return {t: Division(2, ((n, self.shape(t)[2] // n),)) for t, n in sizes}

    def region(self, start: dict[str, Division]) -> dict[str, dict[str, object]]:
        """Roles of all operators that a division reaches, by name; none where it cannot be."""
        found = _Region(self, start)
        try:
            found.grow()
        except WholeError:
            self._whole.update(found.divided)
            return {}
        self.divided |= found.divided
        return found.roles

    def maker(self, tensor: str) -> Operator | None:
        """The operator that makes a tensor."""
        return self._makers.get(tensor)

    def readers(self, tensor: str) -> list[Operator]:
        """The operators that read it."""
        return self._readers.get(tensor, [])

    def is_output(self, tensor: str) -> bool:
        """Whether the model hands it out."""
        return tensor in self._graph.outputs

    def is_constant(self, tensor: str) -> bool:
        """Whether it is a parameter or a view of one."""
        return tensor in self._constants

    def is_parameter(self, tensor: str) -> bool:
        """Whether it is a parameter."""
        return self._graph.tensors[tensor].is_parameter

    def experts(self, roles: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
        """Roles of what stands around experts that are divided: their sums wait until tokens are back in order."""
        found: dict[str, dict[str, object]] = {}
        for op in self._graph.operators:
            down = self.maker(op.inputs[0]) if op.kind is OpKind.COMBINE else None
            if down is not None and roles.get(down.name, {}).get("shard") is Shard.ROW:
                found[op.name] = {"shard": Shard.ROW}
                while down is not None and down.kind is not OpKind.DISPATCH:
                    down = self.maker(down.inputs[0])
                found |= {down.name: {"shard": Shard.COLUMN}} if down is not None else {}
        return found

    def vocabulary(self, roles: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
        """Look-ups in tables with more rows than columns, and scores of a vocabulary at the end."""
        found: dict[str, dict[str, object]] = {}
        for op in self._graph.operators:
            if op.kind is OpKind.EMBEDDING and op.inputs[0] in self._graph.inputs:
                rows, *columns = self.shape(op.inputs[1])
                if self.is_parameter(op.inputs[1]) and rows > prod(columns):
                    found[op.name] = {"shard": Shard.VOCAB}
        for output in self._graph.outputs if found or roles else ():
            found |= self._scores(output, roles)
        return found

    def _scores(self, tensor: str, roles: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
        """Roles of the last product and what works on each score by itself after it."""
        after: dict[str, dict[str, object]] = {}
        while (op := self.maker(tensor)) is not None and op.name not in roles:
            if len(self.readers(tensor)) + self.is_output(tensor) > 1:
                break
            if op.kind is OpKind.MATMUL and self.is_parameter(op.inputs[1]):
                wide = len(self.shape(op.inputs[1])) == 2 and not self.is_constant(op.inputs[0])
                return {**after, op.name: {"shard": Shard.VOCAB, "exact": True}} if wide else {}
            computed = [t for t in op.inputs if not self.is_constant(t)]
            if op.kind is not OpKind.ELEMENTWISE or len(computed) != 1:
                break
            after[op.name] = {"shard": Shard.COLUMN}
            tensor = computed[0]
        return {}


class _Region:
    """Everything that one division reaches."""

    def __init__(self, finder: _Finder, start: dict[str, Division]) -> None:
        self._f = finder
        self.divided = dict(start)
        self.roles: dict[str, dict[str, object]] = {}
        self._waiting = list(start)
        self._pending: dict[str, Operator] = {}  # views whose pieces are not all known
        self._heads = False

    def grow(self) -> None:
        """Follow the division to its ends. Raises WholeError where it cannot be."""
        while self._waiting or self._pending:
            if not self._waiting:
                self._decide()
            tensor = self._waiting.pop()
            if self._f.is_output(tensor):
                raise WholeError
            maker = self._f.maker(tensor)
            if maker is None:
                raise WholeError
            self._visit(maker)
            for reader in self._f.readers(tensor):
                self._visit(reader)
        ends = {Shard(str(role["shard"])) for role in self.roles.values()}
        if not {Shard.COLUMN, Shard.ROW} <= ends:
            raise WholeError
        if self._heads:
            for role in self.roles.values():
                role["shard"] = Shard.HEADS if role.pop("between", False) else role["shard"]
        for role in self.roles.values():
            role.pop("between", None)

    def _divide(self, tensor: str, division: Division) -> None:
        """Note a division; another one than before cannot be."""
        if tensor in self.divided:
            if self.divided[tensor] != division:
                raise WholeError
            return
        whole = sum(n * size for n, size in division.parts) != self._f.shape(tensor)[division.axis]
        if whole or tensor in self._f.divided or len(self.divided) == _LARGEST:
            raise WholeError
        self.divided[tensor] = division
        self._waiting.append(tensor)

    def _visit(self, op: Operator) -> None:
        if op.name in self.roles:
            return
        rules = {
            OpKind.MATMUL: self._matmul,
            OpKind.ATTENTION: self._attention,
            OpKind.ELEMENTWISE: self._elementwise,
            OpKind.VIEW: self._view,
            OpKind.NORM: self._rowwise,
            OpKind.SOFTMAX: self._rowwise,
            OpKind.DISPATCH: self._ends,
            OpKind.COMBINE: self._ends,
        }
        if op.kind not in rules:
            raise WholeError
        rules[op.kind](op)

    def _note(self, op: Operator, shard: Shard, *, between: bool = False) -> None:
        """The role of an operator, with the division of its results."""
        role: dict[str, object] = {"shard": shard}
        known = [self.divided[t] for t in op.outputs if t in self.divided]
        if shard is not Shard.ROW and known:
            rank = len(self._f.shape(op.outputs[0]))
            parts = [d.parts for d in known]
            role["shard_parts"] = tuple(p[0] for p in parts) if len(op.outputs) > 1 else parts[0]
            if len(op.outputs) > 1 and any(len(p) > 1 for p in parts):
                raise WholeError
            if known[0].axis != rank - 1:
                role["shard_axis"] = known[0].axis
        if between:
            role["between"] = True
        self.roles[op.name] = role

    def _ends(self, op: Operator) -> None:
        raise WholeError

    def _attention(self, op: Operator) -> None:
        heads, keys = integer(op, "heads", 1), integer(op, "kv_heads", 1)
        for i, t in enumerate((*op.inputs[:3], op.outputs[0])):
            units = keys if i in (1, 2) else heads
            self._divide(t, Division(2, ((units, self._f.shape(t)[2] // units),)))
        self._heads = True
        self._note(op, Shard.HEADS)

    def _matmul(self, op: Operator) -> None:
        a, b = op.inputs
        out = op.outputs[0]
        rank = len(self._f.shape(out))
        if a in self.divided and b in self.divided:
            self._heads = True
            self._batched(op)
        elif out in self.divided and a not in self.divided:
            own = self._is_own(op) and self.divided[out].axis == rank - 1
            if not own:
                raise WholeError
            self._note(op, Shard.COLUMN)
        elif a in self.divided and not self._f.is_constant(b):
            self._heads = True
            self._batched(op)
        elif a in self.divided and self.divided[a].axis < len(self._f.shape(a)) - 1:
            self._shared(op)
        elif a in self.divided and out not in self.divided and self._is_own(op):
            self._note(op, Shard.ROW)
        else:
            raise WholeError

    def _is_own(self, op: Operator) -> bool:
        """Whether a product is one with a matrix of its own, or with one of each expert."""
        rank = 3 if in_expert(op) else 2
        weight = op.inputs[1]
        whole = self._f.is_parameter(weight) and len(self._f.shape(weight)) == rank
        return whole and not flag(op, "transpose_a")

    def _batched(self, op: Operator) -> None:
        """A product of two activations for each head."""
        a, b = op.inputs
        out, known = op.outputs[0], self.divided.get(op.inputs[0]) or self.divided.get(op.inputs[1])
        known = known or self.divided[op.outputs[0]]
        shapes = {self._f.shape(t)[known.axis] for t in (a, b, out) if len(self._f.shape(t)) > known.axis}
        if len(shapes) != 1 or known.axis > len(self._f.shape(out)) - 3:
            raise WholeError
        for t in (a, b, out):
            self._divide(t, known)
        self._note(op, Shard.HEADS)

    def _shared(self, op: Operator) -> None:
        """A product with one matrix for all heads."""
        if not self._is_own(op) or in_expert(op):
            raise WholeError
        self._divide(op.outputs[0], self.divided[op.inputs[0]])
        self._note(op, Shard.COLUMN, between=True)

    def _elementwise(self, op: Operator) -> None:
        out = op.outputs[0]
        shape = self._f.shape(out)
        known = self.divided.get(out) or self._of_result(op)
        self._divide(out, known)
        for t in op.inputs:
            before = self._f.shape(t)
            axis = known.axis + len(before) - len(shape)
            if self._f.is_constant(t) or axis < 0 or before[axis] == 1:
                continue
            share = before[axis] // shape[known.axis]  # a gated function has both halves in one operand
            if before[axis] != share * shape[known.axis]:
                raise WholeError
            self._divide(t, Division(axis, known.parts * share))
        self._note(op, Shard.COLUMN, between=word(op, "function") != "add" or not self._adds_bias(op))

    def _of_result(self, op: Operator) -> Division:
        """Division of a result, from that of an operand."""
        shape = self._f.shape(op.outputs[0])
        for t in op.inputs:
            if t in self.divided:
                known, before = self.divided[t], self._f.shape(t)
                axis = known.axis + len(shape) - len(before)
                if before[known.axis] == shape[axis]:
                    return Division(axis, known.parts)
                share, rest = divmod(before[known.axis], shape[axis])
                if share and not rest and known.parts[: len(known.parts) // share] * share == known.parts:
                    return Division(axis, known.parts[: len(known.parts) // share])
        raise WholeError

    def _adds_bias(self, op: Operator) -> bool:
        return any(self._f.is_parameter(t) for t in op.inputs)

    def _rowwise(self, op: Operator) -> None:
        """A norm or softmax along another axis than the divided one."""
        x, out = op.inputs[0], op.outputs[0]
        known = self.divided.get(x) or self.divided[out]
        rank, shape = len(self._f.shape(out)), self._f.shape(out)
        along = integer(op, "axis", -1) % rank if op.kind is OpKind.SOFTMAX else rank - 1
        plain = op.kind is OpKind.SOFTMAX or word(op, "function") in {"rms", "layer"}
        if not plain or along == known.axis or self._f.shape(x) != shape:
            raise WholeError
        self._divide(x, known)
        self._divide(out, known)
        self._note(op, Shard.COLUMN, between=True)

    def _view(self, op: Operator) -> None:
        inputs = [t for t in op.inputs if not self._f.is_constant(t)]
        if len(inputs) < len(op.inputs):
            raise WholeError
        if len(inputs) == len(op.outputs) == 1:
            self._renamed(op)
        elif len(inputs) == 1:
            self._pieces(op, inputs[0], op.outputs, whole_is_made=False)
        elif len(op.outputs) == 1:
            self._pieces(op, op.outputs[0], op.inputs, whole_is_made=True)
        else:
            raise WholeError

    def _renamed(self, op: Operator) -> None:
        """A view with all elements of another shape or order, or a part or copies along other axes."""
        x, out = op.inputs[0], op.outputs[0]
        pairs = ((x, out), (out, x))
        source, target = next((a, b) for a, b in pairs if a in self.divided)
        known = self.divided[source]
        if target not in self.divided:
            self._divide(target, carried_division(known, self._f.shape(source), self._f.shape(target)))
        elif divided_units(known) != divided_units(self.divided[target]):
            raise WholeError
        self._note(op, Shard.COLUMN, between=True)

    def _pieces(self, op: Operator, whole: str, pieces: tuple[str, ...], *, whole_is_made: bool) -> None:
        """A view that cuts one tensor into several, or puts several together."""
        shape = self._f.shape(whole)
        if len({len(self._f.shape(p)) for p in pieces} | {len(shape)}) > 1:
            self._stacked(op, whole, pieces)
            return
        cut = [i for i, n in enumerate(shape) if sum(self._f.shape(p)[i] for p in pieces) == n]
        same = [i for i, n in enumerate(shape) if all(self._f.shape(p)[i] == n for p in pieces)]
        if len(cut) != 1 or len(same) != len(shape) - 1:
            raise WholeError
        (axis,) = cut
        known = [self.divided[t] for t in (whole, *pieces) if t in self.divided]
        if any(d.axis != axis for d in known):
            for t in (whole, *pieces):
                self._divide(t, known[0])
        elif all(p in self.divided for p in pieces):
            self._divide(whole, Division(axis, tuple(one for p in pieces for one in self.divided[p].parts)))
        elif whole in self.divided:
            self._cut_up(whole, pieces, axis)
        else:
            self._pending[op.name] = op
            return
        self._pending.pop(op.name, None)
        self._note(op, Shard.COLUMN, between=True)

    def _stacked(self, op: Operator, whole: str, pieces: tuple[str, ...]) -> None:
        """Pieces along an axis of their own, which they lack (or keep with one element)."""
        known = next(self.divided[t] for t in (*pieces, whole) if t in self.divided)
        source = next(t for t in (*pieces, whole) if t in self.divided)
        for t in (whole, *pieces):
            if t not in self.divided:
                self._divide(t, carried_division(known, self._f.shape(source), self._f.shape(t)))
        self._note(op, Shard.COLUMN, between=True)

    def _cut_up(self, whole: str, pieces: tuple[str, ...], axis: int) -> None:
        """Each piece gets its parts of the whole."""
        parts = list(self.divided[whole].parts)
        for piece in pieces:
            own: list[tuple[int, int]] = []
            while parts and sum(n * size for n, size in own) < self._f.shape(piece)[axis]:
                own.append(parts.pop(0))
            self._divide(piece, Division(axis, tuple(own)))

    def _decide(self) -> None:
        """Pieces that nothing else tells of are divided element by element."""
        op = next(iter(self._pending.values()))
        pieces = op.outputs if len(op.outputs) > 1 else op.inputs
        axis = next(self.divided[p].axis for p in pieces if p in self.divided)
        for piece in pieces:
            if piece not in self.divided:
                self._divide(piece, Division(axis, ((self._f.shape(piece)[axis], 1),)))
        self._pending.pop(op.name)
