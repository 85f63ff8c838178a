"""Nodes that have a body (functions, branches): which names it uses, and the body in the node's place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from onnx import AttributeProto, GraphProto, NodeProto, SparseTensorProto, TensorProto

Rename = Callable[[str], str]
Attributes = Mapping[str, AttributeProto]


def bodies_of(node: NodeProto) -> Iterator[GraphProto]:
    """Graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def reads(node: NodeProto) -> list[str]:
    """Names of the graph around it that a node reads, in its bodies too."""
    names = [name for name in node.input if name]
    for body in bodies_of(node) if node.attribute else ():
        local = {value.name for value in (*body.input, *stored(body))}
        local.update(*(inner.output for inner in body.node))
        inside = (name for inner in body.node for name in reads(inner))
        passed = (output.name for output in body.output)
        names += [name for name in (*inside, *passed) if name not in local]
    return names


def stored(graph: GraphProto) -> list[TensorProto]:
    """Initializers of a graph, sparse ones as dense tensors without content."""
    return [*graph.initializer, *(without_content(sparse) for sparse in graph.sparse_initializer)]


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
