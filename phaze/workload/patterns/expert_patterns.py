"""Experts: tokens sorted by the expert they are sent to, products with a matrix of each, and tokens put back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod

from phaze.workload.families.transformer_blocks import ROUTE_BYTES
from phaze.workload.operators.operator_graph import Operator, OpKind
from phaze.workload.patterns.graph_editor import GraphEditor

_STEP = OpKind.ELEMENTWISE
_LONGEST = 60  # operators of an expert


@dataclass(frozen=True)
class _Mixture:
    """Tokens (..., hidden), weights (..., chosen) of their experts, what is done to them, and the sum at the end."""

    tokens: str
    routes: str
    sent: int
    experts: int
    inside: tuple[Operator, ...]
    end: Operator

    @property
    def rows(self) -> int:
        """Rows of each expert, loads being balanced."""
        return ceil(self.sent / self.experts)


def find_experts(e: GraphEditor) -> None:
    """Grouped products between sorting and adding up are experts between a DISPATCH and its COMBINE."""
    for up in e.operators(OpKind.MATMUL):
        if e.maker(up.outputs[0]) is up and "experts" in up.attributes:
            found = _mixture(e, up)
            if found is not None:
                _rebuild(e, found)
    for op in e.operators(OpKind.MATMUL):  # grouped products with nothing around them
        if "experts" in op.attributes and not _dispatched(e, op):
            others = {key: value for key, value in op.attributes.items() if key != "experts"}
            e.become(op, op.kind, op.inputs, **others)


def _dispatched(e: GraphEditor, op: Operator | None) -> bool:
    """Whether tokens come from a DISPATCH."""
    while op is not None and op.kind is not OpKind.DISPATCH:
        op = e.maker(op.inputs[0]) if op.inputs else None
    return op is not None


def _mixture(e: GraphEditor, up: Operator) -> _Mixture | None:
    """Everything between the first grouped product and the sum over the experts of each token."""
    experts, inner = int(str(up.attributes["experts"])), e.shape(up.inputs[0])[-1]
    gathered = e.maker(e.source(up.inputs[0]), OpKind.VIEW)
    if gathered is None or len(gathered.inputs) != 1:
        return None
    sent = e.elements(gathered.outputs[0]) // inner
    tokens = e.source(gathered.inputs[0])
    if e.shape(tokens)[-1] != inner or sent * inner == e.elements(tokens):
        return None
    region = _region(e, e.readers(e.source(up.inputs[0])), sent, e.elements(tokens))
    if region is None:
        return None
    inside, end = region
    routes = _routes(e, inside, sent, prod(e.shape(tokens)[:-1]))
    return None if routes is None else _Mixture(tokens, routes, sent, experts, inside, end)


def _region(
    e: GraphEditor, begin: list[Operator], sent: int, elements: int
) -> tuple[tuple[Operator, ...], Operator] | None:
    """Operators on sorted rows in their order, and the sum that ends them; None where there is no such end."""
    inside: dict[str, Operator] = {}
    waiting, end = list(begin), None
    while waiting:
        op = waiting.pop()
        if op.outputs[0] in inside:
            continue
        grouped = op.kind is OpKind.MATMUL and "experts" in op.attributes
        if op.kind is OpKind.REDUCE and e.elements(op.outputs[0]) == elements and end in (None, op):
            end = op
            continue
        fits = grouped or op.kind in (_STEP, OpKind.VIEW)
        if not fits or len(inside) == _LONGEST or e.elements(op.outputs[0]) % sent:
            return None
        inside[op.outputs[0]] = op
        waiting += [reader for t in op.outputs for reader in e.readers(t)]
    return (tuple(e.ordered(inside.values())), end) if end is not None else None


def _routes(e: GraphEditor, inside: tuple[Operator, ...], sent: int, tokens: int) -> str | None:
    """The weight of every token's experts, (..., chosen): what rows are multiplied by."""
    made = {t for op in inside for t in op.outputs}
    for op in inside:
        for t in op.inputs if op.kind is _STEP else ():
            weights = e.source(t)
            if t not in made and e.elements(t) == sent and e.shape(weights)[-1] * tokens == sent:
                return weights
    return None


