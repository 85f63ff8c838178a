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
from phaze.workload.onnx.nodes import is_small, live_tensors, needed_nodes, operator_type, sort_nodes

MASKED = -1e4  # BERT's published mask; others are lower, down to minus infinity
PROTOBUF_LIMIT = 2**31  # bytes; protobuf parses no larger message


@dataclass(frozen=True)
class OnnxGraph:
    """The main graph of an ONNX file.

    `nodes` are in topological order and restricted to what the outputs need; `inputs` are the activations
    (graph inputs that are no initializers), `constants` the types of the initializers, `data` those of
    them small enough to be shape data, `masks` the attention masks among them.
    `live` holds every tensor that depends on the *content* of an
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
    masks: frozenset[str]
    live: frozenset[str]
    read: frozenset[str]
    functions: frozenset[tuple[str, str]]

    def is_live(self, node: NodeProto) -> bool:
        """Whether the node works on activations rather than on constants."""
        return not self.live.isdisjoint(node.output)

    def live_nodes(self) -> list[NodeProto]:
        """Nodes that become operators, in order."""
        return [node for node in self.nodes if self.is_live(node)]


def read_onnx(path: Path) -> OnnxGraph:
    """Parse and check a file. Raises InputError if it is missing, no ONNX model, empty or cyclic."""
    model = _parse(path)
    graph = model.graph
    constants, data = _constants(graph)
    inputs = {i.name: i for i in graph.input if i.name not in constants}
    outputs = tuple(dict.fromkeys(o.name for o in graph.output))
    if not graph.node or not outputs:
        raise InputError(f"{path}: the model has no {'outputs' if graph.node else 'operators'}")
    working = [node for node in graph.node if operator_type(node) != "Constant"]
    nodes = needed_nodes(sort_nodes(working, inputs.keys() | constants.keys(), path), outputs)
    read = frozenset(outputs).union(*(node.input for node in nodes))
    live = live_tensors(nodes, inputs)
    if not nodes or not live.intersection(outputs):
        raise InputError(f"{path}: no output is computed from an input")
    return OnnxGraph(
        path=path,
        nodes=tuple(copy.deepcopy(node) for node in nodes),  # a reference would keep the whole file in memory
        opset=MappingProxyType({o.domain: o.version for o in model.opset_import} or {"": 1}),
        inputs=tuple(copy.deepcopy(i) for name, i in inputs.items() if name in read),
        outputs=tuple(o for o in outputs if o in live),
        constants=MappingProxyType(constants),
        data=MappingProxyType(data),
        masks=_masks(graph),
        live=live,
        read=read,
        functions=frozenset((f.domain, f.name) for f in model.functions),
    )


def _masks(graph: GraphProto) -> frozenset[str]:
    """Initializers that are added to something and hold infinities or what stands for them.

    Exporters fold causal masks into them; a trained number is never that large.
    """
    added = {name for node in graph.node if node.op_type == "Add" for name in node.input}
    candidates = (t for t in graph.initializer if t.name in added and len(t.dims) > 1)
    return frozenset(t.name for t in candidates if _smallest(t) <= MASKED)


def _smallest(tensor: TensorProto) -> float:
    """Smallest element of a tensor whose content is in the file, 0 without one."""
    if tensor.data_location == TensorProto.EXTERNAL or math.prod(tensor.dims) == 0:
        return 0.0
    try:
        return float(numpy_helper.to_array(tensor).min())
    except (ValueError, TypeError):  # damaged, or not numbers
        return 0.0


def _constants(graph: GraphProto) -> tuple[dict[str, TypeProto], dict[str, TensorProto]]:
    """Types of initializers and Constant nodes, and copies of those small enough to be shape data."""
    dense = list(graph.initializer)
    types: dict[str, TypeProto] = {}
    for sparse in graph.sparse_initializer:
        types[sparse.values.name] = helper.make_tensor_type_proto(sparse.values.data_type, sparse.dims)
    for node in graph.node:
        if operator_type(node) == "Constant" and node.attribute and node.output:
            dense.append(_constant(node.attribute[0], node.output[0]))
    types |= {t.name: helper.make_tensor_type_proto(t.data_type, t.dims) for t in dense}
    return types, {t.name: copy.deepcopy(t) for t in dense if is_small(t)}


def _constant(attribute: AttributeProto, name: str) -> TensorProto:
    """The tensor of a Constant node, whichever way it is written."""
    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto | SparseTensorProto):
        code = value.data_type if isinstance(value, TensorProto) else value.values.data_type
        tensor = TensorProto(name=name, data_type=code, dims=value.dims, data_location=TensorProto.EXTERNAL)
        if isinstance(value, TensorProto) and is_small(value):
            tensor.CopyFrom(value)
            tensor.name = name
        return tensor
    if attribute.type in {AttributeProto.STRING, AttributeProto.STRINGS}:
        return TensorProto(name=name, data_type=TensorProto.STRING, data_location=TensorProto.EXTERNAL)
    if attribute.type in {AttributeProto.FLOAT, AttributeProto.FLOATS}:
        return numpy_helper.from_array(np.asarray(value, np.float32), name)
    return numpy_helper.from_array(np.asarray(value), name)


def _parse(path: Path) -> onnx.ModelProto:
    try:
        if not path.is_file():
            raise InputError(f"{path}: not a file" if path.exists() else f"{path}: no such file")
        if path.stat().st_size >= PROTOBUF_LIMIT:
            raise InputError(f"{path}: larger than 2 GiB; save the model with its weights as external data")
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
