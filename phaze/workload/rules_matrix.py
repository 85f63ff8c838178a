"""Rules of the operators that multiply matrices: product, convolution, flash attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from phaze.workload.cycles import DIV, EXP
from phaze.workload.ir import Operator, OpKind
from phaze.workload.steps import GRADIENT_BYTES, Context, Step, flag, gradient_of, integer
from phaze.workload.work import Gemm, Traffic, Unit, Work

LSE_BYTES = 4  # log-sum-exp per query row, fp32 (FlashAttention-2, arXiv 2307.08691)


def _sizes(op: Operator, ctx: Context) -> tuple[int, int, int, int]:
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


def product_forward(op: Operator, ctx: Context) -> Step:
    """y = a b, or a convolution as an implicit product over output pixels."""
    a, b, y = op.inputs[0], op.inputs[1], op.outputs[0]
    groups, m, k, n = _sizes(op, ctx)
    gemm = Gemm(groups, m, k, n, ctx.bytes(a), ctx.bytes(b), ctx.bytes(y))
    return _product(op.name, op, gemm, ctx.activations((a, b)), {y: ctx.bytes(y)})


def product_saved(op: Operator, ctx: Context) -> dict[str, float]:
    """Each operand is kept where the other one needs a gradient."""
    a, b = op.inputs[:2]
    needed = [x for x, other in ((a, b), (b, a)) if other in ctx.differentiable]
    return ctx.activations(needed)


def product_backward(op: Operator, ctx: Context, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """dA = dY B^T and dB = A^T dY, separate operators; of a parameter, dB is a sink."""
    a, b, y = op.inputs[0], op.inputs[1], op.outputs[0]
    groups, m, k, n = _sizes(op, ctx)
    left, right, result = ctx.bytes(a), ctx.bytes(b), ctx.bytes(y)
    d_a = Gemm(groups, m, n, k, result, right, left)  # a convolution's in scatter form: MACs as forward
    d_b = Gemm(groups, k, m, n, left, result, right)
    steps = []
    for operand, other, gemm in ((a, b, d_a), (b, a, d_b)):
        if operand in ctx.differentiable:
            reads = {gradients[y]: result} | ctx.activations((other,))
            steps.append(_gradient_step(op, ctx, operand, gemm, reads))
    return tuple(steps)


def _gradient_step(op: Operator, ctx: Context, operand: str, gemm: Gemm, reads: Mapping[str, float]) -> Step:
    """One gradient product; a parameter's adds into the fp32 gradient, which is read and written."""
    if operand not in ctx.parameters:
        weighted = any(t in ctx.parameters for t in op.inputs[:2])
        name = f"{op.name}.{'dX' if weighted else 'dA' if operand == op.inputs[0] else 'dB'}"
        return _product(name, op, gemm, reads, {gradient_of(op, operand): ctx.bytes(operand)})
    size = float(GRADIENT_BYTES * ctx.elements(operand))
    return _product(f"{op.name}.dW", op, replace(gemm, c_bytes=size), reads, {})


def _product(
    name: str, op: Operator, gemm: Gemm, reads: Mapping[str, float], writes: Mapping[str, float]
) -> Step:
    """Build a tensor-core step around one product; one without a result adds into a gradient it reads."""
    work = Work(name, op.kind.value, Unit.TENSOR, (gemm,), stream_bytes=0.0 if writes else gemm.c_bytes)
    return Step(name, op.kind, work, reads, writes, hosts=True)


def _fused(groups: int, m: int, k: int, n: int) -> Gemm:
    """Build a product inside the flash kernel; its bytes are for reference, HBM sees none of them."""
    return Gemm(
        groups, m, k, n, 2.0 * groups * m * k, 2.0 * groups * k * n, 2.0 * groups * m * n, Traffic.FUSED
    )


