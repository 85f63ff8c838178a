"""Constants of a graph: their types, and the content of those small enough to be shape data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from onnx import (
    AttributeProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    TypeProto,
    helper,
    numpy_helper,
)

from phaze.workload.onnx.bodies import without_content
from phaze.workload.onnx.nodes import is_small, operator_type


@dataclass(frozen=True)
class Constants:
    """`types` of all constants by name, `data` of the small ones among them."""

    types: dict[str, TypeProto] = field(default_factory=dict)
    data: dict[str, TensorProto] = field(default_factory=dict)

    def add(self, tensors: Iterable[TensorProto], nodes: Iterable[NodeProto]) -> list[NodeProto]:
        """Take in stored tensors and Constant nodes; returns the nodes that are none."""
        dense, others = list(tensors), []
        for node in nodes:
            if operator_type(node) != "Constant":
                others.append(node)
            elif node.attribute and node.output:
                dense.append(_constant(node.attribute[0], node.output[0]))
        for tensor in dense:
            self.types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            if is_small(tensor):
                self.data[tensor.name] = tensor
        return others


def _constant(attribute: AttributeProto, name: str) -> TensorProto:
    """The tensor of a Constant node, whichever way it is written."""
    value = helper.get_attribute_value(attribute)
    if isinstance(value, SparseTensorProto):
        tensor = without_content(value)
        tensor.name = name
        return tensor
    if isinstance(value, TensorProto):
        tensor = TensorProto()
        tensor.CopyFrom(value)
        tensor.name = name
        return tensor
    if attribute.type in {AttributeProto.STRING, AttributeProto.STRINGS}:
        return TensorProto(name=name, data_type=TensorProto.STRING, data_location=TensorProto.EXTERNAL)
    if attribute.type in {AttributeProto.FLOAT, AttributeProto.FLOATS}:
        return numpy_helper.from_array(np.asarray(value, np.float32), name)
    return numpy_helper.from_array(np.asarray(value), name)
