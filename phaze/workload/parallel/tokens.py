"""Where the tokens of a sample stand in each tensor, followed through the graph from the looked-up ids."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from phaze.workload.ir import Operator, OperatorGraph, OpKind, Tensor
from phaze.workload.sharding import Shard, shard_of
from phaze.workload.steps import flag, integer

_LIKE_FIRST_INPUT = frozenset(
    {
        OpKind.NORM,
        OpKind.SOFTMAX,
        OpKind.EMBEDDING,
        OpKind.ATTENTION,
        OpKind.LOSS,
        OpKind.DISPATCH,
        OpKind.COMBINE,
    }
)


def token_axes(graph: OperatorGraph, constants: Collection[str]) -> dict[str, int]:
    """Axis of the tokens in every tensor that holds a part of its own for each token.

    `constants`: parameters and views of them, which hold none. Ids that an embedding looks up are
    (batch, tokens); a VIEW that makes tokens of something else says where they stand. An operator that mixes
    tokens (but for attention) ends the trail.
    """
    axes: dict[str, int] = {}
    for op in graph.operators:
        ids = op.inputs[0] if op.kind is OpKind.EMBEDDING else ""
        if ids in graph.inputs and len(graph.tensors[ids].shape) > 1:
            axes.setdefault(ids, 1)
        for out in op.outputs:
            axis = None if out in constants else _axis(op, out, graph.tensors, axes)
            if axis is not None:
                axes[out] = axis
        if op.kind is OpKind.LOSS and op.outputs[0] in axes:
            axes[op.inputs[1]] = axes[op.outputs[0]]
    return axes


def _axis(op: Operator, out: str, tensors: Mapping[str, Tensor], axes: Mapping[str, int]) -> int | None:
    """Axis of the tokens in an output, given those of the inputs."""
    first, rank = op.inputs[0], len(tensors[out].shape)
    if op.kind is OpKind.ELEMENTWISE:
        found = (axes[t] + rank - len(tensors[t].shape) for t in op.inputs if t in axes)
        return next(found, None)
    if op.kind is OpKind.VIEW:
        return _view_axis(op, out, tensors, axes)
    if op.kind is OpKind.MATMUL:
        contracted = rank - (2 if flag(op, "transpose_a") else 1)
        return axes.get(first) if axes.get(first) != contracted else None
    follows = op.kind in _LIKE_FIRST_INPUT or (op.kind is OpKind.REDUCE and rank == len(tensors[first].shape))
    return axes.get(first) if follows else None


def _view_axis(op: Operator, out: str, tensors: Mapping[str, Tensor], axes: Mapping[str, int]) -> int | None:
    """The axis of the same size, that of before if it is one, but not the one that devices divide.

    A piece of the tokens, or some more of them, stand where they stood.
    """
    if "tokens" in op.attributes:
        return integer(op, "tokens", 1)
    source = next((t for t in op.inputs if t in axes), None)
    if source is None:
        return None
    axis, before, shape = axes[source], tensors[source].shape, tensors[out].shape
    taken = integer(op, "shard_axis", -1) % len(shape) if shard_of(op) is not Shard.NONE else None
    found = [i for i, size in enumerate(shape) if size == before[axis] and i != taken]
    if axis in found or (*before[:axis], *before[axis + 1 :]) == (*shape[:axis], *shape[axis + 1 :]):
        return axis
    return next(iter(found), None)
