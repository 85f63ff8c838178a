"""Rules of a mixture of experts: tokens go out to their experts and come back weighted.

Both move every chosen copy of a token through HBM, one element per cycle and ALU: a gather reads a
token once per expert that it is sent to (as the permutation kernels of MegaBlocks, arXiv 2211.15841).
"""

from __future__ import annotations

from collections.abc import Mapping

from phaze.workload.ir import Operator
from phaze.workload.steps import Context, Step, gradient_of, vector_step


def dispatch_forward(op: Operator, ctx: Context) -> Step:
    """Gather the rows of every expert."""
    tokens, out = op.inputs[0], op.outputs[0]
    again = ctx.bytes(out) - ctx.bytes(tokens)
    reads, writes = ctx.activations(op.inputs), {out: ctx.bytes(out)}
    return vector_step(op.name, op.kind, float(ctx.elements(out)), reads, writes, extra_bytes=max(again, 0.0))


def dispatch_saved(op: Operator, ctx: Context) -> dict[str, float]:
    """The routes."""
    return ctx.activations(op.inputs[1:])


def dispatch_backward(op: Operator, ctx: Context, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Sum the gradients of a token's copies: one addition per element."""
    tokens, routes = op.inputs
    out = op.outputs[0]
    reads = {gradients[out]: ctx.bytes(out), routes: ctx.bytes(routes)}
    writes = {gradient_of(op, tokens): ctx.bytes(tokens)}
    return (vector_step(f"{op.name}.dX", op.kind, float(ctx.elements(out)), reads, writes),)


def combine_forward(op: Operator, ctx: Context) -> Step:
    """Weighted sum over a token's experts: one multiply-add per element of their results."""
    results, out = op.inputs[0], op.outputs[0]
    reads, writes = ctx.activations(op.inputs), {out: ctx.bytes(out)}
    return vector_step(op.name, op.kind, float(ctx.elements(results)), reads, writes)


def combine_saved(op: Operator, ctx: Context) -> dict[str, float]:
    """What the experts made, for the gradient of their weights, and the routes."""
    return ctx.activations(op.inputs)


def combine_backward(op: Operator, ctx: Context, gradients: Mapping[str, str]) -> tuple[Step, ...]:
    """Gather the gradient for every copy: times the weight, and its product with what the expert made."""
    results, routes = op.inputs
    out = op.outputs[0]
    size, arriving = ctx.bytes(results), ctx.bytes(out)
    reads = {gradients[out]: arriving} | ctx.activations(op.inputs)
    writes = {gradient_of(op, t): ctx.bytes(t) for t in (results, routes) if t in ctx.differentiable}
    cycles = 2.0 * ctx.elements(results)
    again = max(size - arriving, 0.0)
    return (vector_step(f"{op.name}.dX", op.kind, cycles, reads, writes, extra_bytes=again),)
