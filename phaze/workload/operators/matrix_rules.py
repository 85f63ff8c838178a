"""Rules of the operators that multiply matrices: product, convolution, flash attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from phaze.workload.operators.elementwise_cycles import DIV, EXP
from phaze.workload.operators.index_rules import index_macs
from phaze.workload.operators.kv_cache import cache_reads
from phaze.workload.operators.low_precision import kept_input, narrowed, recipe_of, scaling_bytes
from phaze.workload.operators.operator_graph import Operator, OpKind
from phaze.workload.operators.operator_steps import (
    GRADIENT_BYTES,
    OperatorContext,
    Step,
    extents,
    flag,
    gradient_of,
    integer,
)
from phaze.workload.operators.state_rules import recurrence_macs
from phaze.workload.work import LATENT, Flash, Format, Gemm, Role, Traffic, Unit, Window, Work

LSE_BYTES = 4  # log-sum-exp per query row, fp32 (FlashAttention-2, arXiv 2307.08691)


def _sizes(op: Operator, ctx: OperatorContext) -> tuple[int, int, int, int]:
    """(groups, m, k, n) of a product or convolution's forward."""
    a, b = (ctx.shape(t) for t in op.inputs[:2])
    out = ctx.shape(op.outputs[0])
    if op.kind is OpKind.CONV:
        groups = integer(op, "groups", 1)
        return groups, out[0] * prod(out[2:]), prod(b[1:]), out[1] // groups
    transposed = flag(op, "transpose_a")
    k = a[-2] if transposed else a[-1]
    if len(b) == 2 and not transposed:
        return 1, prod(out[:-1]), k, out[-1]
    return prod(out[:-2]), out[-2], k, out[-1]


def _window(op: Operator, ctx: OperatorContext, role: Role) -> Window | None:
    """Geometry of a convolution; None for other products."""
    if op.kind is not OpKind.CONV:
        return None
    before, kernel, after = (ctx.shape(t)[2:] for t in (*op.inputs[:2], op.outputs[0]))
    return Window(role, kernel, extents(op, "strides") or (1,) * len(kernel), before, after)


def product_forward(op: Operator, ctx: OperatorContext) -> Step:
    """y = a b, or a convolution as an implicit product over output pixels."""
    a, b, y = op.inputs[0], op.inputs[1], op.outputs[0]
    groups, m, k, n = _sizes(op, ctx)
    window = _window(op, ctx, Role.FORWARD)
    # of experts that no token is sent to, nothing
    read = groups / ctx.shape(b)[0] if integer(op, "experts", 0) and b in ctx.parameters else 1.0
    sizes = ctx.bytes(a), ctx.bytes(b) * read, ctx.bytes(y)
    gemm = Gemm(groups, m, k, n, *sizes, operands=ctx.operands, window=window)
    scaled = scaling_bytes(op, a, ctx)
    weight = next((side for side in (1, 0) if op.inputs[side] in ctx.parameters), None)
    return _product(op.name, op, gemm, ctx.activations((a, b)), {y: ctx.bytes(y)}, scaled, weight)


def product_saved(op: Operator, ctx: OperatorContext) -> dict[str, float]:
    """Each operand is kept where the other one needs a gradient, in few bits where a recipe has them."""
    a, b = op.inputs[:2]
    needed = [x for x, other in ((a, b), (b, a)) if other in ctx.differentiable]
    return kept_input(op, ctx.activations(needed), ctx)


