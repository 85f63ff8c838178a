"""Nodes of an ONNX graph: how they are called, what their attributes say, and in which order they run.

Nodes may have a body (functions, branches), which is put in the node's place. Constants are known by their
types, and by their content where they are small enough to be shape data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    TypeProto,
    helper,
    numpy_helper,
)

from phaze.errors import InputError

Rename = Callable[[str], str]
Attributes = Mapping[str, AttributeProto]


def bodies_of(node: NodeProto) -> Iterator[GraphProto]:
    """Graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def names_read(node: NodeProto) -> list[str]:
    """Names of the graph around it that a node reads, in its bodies too."""
    names = [name for name in node.input if name]
    for body in bodies_of(node) if node.attribute else ():
        local = {value.name for value in (*body.input, *stored_tensors(body))}
        local.update(*(inner.output for inner in body.node))
        inside = (name for inner in body.node for name in names_read(inner))
        passed = (output.name for output in body.output)
        names += [name for name in (*inside, *passed) if name not in local]
    return names


def stored_tensors(graph: GraphProto) -> list[TensorProto]:
    """Initializers of a graph, sparse ones as dense tensors without content."""
    return [*graph.initializer, *(without_content(sparse) for sparse in graph.sparse_initializer)]


def constant_node(tensor: TensorProto) -> NodeProto:
    """A stored tensor as the node that makes it."""
    value = helper.make_attribute("value", tensor)
    return NodeProto(op_type="Constant", output=[tensor.name], attribute=[value])


def without_content(sparse: SparseTensorProto) -> TensorProto:
    """A sparse tensor as the dense one it stands for."""
    return TensorProto(
        name=sparse.values.name,
        data_type=sparse.values.data_type,
        dims=sparse.dims,
        data_location=TensorProto.EXTERNAL,
    )


def put_in_place(
    call: NodeProto,
    nodes: Sequence[NodeProto],
    outputs: Sequence[str],
    names: Mapping[str, str],
    attributes: Attributes,
) -> list[NodeProto]:
    """A body's nodes under names of the graph around it; its `outputs` become those of the node `call`.

    `names` are what names of the body are called outside, `attributes` the values of attributes that the
    body takes over from its caller. What the body defines gets the caller's first output as a prefix.
    """
    local = {name for node in nodes for name in node.output}
    known, passed = dict(names), []
    for inside, outside in zip(outputs, call.output, strict=False):
        if inside in local and inside not in known and outside:
            known[inside] = outside
        elif outside:
            passed.append((inside, outside))
    prefix = f"{next(filter(None, call.output), call.name)}/{call.op_type}"  # no other body has it

    def rename(name: str) -> str:
        return known.get(name, f"{prefix}/{name}" if name in local else name)

    label = call.name or next(filter(None, call.output), "")
    made = [_renamed(node, rename, attributes, label) for node in nodes]
    return made + [
        NodeProto(op_type="Identity", name=label, input=[rename(inside)], output=[outside])
        for inside, outside in passed
    ]


def _renamed(node: NodeProto, rename: Rename, attributes: Attributes, label: str) -> NodeProto:
    """A copy of a node under other names, with the attributes it takes over from its caller."""
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.name = f"{label}/{node.name}" if node.name else label
    copy.input[:] = [rename(name) for name in node.input]
    copy.output[:] = [rename(name) for name in node.output]
    del copy.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            copy.attribute.append(attribute)
        elif attribute.ref_attr_name in attributes:
            copy.attribute.append(attributes[attribute.ref_attr_name])
            copy.attribute[-1].name = attribute.name
    for body in bodies_of(copy):
        inner = [_renamed(part, rename, attributes, label) for part in body.node]
        del body.node[:]
        body.node.extend(inner)
        for value in (*body.input, *body.output, *body.initializer):
            value.name = rename(value.name)
    return copy


SMALL = 256  # elements: what can be shape data (targets, axes, pads); anything larger is a weight

FLOATING = frozenset(
    code
    for name, code in TensorProto.DataType.items()
    if "FLOAT" in name or name == "DOUBLE"  # FLOAT, FLOAT16, BFLOAT16, FLOAT8..., FLOAT4...
)
"""Element types that are real numbers."""


def is_small(tensor: TensorProto) -> bool:
    """Whether a tensor can be shape data, and its content is in the file."""
    return tensor.data_location != TensorProto.EXTERNAL and math.prod(tensor.dims) <= SMALL


def node_label(node: NodeProto) -> str:
    """Name of a node in messages: type, and name or first output."""
    return f"{node.op_type} node {node.name or (node.output[0] if node.output else '')!r}"


def operator_type(node: NodeProto) -> str:
    """Operator type, with its domain unless that is the standard one."""
    return node.op_type if node.domain in {"", "ai.onnx"} else f"{node.domain}.{node.op_type}"


def is_shape_query(node: NodeProto) -> bool:
    """Whether the node reads only the shape of its input."""
    return node.op_type in {"Shape", "Size"}


