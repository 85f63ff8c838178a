"""Tensor parallelism as in Megatron-LM, with sequence parallelism between the divided products on demand.

A column-parallel product divides its result, a row-parallel one its contraction and needs a sum; the
input of a column-parallel product needs a sum of its gradient. Vocabularies are padded up to a multiple
of the width; key-value heads fewer than the width are repeated (Megatron-LM, arXiv 1909.08053). Inside a
mixture of experts the sums wait until tokens are back in order: they are `chosen` times smaller there.

With sequence parallelism what lies between (norms, dropouts, residuals) is divided along the tokens: the
sum becomes a reduce-scatter and the input is gathered, again in backward, for only one's own tokens are
kept (Korthikanti et al., arXiv 2205.05198). Parameters there get partial gradients, whose sum over the
group once per iteration is left out: vectors, and matrices of products that are not divided.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from phaze.workload.operators.collective_rules import Role
from phaze.workload.operators.operator_graph import Operator, OpKind
from phaze.workload.operators.operator_steps import flag, integer
from phaze.workload.parallel_degrees import Group
from phaze.workload.sharding.layer_rewriter import Part, Rewriter
from phaze.workload.sharding.shard_roles import (
    Shard,
    divides_output,
    local_size,
    needs_whole_inputs,
    shard_of,
    sums_output,
)

_BY_HEADS = {OpKind.ATTENTION: ("heads", "kv_heads"), OpKind.RECURRENCE: ("heads", "key_heads")}
"""Attributes that count heads."""

LOSS_STATISTICS_BYTES = 12  # maximum, sum of exponentials, target logit per token, fp32


class TensorParallel(Rewriter):
    """Divides annotated operators over heads, widths and vocabulary; with `sequence` the others by tokens."""

    def __init__(self, part: Part, group: Group, *, sequence: bool) -> None:
        """Note how the inputs of the layer are divided already."""
        super().__init__(part, group)
        self._sequence = sequence
        self._divided: set[str] = set()
        for maker in part.makers:
            self._divide_outputs(maker)

    def add(self, op: Operator) -> None:
        """Append an operator in its divided form, with the collectives around it."""
        role = shard_of(op)
        self._check(op, role)
        partial = self._partial(op) if sums_output(op) else None
        self._divide_outputs(op)
        self._divide_parameters(op, role)
        local = replace(op, inputs=self._inputs(op, role), attributes=self._attributes(op))
        if partial is None:
            self.operators.append(local)
            return
        self.operators.append(replace(local, outputs=(partial,)))
        what = Role.SCATTER if self.has_own_tokens(op.outputs[0]) else Role.REDUCE
        self.collective(f"{op.name}.{what}", what, partial, op.outputs[0], **_scaled(op))

    def _check(self, op: Operator, role: Shard) -> None:
        """A divided tensor may only enter an operator that says what to do with it."""
        stray = [t for t in op.inputs if t in self._divided]
        if stray and role is Shard.NONE:
            msg = f"operator {op.name!r} reads divided tensor {stray[0]!r} without a sharding role"
            raise ValueError(msg)

    def _inputs(self, op: Operator, role: Shard) -> tuple[str, ...]:
        """Operands as the divided operator needs them."""
        if needs_whole_inputs(op):
            return tuple(self._entering(t, **_scaled(op)) for t in op.inputs)
        if role is Shard.NONE and self.has_own_tokens(op.outputs[0]):
            return self.own_tokens(op)
        return tuple(self.gathered(t) for t in op.inputs)

    def _entering(self, tensor: str, **more: object) -> str:
        """Megatron's f at the way into a divided region: once per tensor."""
        if tensor in self._divided or tensor in self.part.constants or tensor in self.part.experts:
            return tensor
        if self.has_own_tokens(tensor):
            return self.gathered(tensor, **more)
        name = f"{tensor}.copy"
        if name not in self.part.tensors:
            self.collective(name, Role.COPY, tensor, self.part.twin(name, tensor))
        return name

    def _partial(self, op: Operator) -> str:
        """Name of each device's part of a sum; the sum keeps the name."""
        partial = self.part.twin(f"{op.outputs[0]}.partial", op.outputs[0])
        if op.kind is OpKind.LOSS:
            self.part.tensors[partial] = replace(
                self.part.tensors[partial], element_bytes=LOSS_STATISTICS_BYTES
            )
        return partial

    def _divide_outputs(self, op: Operator) -> None:
        """Divide by heads or width; outside divided regions by tokens where they are divided there."""
        outside = shard_of(op) is Shard.NONE or (sums_output(op) and op.kind is not OpKind.LOSS)
        for i, name in enumerate(op.outputs):
            if name not in self.part.tensors:
                continue
            if divides_output(op):
                axis = integer(op, "shard_axis", -1)
                parts = _parts(op, i, self.part.size(name, axis))
                self.part.resize(name, axis, local_size(parts, self.group.size))
                self._divided.add(name)
            elif self._sequence and outside and name in self.part.tokens:
                self.divide_tokens(name)

    def _attributes(self, op: Operator) -> MappingProxyType[str, object]:
        """Attention counts the heads of one device; a product knows which of its tensors the group exchanges."""
        attributes = dict(op.attributes)
        if op.kind is OpKind.MATMUL:
            exchanged = {"gathers_input": op.inputs[0], "scatters_result": op.outputs[0]}
            attributes |= {name: True for name, tensor in exchanged.items() if self.has_own_tokens(tensor)}
        if op.kind in _BY_HEADS and shard_of(op) is Shard.HEADS:
            for heads in _BY_HEADS[op.kind]:
                attributes[heads] = -(-integer(op, heads, 1) // self.group.size)
        return MappingProxyType(attributes)

    def _divide_parameters(self, op: Operator, role: Shard) -> None:
        """Weights follow the divided operands and results."""
        part = self.part
        if role is Shard.NONE:
            return
        if op.kind is OpKind.EMBEDDING:
            part.resize(op.inputs[1], 0, -(-part.size(op.inputs[1], 0) // self.group.size))
        elif op.kind is OpKind.MATMUL and part.tensors[op.inputs[1]].is_parameter:
            inner, outer = (-1, -2) if flag(op, "transpose_b") else (-2, -1)
            if integer(op, "shard_axis", -1) == 0:  # a matrix for every head
                part.resize(op.inputs[1], 0, part.size(op.outputs[0], 0))
            elif role is Shard.ROW:
                part.resize(op.inputs[1], inner, part.size(op.inputs[0], -1))
            else:
                part.resize(op.inputs[1], outer, part.size(op.outputs[0], -1))
        elif op.kind is OpKind.ELEMENTWISE:
            for name in op.inputs:
                if part.tensors[name].is_parameter and part.size(name, -1) > 1:
                    part.resize(name, -1, part.size(op.outputs[0], -1))


def _scaled(op: Operator) -> dict[str, object]:
    """Gathers of what a product in few bits reads move it scaled already."""
    return {key: value for key, value in op.attributes.items() if key == "recipe"}


def _parts(op: Operator, output: int, size: int) -> tuple[tuple[int, int], ...]:
    """Units of the divided axis of an output; by default every element is one."""
    parts = op.attributes.get("shard_parts")
    if not isinstance(parts, tuple):
        return ((size, 1),)
    return (parts[output],) if len(op.outputs) > 1 else parts
