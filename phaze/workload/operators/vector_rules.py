"""Rules of the operators that run on vector cores over rows, windows and tables, of views, and of experts.

Views compute nothing. In a mixture of experts tokens go out to their experts and come back weighted.

Dispatch and combine move every chosen copy of a token through HBM, one element per cycle and ALU: a gather reads a
token once per expert that it is sent to (as the permutation kernels of MegaBlocks, arXiv 2211.15841).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from phaze.workload.operators.elementwise_cycles import DIV, EXP, LOG, ROOT
from phaze.workload.operators.operator_graph import Operator, OpKind
from phaze.workload.operators.operator_steps import (
    GRADIENT_BYTES,
    OperatorContext,
    Step,
    extent,
    flag,
    gradient_of,
    integer,
    vector_step,
    view_step,
    word,
)


def nothing_saved(op: Operator, ctx: OperatorContext) -> dict[str, float]:
    """Keep nothing."""
    return {}


def view_forward(op: Operator, ctx: OperatorContext) -> Step:
    """Precedence only."""
    return view_step(op.name, ctx.activations(op.inputs), {t: ctx.bytes(t) for t in op.outputs})


def view_backward(op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Views the other way; an input that was broadcast gets the sum of its copies."""
    steps = []
    reads = {gradients[t]: ctx.bytes(t) for t in op.outputs if t in gradients}
    made = sum(ctx.elements(t) for t in op.outputs)
    for x in dict.fromkeys(op.inputs):
        if x not in ctx.differentiable:
            continue
        name, writes = f"{op.name}.dX.{x}", {gradient_of(op, x): ctx.bytes(x)}
        if len(op.inputs) == 1 and made > ctx.elements(x) and x not in ctx.parameters:
            steps.append(vector_step(name, OpKind.REDUCE, float(made), reads, writes))
        else:
            steps.append(view_step(name, reads, writes))
    return tuple(steps)


# Cycles per element, forward and backward. Layer norm forward: sum, sum of squares, normalise, scale and
# shift; backward: both sums again, x-hat, the gradients of scale and shift, dy * scale, two row sums,
# three to combine. RMS norm lacks the mean and the shift.
_NORM_FORWARD = {"layer": 4.0, "batch": 4.0, "instance": 4.0, "group": 4.0, "rms": 3.0}
_NORM_BACKWARD = {"layer": 11.0, "batch": 11.0, "instance": 11.0, "group": 11.0, "rms": 7.0}
_ROW_NORMS = frozenset({"layer", "rms"})


def softmax_forward(op: Operator, ctx: OperatorContext) -> Step:
    """Maximum, subtract, exponential, sum, multiply per element; one division per row."""
    axis = integer(op, "axis", -1)
    elements = ctx.elements(op.outputs[0])
    rows = elements // ctx.shape(op.outputs[0])[axis]
    return _unary(op, ctx, (4 + EXP) * elements + DIV * rows, rows=rows, hosts=True)


def softmax_backward(op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """y (dy - sum(y dy)): multiply-add, subtract, multiply; eager, y dy is a tensor of its own."""
    elements = ctx.elements(op.outputs[0])
    if flag(op, "eager"):
        return _softmax_backward_eager(op, ctx, gradients)
    rows = elements // ctx.shape(op.outputs[0])[integer(op, "axis", -1)]
    return _unary_backward(op, ctx, gradients, cycles=3.0 * elements, kept=op.outputs[:1], rows=rows)


def _softmax_backward_eager(
    op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]
) -> tuple[Step, ...]:
    """The product of the weights and their gradient, then its share of each row; both stream."""
    x, y = op.inputs[0], op.outputs[0]
    size, cycles = ctx.bytes(y), float(ctx.elements(y))
    product, kept = f"{op.name}.product", ctx.activations((y,))
    reads = {gradients[y]: size} | kept
    return (
        vector_step(f"{op.name}.dP", OpKind.ELEMENTWISE, cycles, reads, {product: size}),
        vector_step(
            f"{op.name}.dX",
            OpKind.ELEMENTWISE,
            2 * cycles,
            {product: size} | kept,
            {gradient_of(op, x): size},
        ),
    )


def norm_forward(op: Operator, ctx: OperatorContext) -> Step:
    """Statistics and normalisation. Row norms hold a row on chip; batch norm reads its input twice.

    A batch norm outside training uses stored statistics: one multiply-add. Local response
    normalisation: square, window sum, multiply-add, power, multiply.
    """
    function, x = word(op, "function"), op.inputs[0]
    elements = ctx.elements(x)
    rows = _statistics(function, ctx.shape(x))
    if function == "lrn":
        cycles = (3.0 + integer(op, "size", 5) + ROOT) * elements
    elif function == "batch" and not ctx.training:
        cycles = float(elements)
    else:
        cycles = _lookup(op, _NORM_FORWARD) * elements + (DIV + ROOT) * rows
    second_pass = ctx.bytes(x) if function in ("batch", "instance", "group") and ctx.training else 0.0
    held = rows if function in _ROW_NORMS else 0
    return _unary(op, ctx, cycles, second_pass, rows=held, hosts=True)


