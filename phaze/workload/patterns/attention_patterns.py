"""Rotations of queries and keys, attention written out as products, and heads of keys and values that are repeated."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod

from phaze.workload.operators.operator_graph import Operator, OpKind
from phaze.workload.patterns.graph_editor import GraphEditor, Shape

_STEP = OpKind.ELEMENTWISE
_LONGEST = 12  # operators of a rotation


def find_rotations(e: GraphEditor) -> None:
    """x cos + turned(x) sin; or halves apart, x1 cos - x2 sin and x2 cos + x1 sin; or a product of complex numbers.

    Sines and cosines are constants, so each product is a scaling, or stored as tables, which nobody trains;
    turned(x) is x with its halves (or neighbours) exchanged and one of them negative.
    """
    for add in e.operators(_STEP, "add"):
        for one, other in (add.inputs, add.inputs[::-1]) if len(add.inputs) == 2 else ():
            plain = e.maker(one, _STEP, "scale", "mul")
            x = None if plain is None else _beside_table(e, plain)
            if plain is not None and x is not None:
                product = str(plain.attributes["function"])
                if _turns(e, other, x, {product: 1, "neg": 1}):
                    e.become(add, _STEP, [x], function="rope")
                    break
    for join in e.operators(OpKind.VIEW):
        x = _halves_apart(e, join) or _complex(e, join)
        if x is not None:
            shape = e.shape(join.outputs[0])
            before = e.view_before(join, e.free(f"{join.name}.turned"), [x], shape)
            e.become(join, _STEP, [before], function="rope")


def _beside_table(e: GraphEditor, product: Operator) -> str | None:
    """What a step multiplies by a constant, or by a stored table."""
    computed = [t for t in product.inputs if not e.is_parameter(t)]
    return computed[0] if len(computed) == 1 else None


def _turns(e: GraphEditor, tensor: str, x: str, wanted: dict[str, int]) -> bool:
    """Whether a tensor is made of pieces of x alone, by views and so many steps of each function."""
    waiting, found, root = [tensor], Counter[str](), e.source(x)
    for _ in range(_LONGEST):
        if not waiting:
            return found == wanted
        one = waiting.pop()
        if e.source(one) == root:
            return False  # x as a whole
        op = e.maker(one)
        if op is None or op.kind not in (OpKind.VIEW, _STEP):
            return False
        if op.kind is _STEP:
            found[str(op.attributes.get("function"))] += 1
        tables = op.kind is _STEP and op.attributes.get("function") == "mul"
        pieces = (
            t
            for t in op.inputs
            if not (op.kind is OpKind.VIEW and e.source(t) == root) and not (tables and e.is_parameter(t))
        )
        waiting += pieces
    return False


def _halves_apart(e: GraphEditor, join: Operator) -> str | None:
    """The tensor whose turned halves a view puts together."""
    if len(join.inputs) != 2:
        return None
    made = [e.maker(e.source(t), _STEP, "add", "sub") for t in join.inputs]
    if Counter(str(op.attributes.get("function")) for op in made if op) != {"add": 1, "sub": 1}:
        return None
    scaled = [e.maker(e.source(t), _STEP, "scale") for op in made if op for t in op.inputs]
    halves = [e.source(op.inputs[0]) for op in scaled if op is not None]
    if len(halves) != 4 or set(Counter(halves).values()) != {2}:
        return None
    cuts = [e.maker(half, OpKind.VIEW) for half in halves]
    sources = {e.source(op.inputs[0]) for op in cuts if op is not None}
    x = sources.pop() if len(sources) == 1 and None not in cuts else None
    return x if x is not None and e.elements(x) == e.elements(join.outputs[0]) else None


def _complex(e: GraphEditor, join: Operator) -> str | None:
    """The real tensor that is multiplied as complex numbers with a constant, and real again after it."""
    if len(join.inputs) != 1 or join.attributes.get("complex") != "real":
        return None
    op = e.maker(e.source(join.inputs[0]), _STEP, "scale")
    pairs = op and e.maker(e.source(op.inputs[0]), OpKind.VIEW)
    return pairs.inputs[0] if pairs and pairs.attributes.get("complex") == "pairs" else None


_BETWEEN = {"scale", "where", "mask", "clip", "add", "max"}
"""Steps between scores and softmax; what is added is a mask, or a table of distances."""


@dataclass(frozen=True)
class _Scores:
    """Product of queries and keys, and what is done to it: `tables` of distances are added, `causal` masks it."""

    product: Operator
    causal: bool = False
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Mix:
    """Product of weights and values (..., keys, size), or of values (..., size, keys) and weights: `channels_first`."""

    product: Operator
    values: str
    channels_first: bool
    dropout: bool


def find_attention(e: GraphEditor) -> None:
    """softmax(q k') v with scale, constant mask, table of distances and dropout between: one flash kernel."""
    for soft in e.operators(OpKind.SOFTMAX):
        scores, mix = _scores(e, soft), _mix(e, soft)
        if scores is not None and mix is not None:
            _fuse(e, scores, mix)


def _scores(e: GraphEditor, soft: Operator) -> _Scores | None:
    """What a softmax over keys is taken of."""
    tensor, causal, tables = soft.inputs[0], False, list[str]()
    rank = len(e.shape(tensor))
    if int(str(soft.attributes.get("axis", -1))) % rank != rank - 1:
        return None
    while (op := e.maker(tensor)) is not None:
        if op.kind is OpKind.MATMUL:
            found = _Scores(op, causal, tuple(tables))
            return found if not any(map(e.is_parameter, op.inputs)) else None
        step = op.kind is _STEP and op.attributes.get("function") in _BETWEEN
        added = {t: table for t in op.inputs if t in e.trained and (table := e.table(t)) is not None}
        computed = [t for t in op.inputs if t in e.trained and t not in added]
        if len(computed) != 1 or not (step or e.is_renaming(op)):
            return None
        causal = causal or bool(op.attributes.get("causal"))
        tables += added.values()
        tensor = computed[0]
    return None


def _mix(e: GraphEditor, soft: Operator) -> _Mix | None:
    """The product of the weights and the values after a softmax; there may be a dropout between."""
    weights, dropout, op = soft.outputs[0], False, e.reader_through_views(soft.outputs[0])
    while op is not None and op.kind is _STEP and op.attributes.get("function") == "dropout":
        weights, dropout, op = op.outputs[0], True, e.reader_through_views(op.outputs[0])
    if op is None or op.kind is not OpKind.MATMUL or any(map(e.is_parameter, op.inputs)):
        return None
    first = e.same(op.inputs[0], weights)
    return _Mix(op, op.inputs[1 if first else 0], not first, dropout)


def _fuse(e: GraphEditor, found: _Scores, mixed: _Mix) -> None:
    """Put the kernel in the place of the last product, rows of (batch, positions, heads x size) around it."""
    scores, mix = found.product, mixed.product
    (q, k), v = scores.inputs, mixed.values
    scaled = [e.maker(t, _STEP, "scale") for t in (q, k)]
    q, k = (t if op is None else op.inputs[0] for t, op in zip((q, k), scaled, strict=True))  # kernels scale
    (*outer, rows, size), keys = e.shape(q), e.shape(scores.outputs[0])[-1]
    out = e.shape(mix.outputs[0])
    turned = [scores.attributes.get("transpose_a")]
    turned += [mix.attributes.get(flag) for flag in ("transpose_a", "transpose_b")]
    values = e.shape(v)[-2:]
    if any(turned) or values != ((size, keys) if mixed.channels_first else (keys, size)):
        return
    heads = outer[-1] if len(outer) > 1 else _heads(e, q)
    groups = prod(outer) // heads
    if len(e.shape(k)) != len(e.shape(q)) or e.elements(k) != groups * heads * keys * size:
        return
    flat = {"q": (q, rows), "k": (k, keys), "v": (v, keys)}
    parts = [
        e.view_before(mix, e.free(f"{mix.name}.{part}"), [tensor], (groups, length, heads * size))
        for part, (tensor, length) in flat.items()
    ]
    known = {"heads": heads, "kv_heads": heads, "head_size": size, "causal": found.causal}
    known["dropout"] = mixed.dropout
    biased = {"score_bias": True} if found.tables else {}
    kernel, inputs = e.free(f"{mix.name}.flash"), [*parts, *found.tables[:1]]
    e.add_before(mix, kernel, OpKind.ATTENTION, inputs, (groups, rows, heads * size), **known, **biased)
    e.become(mix, OpKind.VIEW, [kernel])
    assert e.shape(mix.outputs[0]) == out


def _heads(e: GraphEditor, q: str) -> int:
    """Heads in the first axis of queries (batch x heads, positions, size), as they stood apart before; else 1."""
    count, _, size = e.shape(q)
    while (op := e.maker(q, OpKind.VIEW)) is not None and e.is_renaming(op):
        q = op.inputs[0]
        shape = e.shape(q)
        if len(shape) == 4 and shape[-1] == size and shape[0] * shape[1] == count:
            return shape[1]
    return 1


def find_scales(e: GraphEditor) -> None:
    """Queries or keys that are multiplied by a number before a kernel, which does that itself."""
    for op in e.operators(OpKind.ATTENTION):
        inputs = [_without_scale(e, t) for t in op.inputs[:2]]
        if inputs != list(op.inputs[:2]):
            e.become(op, OpKind.ATTENTION, [*inputs, *op.inputs[2:]], **op.attributes)


def _without_scale(e: GraphEditor, tensor: str) -> str:
    """A tensor in the same shape, of what was scaled, where nobody else reads that."""
    step = e.maker(e.source(tensor), _STEP, "scale")
    if step is None or not step.attributes.get("by_number") or len(e.readers(step.outputs[0])) > 1:
        return tensor
    op = e.maker(tensor)
    if op is None or e.shape(tensor) == e.shape(step.inputs[0]):
        return step.inputs[0]
    return e.view_before(op, e.free(f"{tensor}.unscaled"), [step.inputs[0]], e.shape(tensor))


def find_repeated_heads(e: GraphEditor) -> None:
    """Keys and values that are copied for all query heads of a group: the kernel reads them once."""
    for op in e.operators(OpKind.ATTENTION):
        heads, size = int(str(op.attributes["heads"])), int(str(op.attributes["head_size"]))
        if op.attributes.get("kv_heads") != heads:
            continue
        found = [_unrepeated(e, t, heads, size) for t in op.inputs[1:3]]
        if None in found or e.elements(str(found[0])) != e.elements(str(found[1])):
            continue
        batch, length = e.shape(op.inputs[1])[:2]
        kept = e.elements(str(found[0])) // (batch * length * size)
        rows: Shape = (batch, length, kept * size)
        inputs = [
            e.view_before(op, e.free(f"{op.name}.{part}"), [str(t)], rows)
            for part, t in zip("kv", found, strict=True)
        ]
        e.become(
            op,
            OpKind.ATTENTION,
            [op.inputs[0], *inputs, *op.inputs[3:]],
            **{**op.attributes, "kv_heads": kept},
        )


def _unrepeated(e: GraphEditor, tensor: str, heads: int, size: int) -> str | None:
    """The tensor that was copied along its heads; None where there is no copy, or along other axes."""
    batch, length, _ = e.shape(tensor)
    whole = e.elements(tensor)
    while (op := e.maker(tensor, OpKind.VIEW)) is not None and len(op.inputs) == len(op.outputs) == 1:
        tensor = op.inputs[0]
        if e.elements(tensor) == whole:
            continue
        share, rest = divmod(whole, e.elements(tensor))
        kept = heads // share if not rest else 0
        shape = Counter(n for n in e.shape(tensor) if n > 1)
        wanted = Counter(n for n in (batch, kept, length, size) if n > 1)
        return tensor if kept and heads % share == 0 and shape == wanted else None
    return None
