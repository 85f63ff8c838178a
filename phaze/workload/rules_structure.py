"""Rules of operators that compute nothing: views and collectives."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from phaze.workload.ir import Operator, OpKind
from phaze.workload.steps import Context, Step, gradient_of, vector_step, view_step, word
from phaze.workload.work import Unit, Work


class Role(StrEnum):
    """The two conjugate collectives of tensor parallelism (Megatron-LM's g and f, arXiv 1909.08053)."""

    REDUCE = "reduce"  # sum forward, identity backward
    COPY = "copy"  # identity forward, sum backward


def nothing_saved(op: Operator, ctx: Context) -> dict[str, float]:
    """Keep nothing."""
    return {}


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
