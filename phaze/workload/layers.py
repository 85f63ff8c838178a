"""One layer of the model at one tensor-parallel width: its passes, parameters and memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from phaze.workload.cut import Segment
from phaze.workload.ir import Operator, OperatorGraph, Tensor
from phaze.workload.passes import Schedulable, schedulable, storage
from phaze.workload.rules_matrix import model_flops
from phaze.workload.sharding import Sharder
from phaze.workload.steps import Context
from phaze.workload.training import (
    backward_steps,
    forward_steps,
    incoming_gradient,
    saved_tensors,
    stored_statistics,
)
from phaze.workload.work import Layer, Pass


@dataclass(frozen=True)
class _Local:
    """A segment as one device of the tensor-parallel group has it."""

    operators: tuple[Operator, ...]
    ctx: Context


def build_layer(
    segment: Segment, graph: OperatorGraph, ctx: Context, width: int, *, fusion: bool = True
) -> Layer:
    """Layer of a segment; `graph` and `ctx` are the undivided model's, `width` the tensor-parallel degree."""
    local = _divide(segment, graph, ctx, width)
    saved, own = _saved(segment, local)
    forward = schedulable(forward_steps(local.operators, local.ctx), saved, segment.outputs, fusion=fusion)
    entering = local.ctx.activations(segment.inputs)
    backward, working = None, forward.peak_bytes(entering, saved)
    if ctx.training:
        backward, backward_peak = _backward(segment, graph, local, fusion=fusion)
        working = max(working, backward_peak)
    return Layer(
        kind=segment.kind,
        forward=forward.to_pass(segment.path),
        backward=backward,
        parameters=_parameters(local),
        saved_bytes=own,
        working_bytes=working,
        input_bytes=_boundary(segment.inputs, graph, ctx),
        output_bytes=sum(ctx.bytes(t) for t in segment.outputs),
        model_flops=sum(model_flops(op, ctx) for op in segment.operators),
    )


def _divide(segment: Segment, graph: OperatorGraph, ctx: Context, width: int) -> _Local:
    """The segment's operators on one of `width` devices."""
    if width == 1:
        return _Local(segment.operators, ctx)
    names = {t for op in segment.operators for t in (*op.inputs, *op.outputs)}
    sharder = Sharder({t: graph.tensors[t] for t in names}, width)
    makers = graph.producers()
    for position in sorted({makers[t] for t in segment.inputs if t in makers}):
        sharder.enter(graph.operators[position])
    for op in segment.operators:
        sharder.add(op)
    flows = set(ctx.differentiable)
    for op in sharder.operators:
        if any(t in flows for t in op.inputs):
            flows.update(op.outputs)
    local = Context(sharder.tensors, ctx.parameters, flows, ctx.training, width)
    return _Local(tuple(sharder.operators), local)


def _saved(segment: Segment, local: _Local) -> tuple[frozenset[str], float]:
    """Memory pieces kept for backward, and their bytes.

    Tensors that share memory count once. An output that a later layer keeps too is counted there.
    """
    kept = saved_tensors(local.operators, local.ctx)
    pieces = storage(forward_steps(local.operators, local.ctx))
    sizes: dict[str, float] = {}
    for tensor, size in kept.items():
        for piece in pieces.get(tensor, (tensor,)):
            sizes[piece] = _size(piece, size, local.ctx.tensors)
    elsewhere = {p for t in segment.kept_later for p in pieces.get(t, (t,))}
    return frozenset(sizes), sum(size for p, size in sizes.items() if p not in elsewhere)


def _size(piece: str, otherwise: float, tensors: Mapping[str, Tensor]) -> float:
    """Bytes of a tensor, or those given for a mask that is no tensor of the graph."""
    return float(tensors[piece].size_bytes) if piece in tensors else otherwise


def _backward(segment: Segment, graph: OperatorGraph, local: _Local, *, fusion: bool) -> tuple[Pass, float]:
    """Backward pass and its peak of gradients alive at once."""
    ctx = local.ctx
    receiving = [t for t in segment.outputs if t in ctx.differentiable and t not in graph.outputs]
    wanted = [t for t in segment.inputs if t in ctx.differentiable]
    steps, made = backward_steps(local.operators, ctx, receiving, wanted)
    scheduled: Schedulable = schedulable(steps, (), made, fusion=fusion)
    arriving = {incoming_gradient(t): ctx.bytes(t) for t in receiving}
    return scheduled.to_pass(segment.path), scheduled.peak_bytes(arriving, ())


def _parameters(local: _Local) -> int:
    """Trained parameter elements of the layer on one device, each parameter once."""
    read = {t for op in local.operators for t in op.inputs}
    names = {t for t in read if local.ctx.tensors[t].is_parameter}
    names -= {t for op in local.operators for t in stored_statistics(op)}
    return sum(local.ctx.elements(t) for t in names)


def _boundary(inputs: Iterable[str], graph: OperatorGraph, ctx: Context) -> float:
    """Bytes that enter from the layer before; for the first layer, from outside."""
    outside = set(graph.inputs)
    within = [t for t in inputs if t not in outside]
    return sum(ctx.bytes(t) for t in (within or inputs))