def _statistics(function: str, shape: tuple[int, ...]) -> int:
    """Number of means and deviations of a norm: per row, per channel, or per sample and channel."""
    if function in _ROW_NORMS:
        return prod(shape[:-1])
    return shape[1] if function == "batch" else prod(shape[:2])


def norm_backward(op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Input, scale and shift gradients in one step; row statistics are worked out again, not kept.

    Eager, scale and shift get theirs in a second step, which reads everything again.
    """
    function, x = word(op, "function"), op.inputs[0]
    # LRN: power and window sum again, window sum of dy y / d, three to combine.
    lrn = 2.0 * integer(op, "size", 5) + ROOT + DIV + 7
    per_element = lrn if function == "lrn" else _lookup(op, _NORM_BACKWARD)
    trained = sum(ctx.elements(t) for t in op.inputs[1:] if t in ctx.differentiable)
    two_pass = function in ("batch", "instance", "group")
    again = ctx.bytes(x) + ctx.bytes(op.outputs[0]) if two_pass else 0.0
    extra = 2.0 * GRADIENT_BYTES * trained + again
    rows = _statistics(function, ctx.shape(x)) if function in _ROW_NORMS else 0
    cycles = per_element * ctx.elements(x)
    (step,) = _unary_backward(op, ctx, gradients, cycles=cycles, kept=(x,), extra_bytes=extra, rows=rows)
    if not (trained and flag(op, "eager")):
        return (step,)
    second = vector_step(f"{op.name}.dW", OpKind.REDUCE, 2.0 * ctx.elements(x), step.reads, {})
    return step, second


def _lookup(op: Operator, table: Mapping[str, float]) -> float:
    """Cost of a NORM's function; ValueError names one that has none."""
    function = word(op, "function")
    if function not in table:
        msg = f"operator {op.name!r}: no cost known for norm function {function!r}"
        raise ValueError(msg)
    return table[function]


def first_input_saved(op: Operator, ctx: OperatorContext) -> dict[str, float]:
    """Keep the first input."""
    return ctx.activations(op.inputs[:1])


def output_saved(op: Operator, ctx: OperatorContext) -> dict[str, float]:
    """Keep the output."""
    return ctx.activations(op.outputs)


def pool_forward(op: Operator, ctx: OperatorContext) -> Step:
    """One comparison or addition per window position (cycle table: kernel area per output)."""
    return _unary(op, ctx, float(extent(op, "kernel") * ctx.elements(op.outputs[0])))


def pool_saved(op: Operator, ctx: OperatorContext) -> dict[str, float]:
    """A maximum pool keeps the winner's place in its window, one byte per output."""
    if word(op, "function") != "max":
        return {}
    return {f"{op.name}:winner": float(ctx.elements(op.outputs[0]))}


def pool_backward(op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Maximum: one move per output. Average: one addition per window position."""
    is_max = word(op, "function") == "max"
    outputs = ctx.elements(op.outputs[0])
    cycles = float(outputs if is_max else outputs * extent(op, "kernel"))
    return _unary_backward(op, ctx, gradients, cycles=cycles, extra_bytes=float(outputs if is_max else 0))


def reduce_forward(op: Operator, ctx: OperatorContext) -> Step:
    """One operation per input element; of the largest few, one pass of comparisons each."""
    passes = ctx.shape(op.outputs[0])[-1] if word(op, "function") == "top" else 1
    return _unary(op, ctx, float(passes * ctx.elements(op.inputs[0])))


def reduce_saved(op: Operator, ctx: OperatorContext) -> dict[str, float]:
    """Sums and means need nothing; the others their input."""
    return {} if word(op, "function") in ("sum", "mean") else first_input_saved(op, ctx)


def reduce_backward(op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Spread the gradient over the input: one operation per input element."""
    kept = op.inputs[:1] if reduce_saved(op, ctx) else ()
    return _unary_backward(op, ctx, gradients, cycles=float(ctx.elements(op.inputs[0])), kept=kept)


def embedding_forward(op: Operator, ctx: OperatorContext) -> Step:
    """Gather rows: each looked-up element is read from the table and written once, one cycle a move."""
    out = op.outputs[0]
    reads, writes = ctx.activations(op.inputs), {out: ctx.bytes(out)}
    cycles = float(ctx.elements(out))
    return vector_step(op.name, op.kind, cycles, reads, writes, extra_bytes=ctx.bytes(out), hosts=True)


def embedding_backward(op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Add each row's gradient into the fp32 table gradient (read and written): a sink."""
    out = op.outputs[0]
    reads = {gradients[out]: ctx.bytes(out)}
    cycles = float(ctx.elements(out))
    extra = 2.0 * GRADIENT_BYTES * ctx.elements(out) + ctx.bytes(op.inputs[0])
    return (vector_step(f"{op.name}.dW", op.kind, cycles, reads, {}, extra_bytes=extra),)


def loss_forward(op: Operator, ctx: OperatorContext) -> Step:
    """Cross-entropy: maximum, subtract, exponential, sum per logit; logarithm and division per row."""
    logits, rows = op.inputs[0], ctx.elements(op.inputs[1])
    return _unary(op, ctx, (3 + EXP) * ctx.elements(logits) + (LOG + DIV) * rows, rows=rows)


def loss_saved(op: Operator, ctx: OperatorContext) -> dict[str, float]:
    """The logits, the labels and one fp32 normaliser per row."""
    rows = ctx.elements(op.inputs[1])
    return ctx.activations(op.inputs) | {f"{op.name}:lse": 4.0 * rows}


def loss_backward(op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """softmax(logits) - one-hot, scaled: subtract, exponential, subtract and multiply in one pass."""
    logits = op.inputs[0]
    reads, writes = ctx.activations(op.inputs), {gradient_of(op, logits): ctx.bytes(logits)}
    cycles = (3 + EXP) * ctx.elements(logits)
    return (vector_step(f"{op.name}.dX", op.kind, cycles, reads, writes, hosts=True),)


def _unary(
    op: Operator,
    ctx: OperatorContext,
    cycles: float,
    extra_bytes: float = 0.0,
    *,
    rows: int = 0,
    hosts: bool = False,
) -> Step:
    """Forward step with one pass over inputs, parameters and output."""
    extra = extra_bytes + ctx.parameter_bytes(op)
    writes = {t: ctx.bytes(t) for t in op.outputs}
    reads = ctx.activations(op.inputs)
    return vector_step(op.name, op.kind, cycles, reads, writes, extra_bytes=extra, rows=rows, hosts=hosts)


def _unary_backward(
    op: Operator,
    ctx: OperatorContext,
    gradients: Mapping[str, str],
    *,
    cycles: float,
    kept: tuple[str, ...] = (),
    extra_bytes: float = 0.0,
    rows: int = 0,
) -> tuple[Step, ...]:
    """Backward step to the first input: reads the output gradient and what was kept."""
    x, y = op.inputs[0], op.outputs[0]
    reads = {gradients[y]: ctx.bytes(y)} | ctx.activations(kept)
    writes = {gradient_of(op, x): ctx.bytes(x)} if x in ctx.differentiable else {}
    extra = extra_bytes + ctx.parameter_bytes(op)
    hosts = op.kind in (OpKind.NORM, OpKind.SOFTMAX)
    name = f"{op.name}.dX"
    return (vector_step(name, op.kind, cycles, reads, writes, extra_bytes=extra, rows=rows, hosts=hosts),)


def dispatch_forward(op: Operator, ctx: OperatorContext) -> Step:
    """Gather the rows of every expert."""
    tokens, out = op.inputs[0], op.outputs[0]
    again = ctx.bytes(out) - ctx.bytes(tokens)
    reads, writes = ctx.activations(op.inputs), {out: ctx.bytes(out)}
    return vector_step(op.name, op.kind, float(ctx.elements(out)), reads, writes, extra_bytes=max(again, 0.0))


def dispatch_saved(op: Operator, ctx: OperatorContext) -> dict[str, float]:
    """The routes."""
    return ctx.activations(op.inputs[1:])


def dispatch_backward(op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Sum the gradients of a token's copies: one addition per element."""
    tokens, routes = op.inputs
    out = op.outputs[0]
    reads = {gradients[out]: ctx.bytes(out), routes: ctx.bytes(routes)}
    writes = {gradient_of(op, tokens): ctx.bytes(tokens)}
    return (vector_step(f"{op.name}.dX", op.kind, float(ctx.elements(out)), reads, writes),)


def combine_forward(op: Operator, ctx: OperatorContext) -> Step:
    """Weighted sum over a token's experts: one multiply-add per element of their results."""
    results, out = op.inputs[0], op.outputs[0]
    reads, writes = ctx.activations(op.inputs), {out: ctx.bytes(out)}
    return vector_step(op.name, op.kind, float(ctx.elements(results)), reads, writes)


def combine_saved(op: Operator, ctx: OperatorContext) -> dict[str, float]:
    """Bytes of the experts' results, kept for the gradient of their weights, and of the routes."""
    return ctx.activations(op.inputs)


def combine_backward(op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Gather the gradient for every copy: times the weight, and its product with what the expert made."""
    results, routes = op.inputs
    out = op.outputs[0]
    size, arriving = ctx.bytes(results), ctx.bytes(out)
    reads = {gradients[out]: arriving} | ctx.activations(op.inputs)
    writes = {gradient_of(op, t): ctx.bytes(t) for t in (results, routes) if t in ctx.differentiable}
    cycles = 2.0 * ctx.elements(results)
    again = max(size - arriving, 0.0)
    return (vector_step(f"{op.name}.dX", op.kind, cycles, reads, writes, extra_bytes=again),)
