"""A file in the making: nodes, shapes that grow with the batch, and constants that hold nothing but their shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from phaze.workload.operators.operator_graph import Operator, OperatorGraph

BATCH = "batch"
Shape = tuple[int, ...]


class NotInOnnx(Exception):  # noqa: N818 - no fault: what an operator is called that the standard does not have
    """An operator that the standard has no word for; says which."""


@dataclass
class Draft:
    """Nodes of one model.

    `one` and `two`: the same graph for one sample and for two, which tell where the batch is; `real`: the type of real
    numbers; `places`: tensors of whole numbers.

    A weight is a `ConstantOfShape`: any tool opens the file, and it stays small.
    """

    one: OperatorGraph
    two: OperatorGraph
    real: int
    places: frozenset[str]
    nodes: list[NodeProto] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    """What starts from zeros, as states do: further inputs of the file."""
    _made: set[str] = field(default_factory=set)

    def shape(self, name: str) -> Shape:
        """Shape of a tensor for one sample."""
        return self.one.tensors[name].shape

    def batch_axes(self, name: str) -> list[int]:
        """Axes that grow with the batch. Raises NotInOnnx where one does not grow in proportion."""
        one, two = self.one.tensors[name].shape, self.two.tensors[name].shape
        if len(one) != len(two) or any(b not in (a, 2 * a) for a, b in zip(one, two, strict=True)):
            raise NotInOnnx("a shape that does not grow in proportion to the batch")
        return [i for i, (a, b) in enumerate(zip(one, two, strict=True)) if a != b]

    def target(self, name: str) -> list[int]:
        """The shape as Reshape takes it: -1 where it grows. Raises NotInOnnx where more than one axis does."""
        axes = self.batch_axes(name)
        if len(axes) > 1:
            raise NotInOnnx("a view along two axes of the batch")
        return [-1 if i in axes else size for i, size in enumerate(self.shape(name))]

    def value_info(self, name: str, element_type: int) -> ValueInfoProto:
        """Name, type and shape of a tensor; an axis that is the batch says so."""
        axes = self.batch_axes(name)
        sizes = [
            size if i not in axes else BATCH if size == 1 else f"{size}*{BATCH}"
            for i, size in enumerate(self.shape(name))
        ]
        return helper.make_tensor_value_info(name, element_type, sizes)

    def node(
        self,
        kind: str,
        inputs: Iterable[str],
        output: str | Sequence[str],
        **attributes: Any,  # noqa: ANN401 - what attributes of ONNX may hold
    ) -> str:
        """Append a node; returns its first output."""
        outputs = [output] if isinstance(output, str) else list(output)
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, outputs[0], **attributes))
        return outputs[0]

    def whole_numbers(self, name: str, content: Sequence[int]) -> str:
        """A constant of whole numbers, as shapes and axes are."""
        return self._constant(name, numpy_helper.from_array(np.asarray(content, np.int64), name))

    def whole_number(self, name: str, value: int) -> str:
        """A constant of one whole number."""
        return self._constant(name, helper.make_tensor(name, TensorProto.INT64, [], [value]))

    def as_real(self, tensor: str, name: str) -> str:
        """A tensor as real numbers."""
        return self.node("Cast", [tensor], name, to=self.real) if tensor in self.places else tensor

    def as_places(self, tensor: str, name: str) -> str:
        """A tensor as whole numbers."""
        return tensor if tensor in self.places else self.node("Cast", [tensor], name, to=TensorProto.INT64)

    def once(self, kind: str, inputs: Iterable[str], output: str, **attributes: object) -> str:
        """Append a node unless its output is there already."""
        if output not in self._made:
            self._made.add(output)
            self.node(kind, inputs, output, **attributes)
        return output

    def number(self, name: str, value: float) -> str:
        """A constant of one real number."""
        return self._constant(name, helper.make_tensor(name, self.real, [], [value]))

    def zeros(
        self, name: str, shape: Sequence[int], element_type: int | None = None, value: float = 0.0
    ) -> str:
        """A constant of which only the shape matters."""
        if name not in self._made:
            self._made.add(name)
            size = self.whole_numbers(f"{name}/shape", shape)
            kind = self.real if element_type is None else element_type
            self.node("ConstantOfShape", [size], name, value=helper.make_tensor("value", kind, [1], [value]))
        return name

    def _constant(self, name: str, tensor: TensorProto) -> str:
        if name not in self._made:
            self._made.add(name)
            self.node("Constant", [], name, value=tensor)
        return name

    def batch_size(self) -> str:
        """The batch as a tensor of one number, from the first input that has it."""
        name = "batch size"
        if name not in self._made:
            self._made.add(name)
            source = next(t for t in self.one.inputs if self.batch_axes(t))
            axis = self.batch_axes(source)[0]
            self.node("Shape", [source], f"{name}/axis", start=axis, end=axis + 1)
            per_sample = self.whole_numbers(f"{name}/per sample", [self.shape(source)[axis]])
            self.node("Div", [f"{name}/axis", per_sample], name)
        return name

    def positions(self, length: int) -> str:
        """Numbers 0, 1, ... of `length` positions, for every sample."""
        name = f"positions of {length}"
        if name not in self._made:
            self._made.add(name)
            row = self.whole_numbers(f"{name}/row", range(length))
            one = self.whole_numbers(f"{name}/length", [length])
            self.node("Concat", [self.batch_size(), one], f"{name}/shape", axis=0)
            self.node("Expand", [row, f"{name}/shape"], name)
        return name

    def reshape(self, tensor: str, shape: Sequence[int], name: str) -> str:
        """A tensor in another shape."""
        return self.node("Reshape", [tensor, self.whole_numbers(f"{name}/shape", shape)], name)

    def rows(self, tensor: str, name: str) -> tuple[str, int]:
        """A tensor as (batch or 1, all else), and how much that is."""
        size = prod(self.shape(tensor))
        return self.reshape(tensor, [-1, size], name), size

    def transposed(self, tensor: str, name: str) -> str:
        """A tensor with its last two axes exchanged."""
        rank = len(self.shape(tensor))
        return self.node("Transpose", [tensor], name, perm=[*range(rank - 2), rank - 1, rank - 2])


def integer(op: Operator, attribute: str, default: int) -> int:
    """An attribute that is a whole number."""
    return int(str(op.attributes.get(attribute, default)))
