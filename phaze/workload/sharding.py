"""Tensor parallelism as in Megatron-LM: annotated operators are divided, collectives inserted.

A column-parallel product divides its result, a row-parallel one its contraction and needs a sum; the
input of a column-parallel product needs a sum of its gradient. Vocabularies are padded up to a multiple
of the width; key-value heads fewer than the width are repeated (Megatron-LM, arXiv 1909.08053).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType

from phaze.workload.ir import Operator, OpKind, Tensor
from phaze.workload.rules_structure import Role
from phaze.workload.steps import flag, integer

LOSS_STATISTICS_BYTES = 12  # maximum, sum of exponentials, target logit per token, fp32


class Shard(StrEnum):
    """How an operator takes part in tensor parallelism."""

    NONE = "none"  # replicated
    COLUMN = "column"  # divided result
    ROW = "row"  # divided contraction, summed result
    HEADS = "heads"  # divided by attention heads
    VOCAB = "vocab"  # divided vocabulary: gather, logits, loss


def shard_of(op: Operator) -> Shard:
    """Sharding role of an operator."""
    return Shard(str(op.attributes.get("shard", Shard.NONE)))


def divides_output(op: Operator) -> bool:
    """Whether the operator's outputs are divided over the group."""
    role = shard_of(op)
    if role is Shard.VOCAB:
        return op.kind is OpKind.MATMUL
    return role in (Shard.COLUMN, Shard.HEADS)


def local_size(parts: Iterable[tuple[int, int]], width: int) -> int:
    """Elements of a divided axis on one device: each part's units split, rounded up."""
    return sum(-(-units // width) * size for units, size in parts)


class Sharder:
    """Rewrites the operators of one layer for one width.

    `divided` holds the names of tensors that are divided, among them those that enter from outside.
    """

    def __init__(self, tensors: Mapping[str, Tensor], width: int) -> None:
        """Start with the undivided tensors of the layer and the number of devices."""
        self.tensors = dict(tensors)
        self.operators: list[Operator] = []
        self._width = width
        self._divided: set[str] = set()
        self._copies: dict[str, str] = {}

    def enter(self, producer: Operator) -> None:
        """Note the outputs of an operator of an earlier layer, so that their division is known."""
        if divides_output(producer):
            self._divide_outputs(producer)

    def add(self, op: Operator) -> None:
        """Append an operator in its divided form, with the collectives around it."""
        role = shard_of(op)
        self._check(op, role)
        inputs = op.inputs
        if role in (Shard.COLUMN, Shard.VOCAB) and op.kind is OpKind.MATMUL:
            inputs = (self._copy(op.inputs[0], op.name), *op.inputs[1:])
        if divides_output(op):
            self._divide_outputs(op)
        self._divide_parameters(op, role)
        attributes = dict(op.attributes)
        if op.kind is OpKind.ATTENTION and role is Shard.HEADS:
            heads, kv_heads = integer(op, "heads", 1), integer(op, "kv_heads", 1)
            attributes |= {"heads": -(-heads // self._width), "kv_heads": -(-kv_heads // self._width)}
        self.operators.append(replace(op, inputs=inputs, attributes=MappingProxyType(attributes)))
        if role is Shard.ROW or (role is Shard.VOCAB and op.kind in (OpKind.EMBEDDING, OpKind.LOSS)):
            self._reduce(op)

    def _check(self, op: Operator, role: Shard) -> None:
        """A divided tensor may only enter an operator that says what to do with it."""
        stray = [t for t in op.inputs if t in self._divided]
        if stray and role is Shard.NONE:
            msg = f"operator {op.name!r} reads divided tensor {stray[0]!r} without a sharding role"
            raise ValueError(msg)

    def _divide_outputs(self, op: Operator) -> None:
        axis = integer(op, "shard_axis", -1)
        for i, name in enumerate(op.outputs):
            shape = list(self.tensors[name].shape)
            shape[axis] = local_size(self._parts(op, i, shape[axis]), self._width)
            self.tensors[name] = replace(self.tensors[name], shape=tuple(shape))
            self._divided.add(name)

    @staticmethod
    def _parts(op: Operator, output: int, size: int) -> tuple[tuple[int, int], ...]:
        """Units of the divided axis of an output; by default every element is one."""
        parts = op.attributes.get("shard_parts")
        if not isinstance(parts, tuple):
            return ((size, 1),)
        return (parts[output],) if len(op.outputs) > 1 else parts

    def _divide_parameters(self, op: Operator, role: Shard) -> None:
        if role is Shard.NONE:
            return
        if op.kind is OpKind.EMBEDDING:
            self._resize(op.inputs[1], 0, local_size(((self._size(op.inputs[1], 0), 1),), self._width))
        elif op.kind is OpKind.MATMUL and self.tensors[op.inputs[1]].is_parameter:
            inner, outer = (-1, -2) if flag(op, "transpose_b") else (-2, -1)
            if role is Shard.ROW:
                self._resize(op.inputs[1], inner, self._size(op.inputs[0], -1))
            else:
                self._resize(op.inputs[1], outer, self._size(op.outputs[0], -1))
        elif op.kind is OpKind.ELEMENTWISE:
            for name in op.inputs:
                if self.tensors[name].is_parameter and self._size(name, -1) > 1:
                    self._resize(name, -1, self._size(op.outputs[0], -1))

    def _size(self, name: str, axis: int) -> int:
        return self.tensors[name].shape[axis]

    def _resize(self, name: str, axis: int, size: int) -> None:
        shape = list(self.tensors[name].shape)
        shape[axis] = size
        self.tensors[name] = replace(self.tensors[name], shape=tuple(shape))

    def _copy(self, tensor: str, reader: str) -> str:
        """Megatron's f: identity forward, all-reduce of the gradient; once per tensor."""
        if tensor not in self._copies:
            self._copies[tensor] = self._collective(f"{reader}.copy", tensor, f"{reader}.copy", Role.COPY)
        return self._copies[tensor]

    def _reduce(self, op: Operator) -> None:
        """Megatron's g: the operator makes a partial sum, the collective takes over its name."""
        out = op.outputs[0]
        partial = f"{out}.partial"
        self.tensors[partial] = replace(self.tensors[out], name=partial)
        if op.kind is OpKind.LOSS:
            self.tensors[partial] = replace(self.tensors[partial], element_bytes=LOSS_STATISTICS_BYTES)
        self.operators[-1] = replace(self.operators[-1], outputs=(partial,))
        self._collective(f"{op.name}.reduce", partial, out, Role.REDUCE)

    def _collective(self, name: str, source: str, target: str, role: Role) -> str:
        self.tensors[target] = replace(self.tensors[source], name=target)
        attributes = MappingProxyType({"role": role})
        self.operators.append(Operator(name, OpKind.ALL_REDUCE, (source,), (target,), attributes))
        return target
