"""Shapes and shape data of every tensor, node by node in topological order, and as functions of the batch.

ONNX's own inference is applied to single nodes, so no stale annotation of a file and no serialisation limit
can interfere. Models repeat themselves: what was asked before is remembered.

Shape data (targets, axes, pads) is computed on the way.

The shapes are worked out at the file's own batch and at a multiple of it; what differs is the batch.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto, TensorProto, TypeProto, ValueInfoProto, checker, defs, helper, numpy_helper
from onnx.shape_inference import InferenceError, infer_node_outputs

from phaze.errors import InputError
from phaze.workload.onnx.batch_axes import PROBE, Shape, batch_axis, batch_fault, keep_batch, resolve_reshape
from phaze.workload.onnx.fused_shapes import RESULT_SHAPES
from phaze.workload.onnx.input_dimensions import InputSizes
from phaze.workload.onnx.onnx_graph import OnnxGraph
from phaze.workload.onnx.onnx_nodes import (
    FLOATING,
    SMALL,
    is_shape_query,
    node_attributes,
    node_label,
    operator_type,
)
from phaze.workload.onnx.shape_data import EVALUATORS, FAULTS, Array

Types = Mapping[str, TypeProto]


class NodeInference:
    """Inference for the nodes of one file."""

    def __init__(self, graph: OnnxGraph) -> None:
        """Know the opsets of the file."""
        self._path = graph.path
        self._opset = {"": graph.opset.get("ai.onnx", 1), **graph.opset}
        self._imports = [helper.make_opsetid(domain, version) for domain, version in graph.opset.items()]
        self._known: dict[Hashable, dict[int, TypeProto]] = {}
        self._shapes: dict[bytes, Shape | None] = {}

    def shape(self, type_: TypeProto) -> Shape | None:
        """Shape of a tensor's type; None where a dimension or the rank is unknown."""
        key = type_.SerializeToString(deterministic=True)
        if key not in self._shapes:
            dims = type_.tensor_type.shape.dim
            known = type_.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims)
            self._shapes[key] = tuple(dim.dim_value for dim in dims) if known else None
        return self._shapes[key]

    def results(
        self, node: NodeProto, types: Types, data: Mapping[str, TensorProto], otherwise: str
    ) -> dict[str, TypeProto]:
        """Types of the results by name, from the types of the operands and what is known of their content.

        Raises InputError, which says `otherwise`, for operands that do not fit.
        """
        key = (
            operator_type(node),
            tuple(bool(name) for name in node.output),
            tuple(attribute.SerializeToString(deterministic=True) for attribute in node.attribute),
            tuple(types[name].SerializeToString(deterministic=True) if name else b"" for name in node.input),
            tuple(
                data[name].SerializeToString(deterministic=True) if name in data else b""
                for name in node.input
            ),
        )
        if key not in self._known:
            found = self._inferred(node, types, data, otherwise)
            places = {name: i for i, name in enumerate(node.output)}
            self._known[key] = {places[name]: type_ for name, type_ in found.items()}
        return {node.output[place]: type_ for place, type_ in self._known[key].items()}

    def _inferred(
        self, node: NodeProto, types: Types, data: Mapping[str, TensorProto], otherwise: str
    ) -> Types:
        domain = "" if node.domain == "ai.onnx" else node.domain
        try:
            schema = defs.get_schema(node.op_type, self._opset.get(domain, self._opset[""]), domain)
            found: Types = infer_node_outputs(
                schema, node, dict(types), dict(data), opset_imports=self._imports
            )
        except (defs.SchemaError, KeyError) as error:
            msg = f"{self._path}: {node_label(node)} has no known definition ({operator_type(node)})"
            raise InputError(msg) from error
        except (InferenceError, checker.ValidationError, RuntimeError, ValueError) as error:
            reason = str(error).removeprefix("[ShapeInferenceError] ").partition("\n")[0].rstrip(".")
            raise InputError(f"{self._path}: {node_label(node)} {otherwise}: {reason}") from error
        return found

    def beyond_standard(
        self, node: NodeProto, types: Types, shapes: Mapping[str, Shape]
    ) -> dict[str, TypeProto]:
        """Results of an operator that ONNX does not define; their type is that of the first real operand.

        Raises InputError for operands that do not fit.
        """
        codes = [types[name].tensor_type.elem_type for name in node.input if name in types]
        code = next((code for code in codes if code in FLOATING), TensorProto.FLOAT)
        operands = [shapes.get(name) for name in node.input]
        try:
            made = RESULT_SHAPES[operator_type(node)](operands, node_attributes(node))
        except FAULTS as error:
            msg = f"{self._path}: {node_label(node)} has impossible inputs: {error}"
            raise InputError(msg) from error
        return {
            name: helper.make_tensor_type_proto(code, shape)
            for name, shape in zip(node.output, made, strict=False)
        }


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


@dataclass(frozen=True, slots=True)
class Extent:
    """Shape of a tensor at batch 1, the axis that grows with the batch, and the ONNX element type."""

    shape: Shape
    batch_axis: int | None
    element_type: int

    def at(self, batch: int) -> Shape:
        """Shape at a batch."""
        axis = self.batch_axis
        if axis is None:
            return self.shape
        return (*self.shape[:axis], self.shape[axis] * batch, *self.shape[axis + 1 :])

    @property
    def is_floating(self) -> bool:
        """Whether the elements are real numbers rather than integers, booleans or text."""
        return self.element_type in FLOATING


def infer_extents(graph: OnnxGraph, inputs: InputSizes) -> tuple[dict[str, Extent], dict[str, Array]]:
    """Extent of every tensor, and the shape data that does not depend on the batch.

    Raises InputError for inconsistent shapes, and for a node that does not keep the batch.
    """
    at_file = Propagation(graph, inputs.batch, inputs).run()
    at_probe = Propagation(graph, inputs.batch * PROBE, inputs, reference=at_file).run()
    extents = {name: _extent(graph, name, at_file, at_probe) for name in at_file.types}
    data = {name: value for name, value in at_file.values.items() if _equal(value, at_probe.values.get(name))}
    return extents, data


def _equal(left: Array, right: Array | None) -> bool:
    return right is not None and np.array_equal(left, right)


def _extent(graph: OnnxGraph, name: str, at_file: Propagation, at_probe: Propagation) -> Extent:
    shape, code = at_file.shapes[name], at_file.types[name].tensor_type.elem_type
    try:
        axis = batch_axis(shape, at_probe.shapes[name])
    except ValueError:  # a constant built from several dimensions of the batch; live tensors are checked
        axis = None
    if axis is None:
        return Extent(shape, None, code)
    if shape[axis] % at_file.batch:
        raise InputError(f"{graph.path}: dimension {axis} of {name!r} is not a multiple of the batch")
    return Extent((*shape[:axis], shape[axis] // at_file.batch, *shape[axis + 1 :]), axis, code)
