"""Rules of element-wise operators; their costs are in `elementwise_cycles.py`."""

from __future__ import annotations

from collections.abc import Mapping

from phaze.workload.operators.elementwise_cycles import FUNCTIONS, FunctionCost, Keep
from phaze.workload.operators.operator_graph import Operator, OpKind
from phaze.workload.operators.operator_steps import (
    GRADIENT_BYTES,
    OperatorContext,
    Step,
    flag,
    gradient_of,
    integer,
    vector_step,
    view_step,
    word,
)


def elementwise_cost(op: Operator) -> FunctionCost:
    """Cost of an element-wise operator's function; ValueError names one that has none."""
    function = word(op, "function")
    if function not in FUNCTIONS:
        msg = f"operator {op.name!r}: no cost known for element-wise function {function!r}"
        raise ValueError(msg)
    return FUNCTIONS[function]


def elementwise_forward(op: Operator, ctx: OperatorContext) -> Step:
    """One pass over the operands; a dropout in training writes its mask."""
    out = op.outputs[0]
    cost = elementwise_cost(op)
    mask = ctx.elements(out) if cost.keep is Keep.MASK and out in ctx.differentiable else 0
    extra = ctx.parameter_bytes(op) * _reached(op, ctx) + mask
    return vector_step(
        op.name,
        op.kind,
        cost.forward * ctx.elements(out),
        ctx.activations(op.inputs),
        {out: ctx.bytes(out)},
        extra_bytes=extra,
        hosts=True,
        epilogue=True,
        bias=word(op, "function") == "add" and any(x in ctx.parameters for x in op.inputs),
        scales=word(op, "function") == "scale",
    )


def _reached(op: Operator, ctx: OperatorContext) -> float:
    """Share of the parameters that is read: of experts that no token is sent to, nothing."""
    if not integer(op, "experts", 0):
        return 1.0
    owned = [ctx.shape(t)[0] for t in op.inputs if t in ctx.parameters]
    return ctx.shape(op.outputs[0])[0] / owned[0] if owned else 1.0


def elementwise_saved(op: Operator, ctx: OperatorContext) -> dict[str, float]:
    """Bytes that the function's derivative needs: inputs, output, or a mask of one byte per element."""
    keep = elementwise_cost(op).keep
    if keep is Keep.INPUTS and word(op, "function") == "mul" and len(op.inputs) == 2:
        a, b = op.inputs  # each for the gradient of the other
        return ctx.activations(x for x, other in ((a, b), (b, a)) if other in ctx.differentiable)
    if keep is Keep.INPUTS:
        return ctx.activations(op.inputs)
    if keep is Keep.OUTPUT:
        return ctx.activations(op.outputs)
    return {f"{op.name}:mask": float(ctx.elements(op.outputs[0]))} if keep is Keep.MASK else {}


def elementwise_backward(
    op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]
) -> tuple[Step, ...]:
    """Gradients of operands as large as the result in one pass; broadcast operands by a reduction each."""
    if word(op, "function") == "dropout" and flag(op, "eager"):
        return _dropout_backward_eager(op, ctx, gradients)
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


def _dropout_backward_eager(
    op: Operator, ctx: OperatorContext, gradients: Mapping[str, str]
) -> tuple[Step, ...]:
    """The mask as numbers, their multiple, and its product with the gradient."""
    x, y = op.inputs[0], op.outputs[0]
    size, elements = ctx.bytes(y), ctx.elements(y)
    numbers, scaled = {f"{op.name}.numbers": size}, {f"{op.name}.scaled": size}
    cycles = float(elements)
    reads = {gradients[y]: size} | scaled
    return (
        vector_step(f"{op.name}.mask", op.kind, cycles, {}, numbers, extra_bytes=float(elements)),
        vector_step(f"{op.name}.times", op.kind, cycles, numbers, scaled),
        vector_step(f"{op.name}.dX", op.kind, cycles, reads, {gradient_of(op, x): size}),
    )


def _broadcast_gradient(op: Operator, ctx: OperatorContext, operand: str, d_out: Mapping[str, float]) -> Step:
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
