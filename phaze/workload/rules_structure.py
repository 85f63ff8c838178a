"""Rules of views: operators that compute nothing."""

from __future__ import annotations

from collections.abc import Mapping

from phaze.workload.ir import Operator, OpKind
from phaze.workload.steps import Context, Step, gradient_of, vector_step, view_step


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
