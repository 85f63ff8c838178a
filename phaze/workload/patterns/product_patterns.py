"""Products of one tensor side by side: queries, keys and values, gate and up, as one product; gated activations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from phaze.workload.operators.operator_graph import Operator, OpKind, Tensor
from phaze.workload.patterns.graph_editor import GraphEditor

_STEP = OpKind.ELEMENTWISE
_GATES = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh", "relu": "reglu"}


@dataclass(frozen=True)
class Linear:
    """A product with a parameter of its own, perhaps with a bias: `result` is what comes of both."""

    product: Operator
    bias: Operator | None
    result: str

    @property
    def weight(self) -> str:
        """Its parameter."""
        return self.product.inputs[1]


def linear_of(e: GraphEditor, tensor: str) -> Linear | None:
    """The product, and its bias, that make a tensor."""
    result, bias = e.source(tensor), e.maker(e.source(tensor), _STEP, "add")
    made = result
    terms = sorted(bias.inputs, key=e.is_parameter) if bias is not None else []
    if len(terms) == 2 and e.is_parameter(terms[1]) and not e.is_parameter(terms[0]):
        made = e.source(terms[0])
    else:
        made, bias = result, None
    product = e.maker(made, OpKind.MATMUL)
    if product is None or not e.is_parameter(product.inputs[1]) or len(e.shape(product.inputs[1])) != 2:
        return None
    return Linear(product, bias, result)


def find_joint_projections(e: GraphEditor) -> None:
    """Queries, keys and values of one tensor are made by one product; keys and values where queries are of another.

    Where some of them have a bias and some have none, only the products are one.
    """
    for op in tuple(e.operators(OpKind.ATTENTION)):
        found = [_projection(e, t) for t in op.inputs[:3]]
        parts = [p for p in found if p is not None]
        if len(parts) < len(found):
            continue
        apart = not e.same(parts[0].product.inputs[0], parts[1].product.inputs[0])
        some = parts[1:] if apart else parts
        bare = [Linear(p.product, None, p.product.outputs[0]) for p in some]
        joined = next((each for each in (some, bare) if _joinable(e, each)), None)
        if joined is not None:
            _split(e, joined)


def _projection(e: GraphEditor, tensor: str) -> Linear | None:
    """The product behind queries, keys or values: before norms of heads, rotation and views."""
    while True:
        tensor = e.source(tensor)
        if (found := linear_of(e, tensor)) is not None:
            return found
        op = e.maker(tensor)
        if (
            op is not None and op.kind is OpKind.VIEW and len(op.inputs) > 1
        ):  # turned in part, and put together again
            parts = [_projection(e, t) for t in op.inputs]
            return parts[0] if len({p and p.result for p in parts}) == 1 else None
        steps = {"rope", "scale"}
        turned = op is not None and (op.kind is OpKind.NORM or op.attributes.get("function") in steps)
        turned = turned or (op is not None and op.kind is OpKind.VIEW and len(op.inputs) == 1)
        cached = op is not None and op.kind is OpKind.CACHE
        if op is None or not (turned or cached):
            return None
        tensor = op.inputs[0]


def _joinable(e: GraphEditor, parts: Sequence[Linear | None]) -> bool:
    """Whether products of one tensor have alike parameters that nobody else reads."""
    some = [p for p in parts if p is not None]
    weights = [e.tensors[p.weight] for p in some]
    flags = {bool(p.product.attributes.get("transpose_b")) for p in some}
    alike = {(t.element_bytes, t.is_frozen) for t in weights}
    alone = all(e.reader(p.weight) is p.product for p in some) and len({p.weight for p in some}) == len(some)
    sources = {e.source(p.product.inputs[0]) for p in some}
    leads = {e.shape(p.product.outputs[0])[:-1] for p in some}
    biased = {p.bias is not None for p in some}
    own = all(e.reader(p.product.outputs[0]) is not None for p in some if p.bias)
    return all(len(each) == 1 for each in (flags, alike, sources, leads, biased)) and alone and own


def _joint(e: GraphEditor, parts: Sequence[Linear]) -> str:
    """One product (and bias) in place of several; its result has theirs side by side."""
    first = e.first(p.product for p in parts)
    flag, lead = bool(first.attributes.get("transpose_b")), e.shape(first.outputs[0])[:-1]
    widths = [e.shape(p.product.outputs[0])[-1] for p in parts]
    stored = e.tensors[parts[0].weight]
    inner = stored.shape[-1] if flag else stored.shape[0]
    shape = (sum(widths), inner) if flag else (inner, sum(widths))
    weight = "+".join(p.weight for p in parts)
    e.tensors[weight] = replace(stored, name=weight, shape=shape)
    name, whole = e.free(_shared_path([p.product.name for p in parts])), (*lead, sum(widths))
    inputs = [first.inputs[0], weight]
    made = e.add_before(first, name, OpKind.MATMUL, inputs, whole, **first.attributes)
    if parts[0].bias is None:
        return made
    bias = "+".join(next(filter(e.is_parameter, p.bias.inputs)) for p in parts if p.bias)
    e.tensors[bias] = Tensor(
        bias, (sum(widths),), stored.element_bytes, is_parameter=True, is_frozen=stored.is_frozen
    )
    return e.add_before(first, e.free(f"{name}.add_bias"), _STEP, [made, bias], whole, function="add")


def _split(e: GraphEditor, parts: Sequence[Linear]) -> None:
    """One product whose pieces are what several made."""
    first = e.first(p.product for p in parts)
    joint = _joint(e, parts)
    old = [op for p in parts for op in (p.bias, p.product) if op is not None]
    name = e.free(f"{joint}.split")
    cut = Operator(name, OpKind.VIEW, (joint,), tuple(p.result for p in parts), MappingProxyType({}))
    for op in old:
        e.remove(op)
    e.insert_before(first, cut)


def _shared_path(names: Sequence[str]) -> str:
    """Dotted path of the module around operators, and what they are."""
    parts = [name.split(".") for name in names]
    shared = 0
    while shared < min(map(len, parts)) - 1 and len({p[shared] for p in parts}) == 1:
        shared += 1
    return ".".join([*parts[0][:shared], "_".join(".".join(p[shared:]) for p in parts)])


def find_gates(e: GraphEditor) -> None:
    """activation(gate) times up, from one product for both where they are products of one tensor."""
    for gated in tuple(e.operators(_STEP, "mul")):
        for one, other in (gated.inputs, gated.inputs[::-1]) if len(set(gated.inputs)) == 2 else ():
            act = e.maker(e.source(one), _STEP, *_GATES)
            if act is not None and e.reader_through_views(act.outputs[0]) is gated:
                joined = _both(e, gated, act.inputs[0], other)
                if joined:
                    e.become(gated, _STEP, joined, function=_GATES[str(act.attributes["function"])])
                    break


def _both(e: GraphEditor, gated: Operator, gate: str, up: str) -> list[str]:
    """The tensor that has gate and up as its halves, or both where they are products; nothing otherwise."""
    cut, other = e.maker(e.source(gate), OpKind.VIEW), e.maker(e.source(up), OpKind.VIEW)
    if cut is not None and other is not None and cut.inputs == other.inputs and len(cut.inputs) == 1:
        whole = cut.inputs[0]
        halves = e.elements(whole) == 2 * e.elements(gate) == 2 * e.elements(up)
        return [whole] if halves and e.source(gate) != e.source(up) else []
    parts = [linear_of(e, t) for t in (gate, up)]
    some = [p for p in parts if p is not None]
    if len(some) < 2:
        return []
    if _joinable(e, some) and all(e.reader(p.result) is not None for p in some):
        return [_joint(e, some)]
    return [gate, up]
