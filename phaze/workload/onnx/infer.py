"""Types of one node's results from those of its operands.

ONNX's own inference is applied to single nodes, so no stale annotation of a file and no serialisation limit
can interfere. Models repeat themselves: what was asked before is remembered.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from onnx import NodeProto, TensorProto, TypeProto, checker, defs, helper
from onnx.shape_inference import InferenceError, infer_node_outputs

from phaze.errors import InputError
from phaze.workload.onnx.batch import Shape
from phaze.workload.onnx.fused_shapes import RESULT_SHAPES
from phaze.workload.onnx.nodes import FLOATING, node_attributes, node_label, operator_type
from phaze.workload.onnx.read import OnnxGraph
from phaze.workload.onnx.values import FAULTS

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