def product_backward(op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """dA = dY B^T and dB = A^T dY, separate operators; of a parameter, dB is a sink."""
    a, b, y = op.inputs[0], op.inputs[1], op.outputs[0]
    groups, m, k, n = _sizes(op, ctx)
    left, right, result = ctx.bytes(a), ctx.bytes(b), ctx.bytes(y)
    at_a, at_b = (_window(op, ctx, role) for role in (Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT))
    # a convolution's input gradient in scatter form: MACs as forward
    d_a = Gemm(groups, m, n, k, result, right, left, operands=ctx.operands, window=at_a)
    d_b = Gemm(groups, k, m, n, left, result, right, operands=ctx.operands, window=at_b)
    steps = []
    for operand, other, gemm in ((a, b, d_a), (b, a, d_b)):
        if operand in ctx.differentiable:
            reads = {gradients[y]: result} | ctx.activations((other,))
            scaled = scaling_bytes(op, y, ctx) if operand == a else 0.0
            steps.append(_gradient_step(op, ctx, operand, gemm, reads, scaled))
    return tuple(steps)


def _gradient_step(
    op: Operator,
    ctx: OperatorContext,
    operand: str,
    gemm: Gemm,
    reads: Mapping[str, float],
    scaled_bytes: float,
) -> Step:
    """One gradient product; a parameter's adds into the fp32 gradient, which is read and written."""
    if operand not in ctx.parameters:
        weighted = any(t in ctx.parameters for t in op.inputs[:2])
        name = f"{op.name}.{'dX' if weighted else 'dA' if operand == op.inputs[0] else 'dB'}"
        writes = {gradient_of(op, operand): ctx.bytes(operand)}
        return _product(name, op, gemm, reads, writes, scaled_bytes)
    size = float(GRADIENT_BYTES * ctx.elements(operand))
    return _product(f"{op.name}.dW", op, replace(gemm, c_bytes=size), reads, {})


def _product(
    name: str,
    op: Operator,
    gemm: Gemm,
    reads: Mapping[str, float],
    writes: Mapping[str, float],
    scaled_bytes: float = 0.0,
    weight: int | None = None,
) -> Step:
    """Build a tensor-core step around one product; one without a result adds into a gradient it reads.

    `scaled_bytes`: moved to scale its operands to fewer bits. `weight`: which operand is one, where it matters.
    """
    recipe, added = recipe_of(op), 0.0 if writes else gemm.c_bytes
    gemm = gemm if recipe is None else narrowed(gemm, recipe, weight)
    moved = added + scaled_bytes
    work = Work(name, op.kind.value, Unit.TENSOR, (gemm,), stream_bytes=moved, of_cache=flag(op, "cached"))
    return Step(name, op.kind, work, reads, writes, hosts=True)


def _fused(groups: int, m: int, k: int, n: int, of: _Scores, right_bytes: int | None = None) -> Gemm:
    """Build a product inside the flash kernel, of which HBM sees nothing; `right_bytes`: of an element there."""
    each = (of.each, of.each if right_bytes is None else right_bytes, of.each)
    left, right, result = (
        float(one * groups * size) for one, size in zip(each, (m * k, k * n, m * n), strict=True)
    )
    return Gemm(groups, m, k, n, left, right, result, Traffic.FUSED, of.operands)


@dataclass(frozen=True, slots=True)
class _Scores:
    """Sizes of an attention: `groups` = batch x heads, `share` query heads per key head, `each` element's bytes.

    `kept`: bytes of an element of keys and values, as they lie in a cache; `latent`: whether values are a part of the
    keys. `visible`: scores that no causal mask hides; `operands`: format of the products' operands.
    """

    groups: int
    queries: int
    keys: int  # that a query sees
    size: int
    value_size: int
    share: int
    each: int
    kept: int
    latent: bool
    visible: float
    operands: Format | None

    @property
    def flash(self) -> Flash:
        """Figures of the flash-attention kernel beyond its products."""
        return Flash(self.queries, self.share, self.visible / (self.queries * self.keys))

    @property
    def number(self) -> int:
        """Scores."""
        return self.groups * self.queries * self.keys

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the scores and of their weighted sum."""
        return self.number * (self.size + self.value_size)


def _scores(op: Operator, ctx: OperatorContext) -> _Scores:
    q, k = ctx.shape(op.inputs[0]), ctx.shape(op.inputs[1])
    heads, kv_heads, size = integer(op, "heads", 1), integer(op, "kv_heads", 1), integer(op, "head_size", 1)
    keys = min(k[1], integer(op, "window", k[1]))
    value_size = integer(op, "value_size", size)
    each, kept = (ctx.tensors[t].element_bytes for t in op.inputs[:2])
    latent = op.inputs[1] == op.inputs[2]
    dealt = integer(op, "dealt", 1)  # devices that share all queries, each two chunks from both ends
    hidden = _hidden(min(q[1] * dealt, k[1]), k[1], keys) / dealt if flag(op, "causal") else 0.0
    share = max(1, heads // kv_heads)
    visible = q[1] * keys - hidden
    return _Scores(
        q[0] * heads, q[1], keys, size, value_size, share, each, kept, latent, visible, ctx.operands
    )


def _hidden(queries: int, keys: int, window: int) -> int:
    """Scores of one head that a causal mask hides; the last query sees the last key and `window` keys in all."""
    first = max(0, window - max(0, keys - queries) - 1)  # keys that the first query lacks, the next one fewer
    lacking = min(queries, first)
    return lacking * first - lacking * (lacking - 1) // 2


def attention_forward(op: Operator, ctx: OperatorContext) -> Step:
    """Flash attention: two products, online softmax, no score tensor in HBM.

    Causal masking halves neither products nor softmax: full s^2 (definitions: mfu), and no kernel is
    assumed to skip blocks; keys outside a window are skipped. Per score: scale, maximum, subtract,
    exponential, sum; positions 1 more, dropout 2. Keys and values are read again for every block of
    query rows (with fp32 accumulators) that fits, as far as its window goes. Query heads that share a key
    head are rows of one product where each has a single row (decoding), or where they are all heads of an attention
    over latent vectors, whose values are a part of the keys. Of chosen keys those of all queries are read, or all there
    are; queries that choose the same find them in the chip's cache.
    """
    a, keys, out = _scores(op, ctx), dict.fromkeys(op.inputs[1:3]), op.outputs[0]
    per_score = 4 + EXP + (2 if flag(op, "dropout") else 0) + (1 if flag(op, "score_bias") else 0)
    cycles = a.number * per_score + ctx.elements(out) + a.groups * a.queries * DIV
    reads, writes = ctx.activations(op.inputs), {out: ctx.bytes(out)}
    unread = _unread_bytes(op, a, ctx)
    pages = 0.0 if unread else cache_reads(keys, integer(op, "page", 0), ctx)
    together = a.queries == 1 or a.latent
    packed, rows = (a.groups // a.share, a.share * a.queries) if together else (a.groups, a.queries)
    lse = float(LSE_BYTES * a.groups * a.queries) if out in ctx.differentiable else 0.0
    work = Work(
        op.name,
        LATENT if a.latent else op.kind.value,
        Unit.TENSOR_VECTOR,
        (
            _fused(packed, rows, a.size, a.keys, a, a.kept),
            _fused(packed, rows, a.keys, a.value_size, a, 0 if a.latent else a.kept),
        ),
        vector_cycles=cycles,
        stream_bytes=sum(reads.values())
        + sum(writes.values())
        + lse
        + ctx.parameter_bytes(op)
        + pages
        - unread,
        reread_bytes=sum(map(ctx.bytes, keys)) * a.keys / ctx.shape(op.inputs[1])[1],
        reread_rows_bytes=float(a.share * a.queries * (a.each * a.size + 4 * a.value_size)),
        flash=a.flash,
    )
    return Step(op.name, op.kind, work, reads, writes)


def _unread_bytes(op: Operator, a: _Scores, ctx: OperatorContext) -> float:
    """Bytes of keys and values that no query chooses."""
    if not flag(op, "chosen"):
        return 0.0
    there = ctx.shape(op.inputs[1])[1]
    return sum(ctx.activations(op.inputs[1:3]).values()) * (1 - min(1.0, a.queries * a.keys / there))


def attention_saved(op: Operator, ctx: OperatorContext) -> dict[str, float]:
    """Queries, keys, values, the output and one fp32 log-sum-exp per query row and head."""
    a = _scores(op, ctx)
    kept = ctx.activations((*op.inputs, op.outputs[0]))
    return kept | {f"{op.name}:lse": float(LSE_BYTES * a.groups * a.queries)}


def attention_backward(op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Five products (scores recomputed, dV, dP, dQ, dK); FlashAttention-2's loop over key blocks.

    Per score: scale, subtract, exponential; subtract, multiply, scale; dropout regenerated and applied;
    positions added, and the gradient of a table of them. For every block of keys that fits (with its fp32
    gradients), queries, output gradient and the fp32 query gradient (read and written) pass again.
    """
    a, (q, k, v), out = _scores(op, ctx), op.inputs[:3], op.outputs[0]
    table, chosen = ([t for t in op.inputs[3:] if (t in ctx.parameters) is known] for known in (True, False))
    learned = len(table) - flag(op, "sinks")  # a sink is one score of a row, not one more of every score
    per_score = 5 + EXP + (3 if flag(op, "dropout") else 0) + learned + flag(op, "score_bias")
    reads = {gradients[out]: ctx.bytes(out)} | ctx.activations((*op.inputs, out))
    writes = {gradient_of(op, x): ctx.bytes(x) for x in (q, k, v, *chosen)}
    tables = sum(ctx.bytes(t) + 2.0 * GRADIENT_BYTES * ctx.elements(t) for t in table)
    work = Work(
        f"{op.name}.dX",
        op.kind.value,
        Unit.TENSOR_VECTOR,
        tuple(_fused(a.groups, *shape, a) for shape in _backward_products(a)),
        vector_cycles=a.number * per_score + ctx.elements(out),
        stream_bytes=sum(reads.values()) + sum(writes.values()) + LSE_BYTES * a.groups * a.queries + tables,
        reread_bytes=ctx.bytes(q) + ctx.bytes(out) + 2 * 4.0 * ctx.elements(q),
        reread_rows_bytes=float(a.keys * (a.size + a.value_size) * (a.each + 4)),
        flash=a.flash,
    )
    return (Step(work.name, op.kind, work, reads, writes),)


def _backward_products(a: _Scores) -> tuple[tuple[int, int, int], ...]:
    """(m, k, n) of the scores, dV, dP, dQ and dK."""
    return (
        (a.queries, a.size, a.keys),
        (a.keys, a.queries, a.value_size),
        (a.queries, a.value_size, a.keys),
        (a.queries, a.keys, a.size),
        (a.keys, a.queries, a.size),
    )


def forward_macs(op: Operator, ctx: OperatorContext) -> int:
    """Multiply-accumulates of an operator's forward; 0 for operators that multiply no matrices."""
    if op.kind in (OpKind.MATMUL, OpKind.CONV):
        return prod(_sizes(op, ctx))
    if op.kind is OpKind.ATTENTION:
        return _scores(op, ctx).macs
    if op.kind is OpKind.INDEX:
        return index_macs(op, ctx)
    return recurrence_macs(op, ctx) if op.kind is OpKind.RECURRENCE else 0


def model_flops(op: Operator, ctx: OperatorContext) -> float:
    """Multiply and add, forward plus one product per operand that needs a gradient; no recompute."""
    forward = 2.0 * forward_macs(op, ctx)
    if op.outputs[0] not in ctx.differentiable:
        return forward
    if op.kind in (OpKind.INDEX, OpKind.RECURRENCE):
        return 3 * forward  # to the state and to what each product joins it with
    if op.kind is not OpKind.ATTENTION:
        return forward * (1 + sum(x in ctx.differentiable for x in op.inputs[:2]))
    q, k, v = (x in ctx.differentiable for x in op.inputs[:3])
    a = _scores(op, ctx)
    return forward + 2.0 * a.number * (a.size * (q + k) + a.value_size * ((q or k) + v))
