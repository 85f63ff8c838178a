"""Rules of the operators that run on vector cores or links."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from phaze.workload.cycles import DIV, EXP, FUNCTIONS, LOG, ROOT, FunctionCost, Keep
from phaze.workload.ir import Operator, OpKind
from phaze.workload.steps import (
    GRADIENT_BYTES,
    Context,
    Step,
    extent,
    gradient_of,
    integer,
    vector_step,
    view_step,
    word,
)
from phaze.workload.work import Unit, Work


class Role(StrEnum):
    """The two conjugate collectives of tensor parallelism (Megatron-LM's g and f, arXiv 1909.08053)."""

    REDUCE = "reduce"  # sum forward, identity backward
    COPY = "copy"  # identity forward, sum backward


# Cycles per element, forward and backward. Layer norm forward: sum, sum of squares, normalise, scale and
# shift; backward: both sums again, x-hat, the gradients of scale and shift, dy * scale, two row sums,
# three to combine. RMS norm lacks the mean and the shift.
_NORM_FORWARD = {"layer": 4.0, "batch": 4.0, "instance": 4.0, "group": 4.0, "rms": 3.0}
_NORM_BACKWARD = {"layer": 11.0, "batch": 11.0, "instance": 11.0, "group": 11.0, "rms": 7.0}
NORM_FUNCTIONS = frozenset({*_NORM_FORWARD, "lrn"})


def elementwise_cost(op: Operator) -> FunctionCost:
    """Cost of an element-wise operator's function; ValueError names one that has none."""
    function = word(op, "function")
    if function not in FUNCTIONS:
        msg = f"operator {op.name!r}: no cost known for element-wise function {function!r}"
        raise ValueError(msg)
    return FUNCTIONS[function]


def elementwise_forward(op: Operator, ctx: Context) -> Step:
    """One pass over the operands; a dropout in training writes its mask."""
    out = op.outputs[0]
    cost = elementwise_cost(op)
    mask = ctx.elements(out) if cost.keep is Keep.MASK and out in ctx.differentiable else 0
    extra = ctx.parameter_bytes(op) + mask
    return vector_step(
        op.name,
        op.kind,
        cost.forward * ctx.elements(out),
        ctx.activations(op.inputs),
        {out: ctx.bytes(out)},
        extra_bytes=extra,
        hosts=True,
        epilogue=True,
    )


def elementwise_saved(op: Operator, ctx: Context) -> dict[str, float]:
    """What the function's derivative needs: inputs, output, or a mask of one byte per element."""
    keep = elementwise_cost(op).keep
    if keep is Keep.INPUTS:
        return ctx.activations(op.inputs)
    if keep is Keep.OUTPUT:
        return ctx.activations(op.outputs)
    return {f"{op.name}:mask": float(ctx.elements(op.outputs[0]))} if keep is Keep.MASK else {}


def elementwise_backward(op: Operator, ctx: Context, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Gradients of operands as large as the result in one pass; broadcast operands by a reduction each."""
    out = op.outputs[0]
    d_out, cost = {gradients[out]: ctx.bytes(out)}, elementwise_cost(op)
    operands = [x for x in dict.fromkeys(op.inputs) if x in ctx.differentiable]
    full = [x for x in operands if ctx.elements(x) >= ctx.elements(out) and x not in ctx.parameters]
    writes = {gradient_of(op, x): ctx.bytes(x) for x in full}
    steps = []
    if full and cost.backward == 0:
        steps += [view_step(f"{op.name}.dX.{x}", d_out, {gradient_of(op, x): ctx.bytes(x)}) for x in full]
    elif full:
        kept = elementwise_saved(op, ctx)
        reads = d_out | {t: size for t, size in kept.items() if not t.endswith(":mask")}
        mask = sum(size for t, size in kept.items() if t.endswith(":mask"))
        extra = ctx.parameter_bytes(op) + mask
        cycles = cost.backward * sum(ctx.elements(x) for x in full)
        name = f"{op.name}.dX"
        steps.append(
            vector_step(
                name, op.kind, cycles, reads, writes, extra_bytes=extra, hosts=True, epilogue=len(full) == 1
            )
        )
    steps += [_broadcast_gradient(op, ctx, x, d_out) for x in operands if x not in full]
    return tuple(steps)


def _broadcast_gradient(op: Operator, ctx: Context, operand: str, d_out: Mapping[str, float]) -> Step:
    """Sum the gradient over the broadcast dimensions (a bias gradient is the usual case)."""
    cost = elementwise_cost(op)
    others = elementwise_saved(op, ctx) if cost.keep is Keep.INPUTS else {}
    cycles = (1 + cost.backward) * ctx.elements(op.outputs[0])
    if operand in ctx.parameters:
        size = 2.0 * GRADIENT_BYTES * ctx.elements(operand)  # added into the fp32 gradient
        name = f"{op.name}.dW"
        return vector_step(name, OpKind.REDUCE, cycles, {**d_out, **others}, {}, extra_bytes=size)
    writes = {gradient_of(op, operand): ctx.bytes(operand)}
    return vector_step(f"{op.name}.dX.{operand}", OpKind.REDUCE, cycles, {**d_out, **others}, writes)


def softmax_forward(op: Operator, ctx: Context) -> Step:
    """Maximum, subtract, exponential, sum, multiply per element; one division per row."""
    axis = integer(op, "axis", -1)
    elements = ctx.elements(op.outputs[0])
    rows = elements / ctx.shape(op.outputs[0])[axis]
    return _unary(op, ctx, (4 + EXP) * elements + DIV * rows, hosts=True)


def softmax_backward(op: Operator, ctx: Context, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """y (dy - sum(y dy)): multiply-add, subtract, multiply."""
    return _unary_backward(op, ctx, gradients, cycles=3.0 * ctx.elements(op.outputs[0]), kept=op.outputs[:1])


def norm_forward(op: Operator, ctx: Context) -> Step:
    """Statistics and normalisation. Row norms hold a row on chip; batch norm reads its input twice.

    A batch norm outside training uses stored statistics: one multiply-add. Local response
    normalisation: square, window sum, multiply-add, power, multiply.
    """
    function, x = word(op, "function"), op.inputs[0]
    elements = ctx.elements(x)
    rows = elements / ctx.shape(x)[-1 if function in {"layer", "rms"} else 1]
    if function == "lrn":
        cycles = (3.0 + integer(op, "size", 5) + ROOT) * elements
    elif function == "batch" and not ctx.training:
        cycles = float(elements)
    else:
        cycles = _lookup(op, _NORM_FORWARD) * elements + (DIV + ROOT) * rows
    second_pass = ctx.bytes(x) if function in ("batch", "instance", "group") and ctx.training else 0.0
    return _unary(op, ctx, cycles, second_pass, hosts=True)


def norm_backward(op: Operator, ctx: Context, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Input, scale and shift gradients in one step; row statistics are worked out again, not kept."""
    function, x = word(op, "function"), op.inputs[0]
    if function == "lrn":  # power and window sum again, window sum of dy y / d, three to combine
        per_element = 2.0 * integer(op, "size", 5) + ROOT + DIV + 7
    else:
        per_element = _lookup(op, _NORM_BACKWARD)
    trained = sum(ctx.elements(t) for t in op.inputs[1:] if t in ctx.differentiable)
    two_pass = function in ("batch", "instance", "group")
    again = ctx.bytes(x) + ctx.bytes(op.outputs[0]) if two_pass else 0.0
    extra = 2.0 * GRADIENT_BYTES * trained + again
    return _unary_backward(
        op, ctx, gradients, cycles=per_element * ctx.elements(x), kept=(x,), extra_bytes=extra
    )


def _lookup(op: Operator, table: Mapping[str, float]) -> float:
    """Cost of a NORM's function; ValueError names one that has none."""
    function = word(op, "function")
    if function not in table:
        msg = f"operator {op.name!r}: no cost known for norm function {function!r}"
        raise ValueError(msg)
    return table[function]


def first_input_saved(op: Operator, ctx: Context) -> dict[str, float]:
    """Keep the first input."""
    return ctx.activations(op.inputs[:1])


def output_saved(op: Operator, ctx: Context) -> dict[str, float]:
    """Keep the output."""
    return ctx.activations(op.outputs)


def nothing_saved(op: Operator, ctx: Context) -> dict[str, float]:
    """Keep nothing."""
    return {}


def pool_forward(op: Operator, ctx: Context) -> Step:
    """One comparison or addition per window position (cycle table: kernel area per output)."""
    return _unary(op, ctx, float(extent(op, "kernel") * ctx.elements(op.outputs[0])))


def pool_saved(op: Operator, ctx: Context) -> dict[str, float]:
    """A maximum pool keeps the winner's place in its window, one byte per output."""
    if word(op, "function") != "max":
        return {}
    return {f"{op.name}:winner": float(ctx.elements(op.outputs[0]))}


def pool_backward(op: Operator, ctx: Context, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Maximum: one move per output. Average: one addition per window position."""
    is_max = word(op, "function") == "max"
    outputs = ctx.elements(op.outputs[0])
    cycles = float(outputs if is_max else outputs * extent(op, "kernel"))
    return _unary_backward(op, ctx, gradients, cycles=cycles, extra_bytes=float(outputs if is_max else 0))


def reduce_forward(op: Operator, ctx: Context) -> Step:
    """One operation per input element."""
    return _unary(op, ctx, float(ctx.elements(op.inputs[0])))


def reduce_saved(op: Operator, ctx: Context) -> dict[str, float]:
    """Sums and means need nothing; the others their input."""
    return {} if word(op, "function") in ("sum", "mean") else first_input_saved(op, ctx)


def reduce_backward(op: Operator, ctx: Context, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Spread the gradient over the input: one operation per input element."""
    kept = op.inputs[:1] if reduce_saved(op, ctx) else ()
    return _unary_backward(op, ctx, gradients, cycles=float(ctx.elements(op.inputs[0])), kept=kept)


def embedding_forward(op: Operator, ctx: Context) -> Step:
    """Gather rows: each looked-up element is read from the table and written once, one cycle a move."""
    out = op.outputs[0]
    reads, writes = ctx.activations(op.inputs), {out: ctx.bytes(out)}
    cycles = float(ctx.elements(out))
    return vector_step(op.name, op.kind, cycles, reads, writes, extra_bytes=ctx.bytes(out), hosts=True)


def embedding_backward(op: Operator, ctx: Context, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Add each row's gradient into the fp32 table gradient (read and written): a sink."""
    out = op.outputs[0]
    reads = {gradients[out]: ctx.bytes(out)}
    cycles = float(ctx.elements(out))
    extra = 2.0 * GRADIENT_BYTES * ctx.elements(out) + ctx.bytes(op.inputs[0])
    return (vector_step(f"{op.name}.dW", op.kind, cycles, reads, {}, extra_bytes=extra),)


def loss_forward(op: Operator, ctx: Context) -> Step:
    """Cross-entropy: maximum, subtract, exponential, sum per logit; logarithm and division per row."""
    logits = op.inputs[0]
    rows = ctx.elements(logits) / ctx.shape(logits)[-1]
    return _unary(op, ctx, (3 + EXP) * ctx.elements(logits) + (LOG + DIV) * rows)


def loss_saved(op: Operator, ctx: Context) -> dict[str, float]:
    """The logits, the labels and one fp32 normaliser per row."""
    logits = op.inputs[0]
    rows = ctx.elements(logits) / ctx.shape(logits)[-1]
    return ctx.activations(op.inputs) | {f"{op.name}:lse": 4.0 * rows}


def loss_backward(op: Operator, ctx: Context, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """softmax(logits) - one-hot, scaled: subtract, exponential, subtract and multiply in one pass."""
    logits = op.inputs[0]
    reads, writes = ctx.activations(op.inputs), {gradient_of(op, logits): ctx.bytes(logits)}
    cycles = (3 + EXP) * ctx.elements(logits)
    return (vector_step(f"{op.name}.dX", op.kind, cycles, reads, writes, hosts=True),)


def view_forward(op: Operator, ctx: Context) -> Step:
    """Precedence only."""
    return view_step(op.name, ctx.activations(op.inputs), {t: ctx.bytes(t) for t in op.outputs})


def view_backward(op: Operator, ctx: Context, gradients: Mapping[str, str]) -> tuple[Step, ...]:
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


def all_reduce_forward(op: Operator, ctx: Context) -> Step:
    """Sum partial results over the tensor-parallel group, or pass a copy on."""
    x, y = op.inputs[0], op.outputs[0]
    reads, writes = {x: ctx.bytes(x)}, {y: ctx.bytes(y)}
    if Role(word(op, "role")) is Role.COPY:
        return view_step(op.name, reads, writes)
    return _collective(op.name, ctx, reads, writes)


def all_reduce_backward(op: Operator, ctx: Context, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Conjugate of the forward collective."""
    x, y = op.inputs[0], op.outputs[0]
    reads, writes = {gradients[y]: ctx.bytes(y)}, {gradient_of(op, x): ctx.bytes(x)}
    name = f"{op.name}.dX"
    if Role(word(op, "role")) is Role.REDUCE:
        return (view_step(name, reads, writes),)
    return (_collective(name, ctx, reads, writes),)


def _collective(name: str, ctx: Context, reads: Mapping[str, float], writes: Mapping[str, float]) -> Step:
    """An all-reduce on the link: payload = the tensor; HBM sees one read and one write of it."""
    payload = sum(reads.values())
    work = Work(
        name,
        OpKind.ALL_REDUCE.value,
        Unit.LINK,
        stream_bytes=payload + sum(writes.values()),
        link_bytes=payload,
        link_group=ctx.tensor_parallel,
    )
    return Step(name, OpKind.ALL_REDUCE, work, reads, writes)


def _unary(
    op: Operator, ctx: Context, cycles: float, extra_bytes: float = 0.0, *, hosts: bool = False
) -> Step:
    """Forward step with one pass over inputs, parameters and output."""
    extra = extra_bytes + ctx.parameter_bytes(op)
    writes = {t: ctx.bytes(t) for t in op.outputs}
    reads = ctx.activations(op.inputs)
    return vector_step(op.name, op.kind, cycles, reads, writes, extra_bytes=extra, hosts=hosts)


def _unary_backward(
    op: Operator,
    ctx: Context,
    gradients: Mapping[str, str],
    *,
    cycles: float,
    kept: tuple[str, ...] = (),
    extra_bytes: float = 0.0,
) -> tuple[Step, ...]:
    """Backward step to the first input: reads the output gradient and what was kept."""
    x, y = op.inputs[0], op.outputs[0]
    reads = {gradients[y]: ctx.bytes(y)} | ctx.activations(kept)
    writes = {gradient_of(op, x): ctx.bytes(x)} if x in ctx.differentiable else {}
    extra = extra_bytes + ctx.parameter_bytes(op)
    hosts = op.kind in (OpKind.NORM, OpKind.SOFTMAX)
    return (vector_step(f"{op.name}.dX", op.kind, cycles, reads, writes, extra_bytes=extra, hosts=hosts),)
