"""Shapes and shape data of every tensor at one batch, node by node in topological order.

ONNX's own inference is applied to single nodes, so no stale annotation of the file and no
serialisation limit can interfere; shape data (targets, axes, pads) is computed on the way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto, TensorProto, TypeProto, ValueInfoProto, checker, defs, helper, numpy_helper
from onnx.shape_inference import InferenceError, infer_node_outputs

from phaze.errors import InputError
from phaze.workload.onnx.batch import PROBE, Shape, batch_axis, batch_fault, keep_batch, resolve_reshape
from phaze.workload.onnx.nodes import SMALL, is_shape_query, node_attributes, node_label, operator_type
from phaze.workload.onnx.read import OnnxGraph
from phaze.workload.onnx.values import EVALUATORS, FAULTS, Array

# Operators without shape inference in ONNX whose result is shaped like their first input.
SHAPE_KEEPING = frozenset({"MeanVarianceNormalization", "GroupNormalization"})


def dimensions(value: ValueInfoProto) -> list[int | str] | None:
    """Sizes of a graph input, a symbolic one as its name; None if it is no tensor of known rank."""
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        return None
    sizes: list[int | str] = []
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value != -1:  # some exporters write -1 for "any"
            sizes.append(dim.dim_value)
        else:
            sizes.append(dim.dim_param or f"{value.name}[{axis}]")
    return sizes


@dataclass
class Propagation:
    """One walk over the nodes at one batch; `reference` is the walk at the file's own batch."""

    graph: OnnxGraph
    batch: int
    bind: Mapping[str, int]
    reference: Propagation | None = None
    types: dict[str, TypeProto] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    values: dict[str, Array] = field(default_factory=dict)
    before_batch: dict[str, int] = field(default_factory=dict)  # see keep_batch; absent: 1

    def run(self) -> Propagation:
        """Fill types, shapes and values; returns itself."""
        for name, constant in self.graph.constants.items():
            self._declare(name, constant, "initializer")
        for value in self.graph.inputs:
            self._declare_input(value)
        for node in self.graph.nodes:
            self._infer(node)
            if self.reference and self.graph.is_live(node):
                self._check_batch(node, self.reference)
            self._evaluate(node)
        return self

    def _error(self, what: str) -> InputError:
        return InputError(f"{self.graph.path}: {what}")

    def _declare_input(self, value: ValueInfoProto) -> None:
        sizes = dimensions(value)
        if sizes is None:
            raise self._error(f"input {value.name!r} is no tensor of known rank")
        unbound = [size for size in sizes[1:] if isinstance(size, str) and size not in self.bind]
        if unbound:
            wanted = ", ".join(f"{name}=..." for name in unbound)
            raise self._error(
                f"input {value.name!r} has symbolic dimensions that need a size: give --bind {wanted}"
            )
        bound = [self.bind[size] if isinstance(size, str) else size for size in sizes[1:]]
        code = value.type.tensor_type.elem_type
        type_ = helper.make_tensor_type_proto(code, [self.batch, *bound] if sizes else [])
        self._declare(value.name, type_, "graph input")

    def _declare(self, name: str, type_: TypeProto, owner: str) -> None:
        if not type_.HasField("tensor_type") or not type_.tensor_type.HasField("shape"):
            raise self._error(f"the shape of {name!r} ({owner}) cannot be inferred")
        dims = type_.tensor_type.shape.dim
        if not all(dim.HasField("dim_value") for dim in dims):
            raise self._error(f"the shape of {name!r} ({owner}) cannot be inferred")
        shape = tuple(dim.dim_value for dim in dims)
        if min(shape, default=1) < 0 or (name in self.graph.live and 0 in shape):
            raise self._error(f"{name!r} ({owner}) would have shape {shape}")
        self.types[name] = type_
        self.shapes[name] = shape

    def _infer(self, node: NodeProto) -> None:
        if node.op_type == "Reshape" and not node.domain and len(node.input) > 1:
            found = {node.output[0]: self._reshape(node)}
        else:
            found = self._standard(node)
        for name in filter(None, node.output):
            type_ = found.get(name, TypeProto())
            if not type_.tensor_type.HasField("shape") and node.op_type in SHAPE_KEEPING:
                type_ = self.types[node.input[0]]
            if name in self.graph.read:
                self._declare(name, type_, node_label(node))

    def _standard(self, node: NodeProto) -> dict[str, TypeProto]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        version = self.graph.opset.get(domain, self.graph.opset.get("ai.onnx", 1))
        names = [name for name in node.input if name]
        types = {name: self.types[name] for name in names}
        data = {name: value for name in names if (value := self._data(name)) is not None}
        if self.reference and self.graph.is_live(node):
            self._spell_batch(node, self.reference, types, data)
        try:
            return infer_node_outputs(
                defs.get_schema(node.op_type, version, domain),
                node,
                types,
                data,
                opset_imports=[helper.make_opsetid(d, v) for d, v in self.graph.opset.items()],
            )
        except (defs.SchemaError, KeyError) as error:
            raise self._error(
                f"{node_label(node)} has no known definition ({operator_type(node)})"
            ) from error
        except (InferenceError, checker.ValidationError, RuntimeError, ValueError) as error:
            reason = str(error).removeprefix("[ShapeInferenceError] ").partition("\n")[0].rstrip(".")
            what = "does not keep the batch" if self.reference else "has impossible inputs"
            raise self._error(f"{node_label(node)} {what}: {reason}") from error

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
        elif node.op_type == "Expand" and (given := self._value(node.input[1])) is not None:
            target = given.copy()
            place = axis + len(target) - len(shape)
            if place >= 0 and target[place] == reference.shapes[node.input[0]][axis]:
                target[place] = grown
                data[node.input[1]] = numpy_helper.from_array(target, node.input[1])

    def _data(self, name: str) -> TensorProto | None:
        if name in self.values:
            return numpy_helper.from_array(self.values[name], name)
        return self.graph.data.get(name)

    def _value(self, name: str) -> Array | None:
        """Content of a small constant."""
        if name not in self.values and name in self.graph.data:
            try:
                self.values[name] = numpy_helper.to_array(self.graph.data[name])
            except FAULTS as error:
                raise self._error(f"the content of initializer {name!r} is damaged") from error
        return self.values.get(name)

    def _reshape(self, node: NodeProto) -> TypeProto:
        data, target = node.input[0], self._value(node.input[1])
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
        for name in (o for o in node.output if o in self.shapes):
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
            inputs = [self._value(i) if i else None for i in node.input]
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
