"""One token more of every sequence, of a model that is recorded over whole sequences.

Where every tensor holds its tokens along one axis and only causal attention mixes them, a pass over the last token
needs but the keys and values of earlier ones: each tensor keeps one token, and a cache stands before each attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType

from phaze.errors import InputError
from phaze.workload.graph_workload import ForwardModel
from phaze.workload.operators.kv_cache import CacheFormat, KvCache
from phaze.workload.operators.operator_graph import Operator, OperatorGraph, OpKind, Tensor
from phaze.workload.operators.operator_steps import integer
from phaze.workload.sharding.context_parallelism import token_axes
from phaze.workload.sharding.found_roles import divisible_heads
from phaze.workload.sharding.shard_roles import Shard, shard_of
from phaze.workload.training.backward_pass import parameter_views


@dataclass(frozen=True)
class DecodingModel:
    """A recorded model that makes one token after `context` others (default: as many as it was recorded with)."""

    name: str
    heads: int | None
    recorded: ForwardModel
    context: int
    cache: KvCache
    cache_format: CacheFormat | None = None

    @classmethod
    def of(
        cls,
        recorded: ForwardModel,
        source: str,
        context: int | None = None,
        cache: KvCache = KvCache.CONTIGUOUS,
        cache_format: CacheFormat | None = None,
    ) -> DecodingModel:
        """The model that decodes. Raises InputError, which names the source, where no cache can be derived."""
        graph = recorded.graph(1)
        length = _Step(graph, 1, cache, cache_format, source).length
        return cls(recorded.name, recorded.heads, recorded, context or length, cache, cache_format)

    @property
    def kv_heads(self) -> int | None:
        """Heads of keys and values."""
        return divisible_heads(self.recorded.graph(1))[1]

    def graph(self, batch: int) -> OperatorGraph:
        """Forward graph of one token of `batch` sequences."""
        graph = self.recorded.graph(batch)
        return _Step(graph, self.context, self.cache, self.cache_format, self.name).graph()


class _Step:
    """One rewriting; `length` is how many tokens a sequence was recorded with."""

    def __init__(
        self,
        graph: OperatorGraph,
        context: int,
        cache: KvCache,
        cache_format: CacheFormat | None,
        source: str,
    ) -> None:
        self._graph, self._context, self._cache, self._source = graph, context, cache, source
        self._element_bytes = cache_format.element_bytes if cache_format else None
        self._constants = parameter_views(graph)
        self._axes = token_axes(graph, self._constants)
        self.length = self._checked()

    def _checked(self) -> int:
        """Tokens of a sequence. Raises InputError where something but causal attention mixes or lacks tokens."""
        kernels = [op for op in self._graph.operators if op.kind is OpKind.ATTENTION]
        lengths = {self._graph.tensors[t].shape[1] for op in kernels for t in op.inputs[:3]}
        if len(lengths) != 1 or not all(op.attributes.get("causal") for op in kernels):
            raise self._refusal(
                "its attention is not causal attention of one sequence, as far as that is recognised"
            )
        (length,) = lengths
        for op in self._graph.operators:
            for t in (*op.inputs, *op.outputs):
                axis = self._axes.get(t)
                if t not in self._constants and (
                    axis is None or self._graph.tensors[t].shape[axis] != length
                ):
                    raise self._refusal(f"{op.name} does not work on each token by itself")
        return length

    def _refusal(self, why: str) -> InputError:
        return InputError(
            f"{self._source}: no key-value cache can be derived, for {why}; use training, or prefill without context"
        )

    def graph(self) -> OperatorGraph:
        """The graph of one token."""
        tensors = {
            name: self._shortened(tensor, self._axes.get(name))
            for name, tensor in self._graph.tensors.items()
        }
        operators: list[Operator] = []
        for op in self._graph.operators:
            if op.kind is OpKind.ATTENTION:
                cached = [self._cached(op, t, tensors, operators) for t in op.inputs[1:3]]
                attributes = dict(op.attributes) | ({"page": self._cache.page} if self._cache.page else {})
                op = replace(  # noqa: PLW2901
                    op,
                    inputs=(op.inputs[0], *cached, *op.inputs[3:]),
                    attributes=MappingProxyType(attributes),
                )
            elif op.kind is OpKind.ELEMENTWISE:
                self._shorten_rows(op, tensors)
            operators.append(op)
        for op in operators:
            self._check_view(op, tensors)
        return replace(self._graph, tensors=MappingProxyType(tensors), operators=tuple(operators))

    def _shortened(self, tensor: Tensor, axis: int | None) -> Tensor:
        if axis is None:
            return tensor
        return replace(tensor, shape=(*tensor.shape[:axis], 1, *tensor.shape[axis + 1 :]))

    def _shorten_rows(self, op: Operator, tensors: dict[str, Tensor]) -> None:
        """A table with a row for each token gives the row of one; it is a view of its parameter."""
        rank = len(tensors[op.outputs[0]].shape)
        for t in op.inputs:
            axis = self._axes[op.outputs[0]] + len(tensors[t].shape) - rank
            views = t in self._constants and not tensors[t].is_parameter
            if views and axis >= 0 and tensors[t].shape[axis] == self.length:
                tensors[t] = self._shortened(tensors[t], axis)

    def _cached(
        self, op: Operator, tensor: str, tensors: dict[str, Tensor], operators: list[Operator]
    ) -> str:
        """The whole cache of keys or values after one token more."""
        name = f"{op.name}.cache_{'k' if tensor == op.inputs[1] else 'v'}"
        batch, _, width = tensors[tensor].shape
        each = self._element_bytes or tensors[tensor].element_bytes
        tensors[name] = Tensor(name, (batch, self._context + 1, width), each)
        attributes: dict[str, object] = {"page": self._cache.page}
        if shard_of(op) is Shard.HEADS:
            heads = integer(op, "kv_heads", 1)
            attributes |= {"shard": Shard.HEADS, "shard_parts": ((heads, width // heads),)}
        operators.append(Operator(name, OpKind.CACHE, (tensor,), (name,), MappingProxyType(attributes)))
        return name

    def _check_view(self, op: Operator, tensors: Mapping[str, Tensor]) -> None:
        """Raises InputError for a view whose share of its operands is another one than before."""
        if op.kind is not OpKind.VIEW or any(t in self._constants for t in (*op.inputs, *op.outputs)):
            return
        before = [sum(prod(self._graph.tensors[t].shape) for t in some) for some in (op.inputs, op.outputs)]
        after = [sum(prod(tensors[t].shape) for t in some) for some in (op.inputs, op.outputs)]
        if before[0] * after[1] != before[1] * after[0]:
            raise self._refusal(f"{op.name} mixes tokens with other dimensions")