def _heads(op: Operator, ctx: Context) -> tuple[int, int, int, int, int]:
    """(batch x heads, query rows, key rows, head size, query heads per key head)."""
    q, k = ctx.shape(op.inputs[0]), ctx.shape(op.inputs[1])
    heads, kv_heads = integer(op, "heads", 1), integer(op, "kv_heads", 1)
    return q[0] * heads, q[1], k[1], integer(op, "head_size", 1), max(1, heads // kv_heads)


def attention_forward(op: Operator, ctx: Context) -> Step:
    """Flash attention: two products, online softmax, no score tensor in HBM.

    Causal masking halves neither products nor softmax: full s^2 (definitions: mfu), and no kernel is
    assumed to skip blocks. Per score: scale, maximum, subtract, exponential, sum; dropout 2 more.
    Keys and values are read again for every block of query rows (with fp32 accumulators) that fits.
    """
    groups, s_q, s_kv, d, share = _heads(op, ctx)
    scores = groups * s_q * s_kv
    out = op.outputs[0]
    cycles = scores * (4 + EXP + (2 if flag(op, "dropout") else 0)) + ctx.elements(out) + groups * s_q * DIV
    reads, writes = ctx.activations(op.inputs[:3]), {out: ctx.bytes(out)}
    lse = float(LSE_BYTES * groups * s_q) if op.outputs[0] in ctx.differentiable else 0.0
    work = Work(
        op.name,
        op.kind.value,
        Unit.TENSOR_VECTOR,
        (_fused(groups, s_q, d, s_kv), _fused(groups, s_q, s_kv, d)),
        vector_cycles=cycles,
        stream_bytes=sum(reads.values()) + sum(writes.values()) + lse,
        reread_bytes=ctx.bytes(op.inputs[1]) + ctx.bytes(op.inputs[2]),
        reread_rows_bytes=float(share * s_q * d * (2 + 4)),
    )
    return Step(op.name, op.kind, work, reads, writes)


def attention_saved(op: Operator, ctx: Context) -> dict[str, float]:
    """Queries, keys, values, the output and one fp32 log-sum-exp per query row and head."""
    groups, s_q, *_ = _heads(op, ctx)
    kept = ctx.activations((*op.inputs[:3], op.outputs[0]))
    return kept | {f"{op.name}:lse": float(LSE_BYTES * groups * s_q)}


def attention_backward(op: Operator, ctx: Context, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Five products (scores recomputed, dV, dP, dQ, dK); FlashAttention-2's loop over key blocks.

    Per score: scale, subtract, exponential; subtract, multiply, scale; dropout regenerated and applied.
    For every block of keys that fits (with its fp32 gradients), queries, output gradient and the fp32
    query gradient (read and written) pass again.
    """
    groups, s_q, s_kv, d, _ = _heads(op, ctx)
    out = op.outputs[0]
    q, k, v = op.inputs[:3]
    scores = groups * s_q * s_kv
    cycles = scores * (5 + EXP + (3 if flag(op, "dropout") else 0)) + ctx.elements(out)
    reads = {gradients[out]: ctx.bytes(out)} | ctx.activations((q, k, v, out))
    writes = {gradient_of(op, x): ctx.bytes(x) for x in (q, k, v)}
    query_key, score_value = (groups, s_q, d, s_kv), (groups, s_q, s_kv, d)
    shapes = (query_key, (groups, s_kv, s_q, d), query_key, score_value, (groups, s_kv, s_q, d))
    work = Work(
        f"{op.name}.dX",
        op.kind.value,
        Unit.TENSOR_VECTOR,
        tuple(_fused(*shape) for shape in shapes),
        vector_cycles=cycles,
        stream_bytes=sum(reads.values()) + sum(writes.values()) + LSE_BYTES * groups * s_q,
        reread_bytes=ctx.bytes(q) + ctx.bytes(out) + 2 * 4.0 * ctx.elements(q),
        reread_rows_bytes=float(s_kv * d * 2 * (2 + 4)),
    )
    return (Step(work.name, op.kind, work, reads, writes),)


def forward_macs(op: Operator, ctx: Context) -> int:
    """Multiply-accumulates of an operator's forward; 0 for operators that multiply no matrices."""
    if op.kind in (OpKind.MATMUL, OpKind.CONV):
        return prod(_sizes(op, ctx))
    if op.kind is OpKind.ATTENTION:
        groups, s_q, s_kv, d, _ = _heads(op, ctx)
        return 2 * groups * s_q * s_kv * d
    return 0


def model_flops(op: Operator, ctx: Context) -> float:
    """Multiply and add, forward plus one product per operand that needs a gradient; no recompute."""
    products = 1 + sum(x in ctx.differentiable for x in op.inputs[:2])
    return 2.0 * forward_macs(op, ctx) * products
