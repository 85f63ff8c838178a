"""Context parallelism: the tokens of a sample are divided everywhere, keys and values exchanged.

Where the tokens stand in each tensor is followed through the graph from the looked-up ids.

Attention gathers the keys and values of all devices before it starts (as Llama 3 was trained, arXiv 2407.21783,
section 3.3.2); backward gathers them again, for only one's own are kept, and scatters the sums of their
gradients. A ring that passes them on (Ring Attention, arXiv 2310.01889) moves as many bytes. Of 2 c chunks of
tokens device i holds chunks i and 2 c - 1 - i (`dealt`), so that a causal mask leaves all the same number of
scores: so do Llama 3, Megatron-Core and Transformer Engine (get_batch_on_this_cp_rank), PyTorch and torchtitan
(enable_load_balance, pytorch pull request 132442), and MaxText (context_parallel_load_balance, pull requests
1133 and 1445). Where no kernel is assumed to skip masked blocks, each device works on its tokens times all. The
gradients of parameters are summed over the group with those of the data-parallel replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from phaze.workload.operators.operator_graph import Operator, OperatorGraph, OpKind, Tensor
from phaze.workload.operators.operator_steps import flag, integer
from phaze.workload.parallel_degrees import Group
from phaze.workload.sharding.layer_rewriter import Part, Rewriter
from phaze.workload.sharding.shard_roles import Shard, shard_of

_LIKE_FIRST_INPUT = frozenset(
    {
        OpKind.NORM,
        OpKind.SOFTMAX,
        OpKind.EMBEDDING,
        OpKind.ATTENTION,
        OpKind.INDEX,
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
        if op.kind is OpKind.ATTENTION:  # (batch, tokens, width), whatever other size is the same
            axes.update(dict.fromkeys((t for t in op.inputs[:3] if t in axes), 1))
        for out in op.outputs:
            axis = None if out in constants else _axis(op, out, graph.tensors, axes)
            if axis is not None and 0 <= axis < len(graph.tensors[out].shape):
                axes[out] = axis
        if op.kind is OpKind.LOSS and op.outputs[0] in axes:
            axes[op.inputs[1]] = axes[op.outputs[0]]
    return axes


def _axis(op: Operator, out: str, tensors: Mapping[str, Tensor], axes: Mapping[str, int]) -> int | None:
    """Axis of the tokens in an output, given those of the inputs."""
    if not op.inputs:  # a constant
        return None
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


class ContextParallel(Rewriter):
    """Divides every tensor that holds tokens, the model's inputs among them."""

    def __init__(self, part: Part, group: Group) -> None:
        """Divide the tensors; the operators follow."""
        super().__init__(part, group)
        for tensor in part.tokens.keys() & part.tensors.keys():
            self.divide_tokens(tensor)

    def add(self, op: Operator) -> None:
        """Append an operator on a device's own tokens; one that ends their trail gets them all."""
        if any(self.has_own_tokens(t) for t in op.outputs):
            inputs = self.own_tokens(op)
        else:
            inputs = tuple(self.gathered(t) for t in op.inputs)
        self.operators.append(self._dealt(replace(op, inputs=inputs)))

    def _dealt(self, op: Operator) -> Operator:
        """Attention knows that its queries are those of two chunks, not the last of all."""
        if op.kind is not OpKind.ATTENTION or not self.has_own_tokens(op.inputs[0]):
            return op
        return replace(op, attributes=MappingProxyType({**op.attributes, "dealt": self.group.size}))