def node_attributes(node: NodeProto) -> dict[str, object]:
    """Attributes as plain Python values: numbers, words, lists, and arrays for small tensors."""
    found: dict[str, object] = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        elif isinstance(value, TensorProto):
            value = numpy_helper.to_array(value) if is_small(value) else None
        elif attribute.type in {AttributeProto.INTS, AttributeProto.FLOATS}:
            value = list(value)
        found[attribute.name] = value
    return found


def sort_nodes(nodes: list[NodeProto], known: set[str], path: Path) -> list[NodeProto]:
    """Nodes in topological order, which is the order of the file where that is one.

    `known` are inputs and constants. Raises InputError for a cycle and for tensors without or with two
    producers.
    """
    makers: dict[str, int] = {}
    for position, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in makers or name in known:
                raise InputError(f"{path}: tensor {name!r} has two producers, one is {node_label(node)}")
            makers[name] = position
    waiting: list[int] = []
    readers: dict[int, list[int]] = {}
    for position, node in enumerate(nodes):
        needs = {makers[name] for name in _needs(node, makers, known, path)}
        waiting.append(len(needs))
        for maker in needs:
            readers.setdefault(maker, []).append(position)
    ready = [position for position, count in enumerate(waiting) if count == 0]
    for position in ready:  # grows while it is walked
        for reader in readers.get(position, ()):
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    if len(ready) < len(nodes):
        stuck = next(node for position, node in enumerate(nodes) if waiting[position])
        raise InputError(f"{path}: the graph has a cycle that {node_label(stuck)} waits for")
    return [nodes[position] for position in (range(len(nodes)) if _in_order(nodes, known) else ready)]


def _needs(node: NodeProto, makers: Mapping[str, int], known: set[str], path: Path) -> Iterator[str]:
    """Inputs made by other nodes. Raises InputError for one that nothing makes."""
    if not any(node.output):
        raise InputError(f"{path}: a {node.op_type} node has no outputs")
    for name in names_read(node):
        if name in makers:
            yield name
        elif name not in known:
            raise InputError(f"{path}: {node_label(node)} reads {name!r}, which nothing makes")


def _in_order(nodes: list[NodeProto], known: set[str]) -> bool:
    seen = set(known)
    for node in nodes:
        if not seen.issuperset(names_read(node)):
            return False
        seen.update(node.output)
    return True


def needed_nodes(nodes: Sequence[NodeProto], outputs: Iterable[str]) -> tuple[NodeProto, ...]:
    """Drop what no output needs: it is not computed, and it has no gradient."""
    wanted = set(outputs)
    kept = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(names_read(node))
    return tuple(reversed(kept))


def live_tensors(nodes: Iterable[NodeProto], inputs: Iterable[str]) -> frozenset[str]:
    """Tensors that depend on the content of an input."""
    live = set(inputs)
    for node in nodes:
        if not is_shape_query(node) and not live.isdisjoint(names_read(node)):
            live.update(filter(None, node.output))
    return frozenset(live)


MOST_NODES = 300_000
"""Where a file is given up: calls of calls multiply."""

DEEPEST = 100
"""Calls within calls; only a function that calls itself gets there."""


class Inliner:
    """Puts functions in the place of their calls; counts what it makes."""

    def __init__(self, functions: Iterable[FunctionProto], path: Path) -> None:
        """Know the functions of the file at `path`."""
        self._functions = {(f.domain, f.name, f.overload): f for f in functions}
        self._path = path
        self._made = 0

    def inlined(self, nodes: Sequence[NodeProto]) -> list[NodeProto]:
        """Nodes without calls. Raises InputError for functions without end."""
        return list(self._walk(nodes, 0)) if self._functions else list(nodes)

    def count(self, made: int) -> None:
        """Note that so many nodes came out of bodies. Raises InputError if they are too many."""
        self._made += made
        if self._made > MOST_NODES:
            raise InputError(f"{self._path}: functions and branches make more than {MOST_NODES} operators")

    def _walk(self, nodes: Iterable[NodeProto], depth: int) -> Iterator[NodeProto]:
        for node in nodes:
            function = self._functions.get((node.domain, node.op_type, node.overload))
            if function is None:
                yield node
                continue
            if depth > DEEPEST:
                raise InputError(f"{self._path}: function {operator_type(node)} calls itself")
            self.count(len(function.node))
            yield from self._walk(function_body(node, function), depth + 1)


def function_body(
    call: NodeProto, function: FunctionProto, defaults: Iterable[AttributeProto] = ()
) -> list[NodeProto]:
    """Nodes that a call of a function stands for; operands that are left out stay left out.

    `defaults` are values of attributes that neither the call nor the function gives.
    """
    given = [*call.input, *[""] * (len(function.input) - len(call.input))]
    names = dict(zip(function.input, given, strict=False))
    attributes = {a.name: a for some in (defaults, function.attribute_proto, call.attribute) for a in some}
    return put_in_place(call, function.node, function.output, names, attributes)


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
