"""Shapes and shape data of every tensor at one batch, node by node in topological order.

Shape data (targets, axes, pads) is computed on the way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto, TensorProto, TypeProto, ValueInfoProto, helper, numpy_helper

from phaze.errors import InputError
from phaze.workload.onnx.batch import PROBE, Shape, batch_axis, batch_fault, keep_batch, resolve_reshape
from phaze.workload.onnx.fused_shapes import RESULT_SHAPES
from phaze.workload.onnx.infer import NodeInference
from phaze.workload.onnx.inputs import InputSizes
from phaze.workload.onnx.nodes import (
    FLOATING,
    SMALL,
    is_shape_query,
    node_attributes,
    node_label,
    operator_type,
)
from phaze.workload.onnx.read import OnnxGraph
from phaze.workload.onnx.values import EVALUATORS, FAULTS, Array

# Operators without shape inference in ONNX whose result is shaped like their first input.
SHAPE_KEEPING = frozenset({"MeanVarianceNormalization", "GroupNormalization"})


MOST_SCALES = 8
"""Numbers of a Resize's scales at most; longer real tensors say nothing about shapes."""


@dataclass
class Propagation:
    """One walk over the nodes at one batch; `reference` is the walk at the file's own batch."""

    graph: OnnxGraph
    batch: int
    inputs: InputSizes
    reference: Propagation | None = None
    types: dict[str, TypeProto] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    values: dict[str, Array] = field(default_factory=dict)
    before_batch: dict[str, int] = field(default_factory=dict)  # see keep_batch; absent: 1
    inference: NodeInference = field(init=False)

    def __post_init__(self) -> None:
        """Share what is known about nodes."""
        self.inference = self.reference.inference if self.reference else NodeInference(self.graph)

    def run(self) -> Propagation:
        """Fill types, shapes and values; returns itself."""
        self.declare()
        for node in self.graph.nodes:
            self.visit(node)
        return self

    def declare(self) -> None:
        """Begin with what is given: constants and inputs."""
        self.declare_constants()
        for value in self.graph.inputs:
            self._declare_input(value)

    def declare_constants(self) -> None:
        """Take in constants that are new."""
        for name, constant in self.graph.constants.items():
            if name not in self.types:
                self._declare(name, constant, "initializer")

    def visit(self, node: NodeProto) -> None:
        """Work out what one node makes."""
        self._infer(node)
        if self.reference and self.graph.is_live(node):
            self._check_batch(node, self.reference)
        self._evaluate(node)

    def _error(self, what: str) -> InputError:
        return InputError(f"{self.graph.path}: {what}")

    def _declare_input(self, value: ValueInfoProto) -> None:
        code = value.type.tensor_type.elem_type
        type_ = helper.make_tensor_type_proto(code, self.inputs.at(value.name, self.batch))
        self._declare(value.name, type_, "graph input")

    def _declare(self, name: str, type_: TypeProto, owner: str | NodeProto) -> None:
        shape = self.inference.shape(type_)
        if shape is None or min(shape, default=1) < 0 or (0 in shape and name in self.graph.live):
            maker = owner if isinstance(owner, str) else node_label(owner)
            if shape is None:
                raise self._error(f"the shape of {name!r} ({maker}) cannot be inferred")
            raise self._error(f"{name!r} ({maker}) would have shape {shape}")
        self.types[name] = type_
        self.shapes[name] = shape

    def _infer(self, node: NodeProto) -> None:
        if node.op_type == "Reshape" and not node.domain and len(node.input) > 1:
            found = {node.output[0]: self._reshape(node)}
        elif operator_type(node) in RESULT_SHAPES:
            found = self.inference.beyond_standard(node, self.types, self.shapes)
        else:
            found = self._standard(node)
        for name in filter(None, node.output):
            type_ = found.get(name, TypeProto())
            if not type_.tensor_type.HasField("shape") and node.op_type in SHAPE_KEEPING:
                type_ = self.types[node.input[0]]
            if name in self.graph.read:
                self._declare(name, type_, node)

    def _standard(self, node: NodeProto) -> dict[str, TypeProto]:
        names = [name for name in node.input if name]
        missing = [name for name in names if name not in self.types]
        if missing:
            raise self._error(f"{node_label(node)} reads {missing[0]!r}, which has no value")
        types = {name: self.types[name] for name in names}
        data = {name: value for name in names if (value := self._data(name)) is not None}
        if self.reference and self.graph.is_live(node):
            self._spell_batch(node, self.reference, types, data)
        what = "does not keep the batch" if self.reference else "has impossible inputs"
        return self.inference.results(node, types, data, what)

    def _spell_batch(
        self,
        node: NodeProto,
        reference: Propagation,
        types: dict[str, TypeProto],
        data: dict[str, TensorProto],
    ) -> None:
        """Where a constant holds the file's batch, put this walk's: a class token joined to every sample
        (Concat), the target of an Expand.
        """
        batched = [
            (batch_axis(reference.shapes[i], self.shapes[i]), self.shapes[i])
            for i in node.input
            if i in self.graph.live
        ]
        axis, shape = next((pair for pair in batched if pair[0] is not None), (None, ()))
        if axis is None:
            return
        grown = shape[axis]
        if node.op_type == "Concat":
            for name in (i for i in node.input if i not in self.graph.live):
                if len(self.shapes[name]) == len(shape) and self.shapes[name][axis] == reference.batch:
                    repeated = (*self.shapes[name][:axis], grown, *self.shapes[name][axis + 1 :])
                    code = self.types[name].tensor_type.elem_type
                    types[name] = helper.make_tensor_type_proto(code, repeated)
        elif node.op_type == "Expand" and (given := self.value(node.input[1])) is not None:
            target = given.copy()
            place = axis + len(target) - len(shape)
            if place >= 0 and target[place] == reference.shapes[node.input[0]][axis]:
                target[place] = grown
                data[node.input[1]] = numpy_helper.from_array(target, node.input[1])

    def _data(self, name: str) -> TensorProto | None:
        """Content of a small constant that can decide about shapes: whole numbers, and a few scales."""
        if name in self.values:
            return numpy_helper.from_array(self.values[name])
        content = self.graph.data.get(name)
        can_scale = content is not None and math.prod(content.dims) <= MOST_SCALES
        return content if can_scale or (content and content.data_type not in FLOATING) else None

    def value(self, name: str) -> Array | None:
        """Content of a small constant."""
        if name not in self.values and name in self.graph.data:
            try:
                self.values[name] = numpy_helper.to_array(self.graph.data[name])
            except FAULTS as error:
                raise self._error(f"the content of initializer {name!r} is damaged") from error
        return self.values.get(name)

    def _reshape(self, node: NodeProto) -> TypeProto:
        data, target = node.input[0], self.value(node.input[1])
        if target is None:
            raise self._error(f"the target of {node_label(node)} cannot be computed")
        sizes = [int(size) for size in target.ravel()]
        zero = bool(node_attributes(node).get("allowzero", 0))
        shape = resolve_reshape(self.shapes[data], sizes, allow_zero=zero)
        reference = self.reference
        if reference and data in self.graph.live:
            constant = np.array_equal(target, reference.values[node.input[1]])
            kept = keep_batch(
                (reference.shapes[data], self.shapes[data]),
                reference.shapes[node.output[0]],
                shape,
                file_batch=reference.batch,
                rewrite=constant,
                before_batch=self.before_batch.get(data, 1),
            )
            shape, self.before_batch[node.output[0]] = kept or (None, 1)
        if shape is None:
            what = "does not keep the batch" if reference else "does not fit"
            raise self._error(f"{node_label(node)} {what}: {self.shapes[data]} to {sizes}")
        return helper.make_tensor_type_proto(self.types[data].tensor_type.elem_type, shape)

    def _check_batch(self, node: NodeProto, reference: Propagation) -> None:
        """Raise InputError unless every sample stays apart from the others."""
        inputs = [name for name in node.input if name]
        axes = [
            batch_axis(reference.shapes[i], self.shapes[i]) if i in self.graph.live else None for i in inputs
        ]
        if all(axis is None for axis in axes):
            return
        fault = batch_fault(
            node, node_attributes(node), axes, len(self.shapes[inputs[0]]), self.graph.opset.get("", 1)
        )
        # One range for the whole batch is how activations are quantised, and no sample sees another's numbers.
        kept = node.output[:1] if node.op_type == "DynamicQuantizeLinear" else node.output
        for name in (o for o in kept if o in self.shapes):
            before, after = reference.shapes[name], self.shapes[name]
            try:
                axis = batch_axis(before, after)
            except ValueError as error:
                fault = str(error)
                continue
            if axis is None or after[axis] != before[axis] * PROBE:
                fault = fault or "its result does not grow with the batch"
            elif node.op_type != "Reshape":
                self.before_batch[name] = max(
                    (
                        self.before_batch.get(i, 1)
                        for i, a in zip(inputs, axes, strict=True)
                        if a is not None and self.shapes[i][a] == after[axis]
                    ),
                    default=1,
                )
            if node.op_type == "Flatten" and not fault:
                pair = (reference.shapes[inputs[0]], self.shapes[inputs[0]])
                order = self.before_batch.get(inputs[0], 1)
                kept = keep_batch(
                    pair, before, after, file_batch=reference.batch, rewrite=False, before_batch=order
                )
                fault = fault or (None if kept else "it flattens the batch")
        if fault:
            raise self._error(f"{node_label(node)} does not keep the batch: {fault}")

    def _evaluate(self, node: NodeProto) -> None:
        """Compute shape data, where the node makes some."""
        name = node.output[0]
        if name in self.graph.live or name not in self.shapes or math.prod(self.shapes[name]) > SMALL:
            return
        if is_shape_query(node):
            self.values[name] = self._queried(node)
        elif node.op_type in EVALUATORS:
            inputs = [self.value(i) if i else None for i in node.input]
            if any(value is None for i, value in zip(node.input, inputs, strict=True) if i):
                return
            try:
                self.values[name] = EVALUATORS[node.op_type](inputs, node_attributes(node))
            except FAULTS as error:
                raise self._error(f"{node_label(node)} cannot be computed: {error}") from error

    def _queried(self, node: NodeProto) -> Array:
        shape = self.shapes[node.input[0]]
        if node.op_type == "Size":
            return np.asarray(math.prod(shape), np.int64)
        bounds = node_attributes(node)
        end = bounds.get("end")
        return np.asarray(
            shape[int(str(bounds.get("start", 0))) : None if end is None else int(str(end))], np.int64
        )