def _rebuild(e: GraphEditor, mixture: _Mixture) -> None:
    """The same operators on (experts, rows, width), between a DISPATCH and a COMBINE."""
    first, end = mixture.inside[0], mixture.end
    path = end.name.rpartition(".")[0]
    width, base = e.shape(mixture.tokens)[-1], f"{path}." if path else ""
    sorted_rows = e.add_before(
        first,
        e.free(f"{base}dispatch"),
        OpKind.DISPATCH,
        [mixture.tokens, mixture.routes],
        (mixture.experts, mixture.rows, width),
    )
    now = {t: sorted_rows for t in mixture.inside[0].inputs if not e.is_parameter(t)}
    for op in mixture.inside:
        _move(e, op, mixture, now)
    inputs = [now[end.inputs[0]], mixture.routes]
    combined = e.add_before(end, e.free(f"{base}combine"), OpKind.COMBINE, inputs, e.shape(mixture.tokens))
    e.become(end, OpKind.VIEW, [combined])
    e.tensors[mixture.routes] = replace(e.tensors[mixture.routes], element_bytes=ROUTE_BYTES)
    _score_exactly(e, mixture.routes)
    _choose(e, mixture.routes)


def _move(e: GraphEditor, op: Operator, mixture: _Mixture, now: dict[str, str]) -> None:
    """Put an operator on the sorted rows, or what it only renames (or weighs) in its place."""
    rows = next((now[t] for t in op.inputs if t in now), None)
    weighs = any(e.source(t) == mixture.routes for t in op.inputs)
    whole = rows is not None and sum(map(e.elements, op.outputs)) == e.elements(op.inputs[0])
    if rows is None or weighs or (op.kind is OpKind.VIEW and len(op.outputs) == 1 and whole):
        now.update(dict.fromkeys(op.outputs, rows or op.outputs[0]))
        return
    shapes = [(mixture.experts, mixture.rows, e.elements(t) // mixture.sent) for t in op.outputs]
    inputs = [now[t] if t in now else _of_experts(e, op, t, mixture) for t in op.inputs]
    attributes = {**op.attributes, "experts": mixture.experts}
    if op.kind is OpKind.MATMUL:
        inputs[1], attributes["transpose_b"] = _stored(e, op)
    e.become(op, op.kind, inputs, **attributes)
    for t, shape in zip(op.outputs, shapes, strict=True):
        e.reshape(t, shape)
        now[t] = t


def _stored(e: GraphEditor, op: Operator) -> tuple[str, bool]:
    """The matrices as they are stored, and whether they are read transposed."""
    turned = bool(op.attributes.get("transpose_b"))
    view = e.maker(op.inputs[1], OpKind.VIEW)
    if view is None or not e.is_parameter(view.inputs[0]):
        return op.inputs[1], turned
    return view.inputs[0], not turned


def _of_experts(e: GraphEditor, op: Operator, tensor: str, mixture: _Mixture) -> str:
    """A bias of every expert, (experts, 1, width); anything else as it is."""
    table = e.table(tensor)
    if op.kind is not _STEP or table is None or len(e.shape(table)) != 2:
        return tensor
    return e.view_before(
        op, e.free(f"{op.name}.of_experts"), [table], (mixture.experts, 1, e.shape(table)[-1])
    )


def _score_exactly(e: GraphEditor, routes: str) -> None:
    """The router's product stays in its own format where others are in few bits."""
    op = e.maker(routes)
    while op is not None and op.kind is not OpKind.MATMUL:
        op = e.maker(op.inputs[0]) if op.inputs else None
    if op is not None and e.is_parameter(op.inputs[1]):
        e.become(op, op.kind, op.inputs, **{**op.attributes, "exact": True})


def _choose(e: GraphEditor, routes: str) -> None:
    """The weights of the chosen experts, divided by their sum or not, in one pass over the scores of all."""
    weights = e.maker(routes)
    chosen = routes
    if weights is not None and weights.kind is _STEP and weights.attributes.get("function") == "div":
        total = e.maker(e.source(weights.inputs[-1]), OpKind.REDUCE, "sum")
        if total is None or not e.same(total.inputs[0], weights.inputs[0]):
            return
        chosen = e.source(weights.inputs[0])
    top = e.maker(chosen, OpKind.REDUCE, "max")
    if weights is not None and top is not None and len(top.inputs) == 1:
        e.become(weights, OpKind.REDUCE, top.inputs, function="top")
