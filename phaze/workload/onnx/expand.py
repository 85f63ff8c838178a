"""Branches and composite operators, resolved while the shapes become known.

An If whose condition is computed from constants and shapes is its branch. An operator without a converter
is what its own definition in the ONNX standard makes of it, where that is a function.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from onnx import FunctionProto, NodeProto, defs, helper

from phaze.errors import InputError
from phaze.workload.onnx.bodies import put_in_place, reads, stored
from phaze.workload.onnx.constants import Constants
from phaze.workload.onnx.functions import Inliner, function_body
from phaze.workload.onnx.inputs import InputSizes
from phaze.workload.onnx.nodes import is_shape_query, node_label, operator_type
from phaze.workload.onnx.operators import CONTROL_FLOW, CONVERTERS, unsupported
from phaze.workload.onnx.propagate import Propagation
from phaze.workload.onnx.read import OnnxGraph, assemble


def is_expandable(node: NodeProto, opset: int) -> bool:
    """Whether a node can be resolved, given a constant condition if it is an If."""
    name = operator_type(node)
    if name == "If":
        return True
    if name in CONVERTERS or "." in name:
        return False
    try:
        schema = defs.get_schema(name, opset)
    except defs.SchemaError:  # unknown, or younger than the file
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)  # type: ignore[attr-defined]


def expanded(graph: OnnxGraph, inputs: InputSizes) -> OnnxGraph:
    """The graph without what can be resolved. Raises InputError where a body is impossible."""
    opset = graph.opset.get("", 1)
    if not any(is_expandable(node, opset) for node in graph.nodes):
        return graph
    return _Expansion(graph, inputs).run()


class _Expansion:
    """One walk over a graph that grows in its place."""

    def __init__(self, graph: OnnxGraph, inputs: InputSizes) -> None:
        self._constants = Constants(dict(graph.constants), dict(graph.data))
        self._live = {value.name for value in graph.inputs}
        self._read = set(graph.read)
        self._graph = replace(
            graph,
            constants=self._constants.types,
            data=self._constants.data,
            live=self._live,
            read=self._read,
        )
        self._walk = Propagation(self._graph, inputs.batch, inputs)
        self._inliner = Inliner(graph.functions, graph.path)

    def run(self) -> OnnxGraph:
        """Visit every node once, bodies in the place of what they stand for."""
        graph = self._graph
        self._walk.declare()
        waiting, done = list(reversed(graph.nodes)), []
        while waiting:
            node = waiting.pop()
            body = self._body(node)
            if body is None:
                self._visit(node)
                done.append(node)
            else:
                waiting += reversed(self._taken_in(body))
        return assemble(
            path=graph.path,
            nodes=done,
            opset=graph.opset,
            inputs=graph.inputs,
            outputs=graph.outputs,
            constants=self._constants,
            masks=graph.masks,
            functions=graph.functions,
        )

    def _visit(self, node: NodeProto) -> None:
        if operator_type(node) in CONTROL_FLOW:
            raise InputError(f"{self._graph.path}: unsupported operators: {unsupported(node)}")
        if not is_shape_query(node) and not self._live.isdisjoint(reads(node)):
            self._live.update(filter(None, node.output))
        self._walk.visit(node)

    def _taken_in(self, body: Iterable[NodeProto]) -> list[NodeProto]:
        """Nodes of a body without calls and constants."""
        nodes = self._constants.add((), self._inliner.inlined(list(body)))
        self._inliner.count(len(nodes))
        self._read.update(name for node in nodes for name in reads(node))
        self._walk.declare_constants()
        return nodes

    def _body(self, node: NodeProto) -> list[NodeProto] | None:
        """What a node stands for; None where it stays."""
        if not is_expandable(node, self._graph.opset.get("", 1)):
            return None
        if node.op_type == "If":
            return self._branch(node)
        return None if self._live.isdisjoint(node.input) else self._definition(node)

    def _branch(self, node: NodeProto) -> list[NodeProto]:
        """The branch that a condition takes."""
        condition = self._walk.value(node.input[0]) if node.input else None
        bodies = {a.name: a.g for a in node.attribute}
        if condition is None or condition.size != 1 or not {"then_branch", "else_branch"} <= bodies.keys():
            raise InputError(
                f"{self._graph.path}: unsupported operators: control flow {node_label(node)}, "
                "whose condition depends on the input"
            )
        body = bodies["then_branch" if condition.item() else "else_branch"]
        constants = [
            NodeProto(
                op_type="Constant", output=[tensor.name], attribute=[helper.make_attribute("value", tensor)]
            )
            for tensor in stored(body)
        ]
        return put_in_place(node, [*constants, *body.node], [o.name for o in body.output], {}, {})

    def _definition(self, node: NodeProto) -> list[NodeProto]:
        """The function that the standard defines an operator as, at the operands' types."""
        schema = defs.get_schema(node.op_type, self._graph.opset.get("", 1))
        if schema.has_function:  # type: ignore[attr-defined]
            defaults = (attribute.default_value for attribute in schema.attributes.values())
            return function_body(node, schema.function_body, [a for a in defaults if a.name])
        types = [self._walk.types[name].SerializeToString() if name else b"" for name in node.input]
        try:
            made = schema.get_context_dependent_function(  # type: ignore[attr-defined]
                node.SerializeToString(), types
            )
        except (RuntimeError, ValueError) as error:
            raise InputError(f"{self._graph.path}: {node_label(node)} is malformed ({error})") from error
        return function_body(node, FunctionProto.FromString(made))
