"""Base of the operator converters: the operands of a node as tensors of the operator graph."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from phaze.errors import InputError
from phaze.workload.onnx.batch_axes import Shape
from phaze.workload.onnx.onnx_graph import OnnxGraph
from phaze.workload.onnx.onnx_nodes import node_attributes, node_label
from phaze.workload.onnx.shape_data import Array
from phaze.workload.onnx.shape_inference import Extent
from phaze.workload.operators.operator_graph import GraphBuilder, OpKind

FLOAT_BYTES = 2  # bf16, whatever the file stores (definitions.md, training numerics)

# Constant operators that only rename, rearrange or make real all elements of a parameter.
LAYOUT = frozenset(
    {"Identity", "Cast", "DequantizeLinear", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose"}
)

GENERATED = frozenset({"Shape", "Size", "Range", "Sin", "Cos", "Trilu", "EyeLike", "Where"})
"""Constant operators whose result holds nothing that is trained: sizes, rotary tables, masks."""


@dataclass
class Lowering:
    """One translation of an ONNX graph at one batch into an operator graph."""

    graph: OnnxGraph
    extents: Mapping[str, Extent]
    values: Mapping[str, Array]
    batch: int
    builder: GraphBuilder
    makers: Mapping[str, NodeProto] = field(init=False)
    declared: dict[str, Shape] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Index the nodes by what they make."""
        self.makers = {name: node for node in self.graph.nodes for name in node.output if name}

    def shape(self, name: str) -> Shape:
        """Shape of an ONNX tensor at this batch."""
        return self.extents[name].at(self.batch)

    def element_bytes(self, name: str) -> int:
        """Bytes per element: bf16 for real numbers, the file's own size for integers and booleans."""
        extent = self.extents[name]
        if extent.is_floating:
            return FLOAT_BYTES
        return int(np.dtype(helper.tensor_dtype_to_np_dtype(extent.element_type)).itemsize)

    def scalar(self, name: str) -> float | None:
        """The number a one-element constant holds, if it is known."""
        value = self.values.get(name)
        if value is None and name in self.graph.data:
            value = numpy_helper.to_array(self.graph.data[name])
        return float(value.item()) if value is not None and value.size == 1 else None

    def is_number(self, name: str) -> bool:
        """Whether a tensor is a constant of one element."""
        return name not in self.graph.live and math.prod(self.extents[name].shape) == 1

    def operand(self, name: str) -> str | None:
        """The tensor that a node's input stands for, None for a constant that is no parameter.

        Not parameters are numbers of a formula (one element), integers and booleans, masks, tables of
        sines, and what is generated in the shape of the batch: nothing in them is trained.
        """
        if name in self.graph.live:
            return name
        extent = self.extents[name]
        if not extent.is_floating or math.prod(extent.shape) == 1 or not self._is_trained(name):
            return None
        selected = self._selected(name)
        return self.parameter(name) if selected is None and extent.batch_axis is None else selected

    def _is_trained(self, name: str) -> bool:
        """Whether a constant is stored, or computed from something stored that is no mask."""
        maker = self.makers.get(name)
        if maker is None:
            stored = name in self.graph.constants and math.prod(self.extents[name].shape) > 1
            return stored and self.extents[name].is_floating and name not in self.graph.masks
        if maker.op_type in GENERATED:
            return False
        if maker.op_type == "DequantizeLinear":
            return math.prod(self.extents[name].shape) > 1
        # A weight may be written as a constant of its shape, by files that leave the numbers out.
        return maker.op_type == "ConstantOfShape" or any(self._is_trained(i) for i in maker.input if i)

    def _selected(self, name: str) -> str | None:
        """A constant as a view of the parameter that it selects from or repeats, in whatever layout."""
        if self.extents[name].batch_axis is not None:
            return self._view(name, {"Expand", "Tile"})
        root = self.root(name)
        selected = self._view(root, {"Gather", "Slice"})
        if selected is not None and root != name and name not in self.declared:
            self.declared[name] = self.shape(name)
            self.builder.add(name, OpKind.VIEW, [root], self.shape(name), FLOAT_BYTES)
        return None if selected is None else name

    def single_bias(self, node: NodeProto) -> str | None:
        """The bias of a product with one result: a stored row of one number, added to a last axis of one."""
        stored = [name for name in node.input if name not in self.graph.live]
        if len(stored) != 1 or self.extents[stored[0]].shape != (1,) or not self._is_stored(stored[0]):
            return None
        product = self.makers.get(next(name for name in node.input if name != stored[0]))
        return self.parameter(stored[0]) if product is not None and product.op_type == "MatMul" else None

    def _is_stored(self, name: str) -> bool:
        """Whether a constant of real numbers lies in the file, perhaps as its shape alone."""
        maker = self.makers.get(name)
        stored = maker is None or maker.op_type == "ConstantOfShape"
        return stored and self.extents[name].is_floating

    def _view(self, name: str, operators: Collection[str]) -> str | None:
        """A constant as a view of the parameter it repeats or selects from (class token, positions)."""
        maker = self.makers.get(name)
        if maker is None or maker.op_type not in operators:
            return None
        source = self.operand(maker.input[0])
        if source is not None and name not in self.declared:
            self.declared[name] = self.shape(name)
            self.builder.add(name, OpKind.VIEW, [source], self.shape(name), FLOAT_BYTES)
        return name if source is not None else None

    def root(self, name: str) -> str:
        """The constant whose elements a constant holds, seen through changes of layout."""
        while (node := self.makers.get(name)) is not None and node.op_type in LAYOUT:
            if math.prod(self.extents[node.input[0]].shape) != math.prod(self.extents[name].shape):
                break
            name = node.input[0]
        return name

    def parameter(self, name: str, shape: Shape | None = None) -> str:
        """Declare a constant as a parameter, once, whatever layouts the file gives it.

        A second use in another layout (tied weights) is a view of the first.
        """
        root = self.root(name)
        shape = self.extents[name].shape if shape is None else shape
        if self.declared.setdefault(root, shape) == shape:
            return self.builder.parameter(root, shape, self.element_bytes(root))
        view = f"{root}.as_{'x'.join(map(str, shape))}"
        if view not in self.declared:
            self.declared[view] = shape
            self.builder.add(view, OpKind.VIEW, [root], shape, self.element_bytes(root))
        return view

    def tensor(self, name: str) -> str:
        """An input that must be an activation or a parameter, whatever its type and rank."""
        return name if name in self.graph.live else self.parameter(name)

    def operands(self, node: NodeProto) -> list[str]:
        """Activations and parameters among the inputs of a node, in order."""
        found = (self.operand(name) for name in node.input if name)
        return [name for name in found if name is not None]

    def orders(self, node: NodeProto) -> dict[str, object]:
        """The attribute of a step that hides what comes later, where a constant of the node does so."""
        return {} if self.graph.ordered.isdisjoint(node.input) else {"causal": True}

    def emit(self, node: NodeProto, kind: OpKind, inputs: list[str], **attributes: object) -> None:
        """Append the operator that makes the first output of a node."""
        name = node.output[0]
        self.builder.add(name, kind, inputs, self.shape(name), self.element_bytes(name), **attributes)

    def error(self, node: NodeProto, what: str) -> InputError:
        """An error that names the file and the node."""
        return InputError(f"{self.graph.path}: {node_label(node)} {what}")

    def attributes(self, node: NodeProto) -> dict[str, object]:
        """Attributes of a node."""
        return node_attributes(node)
