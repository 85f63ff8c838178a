"""One layer of the model on one device: its passes, parameters and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from phaze.workload.fusion_rules import ALL_FUSION, Fusion
from phaze.workload.layers.layer_cutting import Segment
from phaze.workload.layers.operator_fusion import Schedulable, schedulable, storage
from phaze.workload.operators.kv_cache import cache_bytes
from phaze.workload.operators.low_precision import scaled_weight_bytes
from phaze.workload.operators.matrix_rules import model_flops
from phaze.workload.operators.operator_graph import Operator, OperatorGraph, OpKind, Tensor
from phaze.workload.operators.operator_steps import OperatorContext, Step
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.sharding.layer_division import UndividedModel
from phaze.workload.sharding.shard_roles import in_expert
from phaze.workload.training.activation_recompute import (
    SavedActivations,
    saved_activations,
    with_recomputation,
)
from phaze.workload.training.backward_pass import (
    backward_steps,
    forward_steps,
    incoming_gradient,
    stored_statistics,
)
from phaze.workload.work import Layer, Pass


@dataclass(frozen=True)
class _Local:
    """A segment as one device has it."""

    operators: tuple[Operator, ...]
    ctx: OperatorContext
    kept: SavedActivations


def build_layer(
    segment: Segment,
    whole: UndividedModel,
    sharding: Sharding,
    *,
    fusion: Collection[Fusion] = ALL_FUSION,
    selective: bool = False,
    keeps_products: bool = False,
    tied: Collection[str] = (),
) -> Layer:
    """Layer of a segment of the `whole` model on one device; `selective`, `keeps_products`: see `Workload.chain`.

    `tied`: parameters that other layers read as well.
    """
    operators, ctx = whole.divided(segment, sharding)
    local = _Local(
        operators, ctx, saved_activations(operators, ctx, selective=selective, keeps_products=keeps_products)
    )
    steps = forward_steps(operators, ctx)
    saved, own = _saved(segment, local, steps)
    read = _read(operators, ctx)
    frozen = sorted(_stored(operators, ctx) - read)
    leaving = (*segment.outputs, *segment.passing)
    forward = schedulable(steps, saved, leaving, fusion=fusion)
    entering = ctx.activations((*segment.inputs, *segment.passing))
    cached = {t for op in operators if op.kind is OpKind.CACHE for t in op.outputs}
    backward, working = None, forward.peak_bytes(entering, saved | cached)
    if ctx.training:
        backward, backward_peak = _backward(segment, whole.graph, local, fusion=fusion)
        working = max(working, backward_peak)
    return Layer(
        kind=segment.kind,
        forward=forward.to_pass(segment.path),
        backward=backward,
        parameters=_parameters(local.operators, local.ctx),
        saved_bytes=own,
        working_bytes=working,
        input_bytes=_entering_bytes(segment, whole, sharding),
        output_bytes=sum(whole.boundary_bytes(t, sharding) for t in leaving),
        model_flops=sum(model_flops(op, whole.ctx) for op in segment.operators),
        cache_bytes=cache_bytes(operators, ctx),
        expert_parameters=_parameters([op for op in operators if in_expert(op)], ctx),
        scaled_weight_bytes=scaled_weight_bytes(operators, ctx),
        frozen_weight_bytes=sum(ctx.bytes(t) for t in frozen),
        tied=tuple((t, ctx.elements(t)) for t in sorted(read & set(tied))),
        frozen_tied=tuple((t, ctx.bytes(t)) for t in frozen if t in tied),
        shardable=segment.shardable,
    )


def tied_parameters(segments: Sequence[Segment], ctx: OperatorContext) -> frozenset[str]:
    """Names of the parameters that several segments read."""
    readers = Counter(name for segment in segments for name in _stored(segment.operators, ctx))
    return frozenset(name for name, count in readers.items() if count > 1)


def _saved(segment: Segment, local: _Local, steps: Sequence[Step]) -> tuple[frozenset[str], float]:
    """Memory pieces kept for backward, and their bytes; `steps` of forward.

    Tensors that share memory count once, and of one that is kept in part, the part. An output that a
    later layer keeps too is counted there.
    """
    if not local.kept.sizes:
        return frozenset(), 0.0
    pieces = storage(steps)
    sizes: dict[str, float] = {}
    for tensor, size in local.kept.sizes.items():
        places = pieces.get(tensor, (tensor,))
        for piece in places:
            whole = _size(piece, size, local.ctx.tensors)
            part = size if len(places) == 1 else whole
            sizes[piece] = min(whole, sizes.get(piece, 0.0) + part)
    elsewhere = {p for t in segment.kept_later for p in pieces.get(t, (t,))}
    return frozenset(sizes), sum(size for p, size in sizes.items() if p not in elsewhere)


def _size(piece: str, otherwise: float, tensors: Mapping[str, Tensor]) -> float:
    """Bytes of a tensor, or those given for a mask that is no tensor of the graph."""
    return float(tensors[piece].size_bytes) if piece in tensors else otherwise


def _backward(
    segment: Segment, graph: OperatorGraph, local: _Local, *, fusion: Collection[Fusion]
) -> tuple[Pass, float]:
    """Backward pass and its peak of gradients alive at once."""
    ctx = local.ctx
    leaving, entering = (*segment.outputs, *segment.passing), (*segment.inputs, *segment.passing)
    receiving = {
        t: segment.arriving(t) for t in leaving if t in ctx.differentiable and t not in graph.outputs
    }
    wanted = [t for t in entering if t in ctx.differentiable]
    steps, made = backward_steps(local.operators, ctx, receiving, wanted)
    steps = with_recomputation(steps, local.kept.recomputed, ctx)
    scheduled: Schedulable = schedulable(steps, (), made, fusion=fusion)
    arriving = {incoming_gradient(t, n): ctx.bytes(t) for t, count in receiving.items() for n in range(count)}
    return scheduled.to_pass(segment.path), scheduled.peak_bytes(arriving, ())


def _parameters(operators: Sequence[Operator], ctx: OperatorContext) -> int:
    """Parameter elements that operators of one device read, each parameter once."""
    return sum(ctx.elements(t) for t in _read(operators, ctx))


def _read(operators: Sequence[Operator], ctx: OperatorContext) -> frozenset[str]:
    """Parameters that operators read; in training those that are trained."""
    stored = _stored(operators, ctx)
    return stored.intersection(ctx.differentiable) if ctx.training else stored


def _stored(operators: Sequence[Operator], ctx: OperatorContext) -> frozenset[str]:
    """Parameters that operators read, without stored statistics."""
    statistics = {t for op in operators for t in stored_statistics(op)}
    read = {t for op in operators for t in op.inputs if ctx.tensors[t].is_parameter}
    return frozenset(read - statistics)


def _entering_bytes(segment: Segment, whole: UndividedModel, sharding: Sharding) -> float:
    """Bytes that enter from the layer before; for the first layer, from outside."""
    within = [t for t in segment.inputs if t not in whole.graph.inputs]
    return sum(whole.boundary_bytes(t, sharding) for t in (within or segment.inputs))
