"""An ONNX file as a checked, sorted list of nodes, without its weights.

The file is parsed by path and external data is never opened: a weight matters only by its shape. What
can be wrong with a file before shapes are known ends here in one sentence.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import (
    AttributeProto,
    GraphProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from phaze.errors import InputError

SMALL = 256  # elements: what can be shape data (targets, axes, pads); anything larger is a weight


@dataclass(frozen=True)
class OnnxGraph:
    """The main graph of an ONNX file.

    `nodes` are in topological order and restricted to what the outputs need; `inputs` are the activations
    (graph inputs that are no initializers), `constants` the types of the initializers, `data` those of
    them small enough to be shape data. `live` holds every tensor that depends on the *content* of an
    input (its shape does not count); all others are computed from constants only. `read` holds the tensors
    that a node or the outside reads, `functions` the (domain, name) of functions that the file defines.
    """

    path: Path
    nodes: tuple[NodeProto, ...]
    opset: Mapping[str, int]
    inputs: tuple[ValueInfoProto, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, TypeProto]
    data: Mapping[str, TensorProto]
    live: frozenset[str]
    read: frozenset[str]
    functions: frozenset[tuple[str, str]]

    def is_live(self, node: NodeProto) -> bool:
        """Whether the node works on activations rather than on constants."""
        return not self.live.isdisjoint(node.output)

    def live_nodes(self) -> list[NodeProto]:
        """Nodes that become operators, in order."""
        return [node for node in self.nodes if self.is_live(node)]


def node_label(node: NodeProto) -> str:
    """How messages name a node: type, and name or first output."""
    return f"{node.op_type} node {node.name or (node.output[0] if node.output else '')!r}"


def operator_type(node: NodeProto) -> str:
    """Operator type, with its domain unless that is the standard one."""
    return node.op_type if node.domain in {"", "ai.onnx"} else f"{node.domain}.{node.op_type}"


def is_shape_query(node: NodeProto) -> bool:
    """Whether the node reads only the shape of its input."""
    return node.op_type in {"Shape", "Size"}


def read_onnx(path: Path) -> OnnxGraph:
    """Parse and check a file. Raises InputError if it is missing, no ONNX model, empty or cyclic."""
    model = _parse(path)
    graph = model.graph
    constants, data = _constants(graph)
    inputs = [i for i in graph.input if i.name not in constants]
    outputs = tuple(o.name for o in graph.output)
    if not graph.node or not outputs:
        raise InputError(f"{path}: the model has no {'outputs' if graph.node else 'operators'}")
    known = {i.name for i in inputs} | constants.keys()
    nodes = _needed(_sorted([n for n in graph.node if n.op_type != "Constant"], known, path), outputs)
    read = frozenset(outputs).union(*(node.input for node in nodes))
    live = frozenset(_live(nodes, {i.name for i in inputs}))
    if not nodes or not live.intersection(outputs):
        raise InputError(f"{path}: no output is computed from an input")
    return OnnxGraph(
        path=path,
        nodes=tuple(copy.deepcopy(node) for node in nodes),  # a reference would keep the whole file in memory
        opset=MappingProxyType({o.domain: o.version for o in model.opset_import} or {"": 1}),
        inputs=tuple(copy.deepcopy(i) for i in inputs if i.name in read),
        outputs=tuple(o for o in outputs if o in live),
        constants=MappingProxyType(constants),
        data=MappingProxyType(data),
        live=live,
        read=read,
        functions=frozenset((f.domain, f.name) for f in model.functions),
    )


def _constants(graph: GraphProto) -> tuple[dict[str, TypeProto], dict[str, TensorProto]]:
    """Types of initializers and Constant nodes, and copies of those small enough to be shape data."""
    dense = list(graph.initializer)
    types: dict[str, TypeProto] = {}
    for sparse in graph.sparse_initializer:
        types[sparse.values.name] = helper.make_tensor_type_proto(sparse.values.data_type, sparse.dims)
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain and node.attribute and node.output:
            dense.append(_constant(node.attribute[0], node.output[0]))
    types |= {t.name: helper.make_tensor_type_proto(t.data_type, t.dims) for t in dense}
    return types, {t.name: copy.deepcopy(t) for t in dense if _is_small(t)}


def _constant(attribute: AttributeProto, name: str) -> TensorProto:
    """The tensor of a Constant node, whichever way it is written."""
    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto | SparseTensorProto):
        code = value.data_type if isinstance(value, TensorProto) else value.values.data_type
        tensor = TensorProto(name=name, data_type=code, dims=value.dims, data_location=TensorProto.EXTERNAL)
        if isinstance(value, TensorProto) and _is_small(value):
            tensor.CopyFrom(value)
            tensor.name = name
        return tensor
    if attribute.type in {AttributeProto.FLOAT, AttributeProto.FLOATS}:
        return numpy_helper.from_array(np.asarray(value, np.float32), name)
    return numpy_helper.from_array(np.asarray(value), name)


def _parse(path: Path) -> onnx.ModelProto:
    if not path.is_file():
        raise InputError(f"{path}: not a file" if path.exists() else f"{path}: no such file")
    try:
        model = onnx.load_model(path, format="protobuf", load_external_data=False)
    except (DecodeError, ValueError) as error:
        raise InputError(f"{path}: not a readable ONNX model (damaged or another format)") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if not model.HasField("graph"):
        raise InputError(f"{path}: not an ONNX model (it holds no graph)")
    if not all(isinstance(word, str) for word in _words(model.graph)):
        raise InputError(f"{path}: not a readable ONNX model (a name in it is no text)")
    return model


def _words(graph: GraphProto) -> Iterator[object]:
    """Names in a graph; the protobuf library hands out those that are no UTF-8 as bytes."""
    for value in (*graph.initializer, *graph.input, *graph.output):
        yield value.name
    for node in graph.node:
        yield from (node.op_type, node.domain, node.name, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)


def _is_small(tensor: TensorProto) -> bool:
    return tensor.data_location != TensorProto.EXTERNAL and math.prod(tensor.dims) <= SMALL


def _sorted(nodes: list[NodeProto], known: set[str], path: Path) -> list[NodeProto]:
    """Nodes in topological order, otherwise in the order of the file (which ONNX wants sorted already)."""
    makers: dict[str, int] = {}
    for position, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in makers or name in known:
                raise InputError(f"{path}: tensor {name!r} has two producers, one is {node_label(node)}")
            makers[name] = position
    waiting: list[int] = []
    readers: dict[int, list[int]] = {}
    for position, node in enumerate(nodes):
        needs = {makers[name] for name in _reads(node, makers, known, path)}
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


def _reads(node: NodeProto, makers: Mapping[str, int], known: set[str], path: Path) -> Iterator[str]:
    """Inputs made by other nodes. Raises InputError for one that nothing makes."""
    if not any(node.output):
        raise InputError(f"{path}: a {node.op_type} node has no outputs")
    for name in filter(None, node.input):
        if name in makers:
            yield name
        elif name not in known:
            raise InputError(f"{path}: {node_label(node)} reads {name!r}, which nothing makes")


def _in_order(nodes: list[NodeProto], known: set[str]) -> bool:
    seen = set(known)
    for node in nodes:
        if not seen.issuperset(filter(None, node.input)):
            return False
        seen.update(node.output)
    return True


def _needed(nodes: list[NodeProto], outputs: tuple[str, ...]) -> tuple[NodeProto, ...]:
    """Drop what no output needs: it is not computed, and it has no gradient."""
    wanted = set(outputs)
    kept = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(filter(None, node.input))
    return tuple(reversed(kept))


def _live(nodes: tuple[NodeProto, ...], inputs: set[str]) -> set[str]:
    live = set(inputs)
    for node in nodes:
        if not is_shape_query(node) and live.intersection(node.input):
            live.update(filter(None, node.output))
    return live


def node_attributes(node: NodeProto) -> dict[str, object]:
    """Attributes as plain Python values: numbers, words, lists, and arrays for small tensors."""
    found: dict[str, object] = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        elif isinstance(value, TensorProto):
            value = numpy_helper.to_array(value) if _is_small(value) else None
        elif attribute.type in {AttributeProto.INTS, AttributeProto.FLOATS}:
            value = list(value)
        found[attribute.name] = value
    return found
