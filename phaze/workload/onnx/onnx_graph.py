"""An ONNX file as a checked, sorted list of nodes, without its weights.

Content of weights, inside or beside the file, is not loaded: a weight matters only by its shape. What can
be wrong with a file before shapes are known ends here in one sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

from phaze.errors import InputError
from phaze.workload.onnx.onnx_nodes import (
    Constants,
    Inliner,
    live_tensors,
    names_read,
    needed_nodes,
    sort_nodes,
    stored_tensors,
)
from phaze.workload.onnx.weightless_message import check_locations, parse_model, smallest

MASKED = -1e4  # BERT's published mask; others are lower, down to minus infinity

_ORDERS = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Trilu"})


@dataclass(frozen=True)
class OnnxGraph:
    """The main graph of an ONNX file.

    `nodes` are in topological order and restricted to what the outputs need, with functions of the file
    put in place; `inputs` are the activations (graph inputs that are no initializers), `constants` the
    types of the initializers, `data` those of them small enough to be shape data, `masks` the attention
    masks among them. `live` holds every tensor that depends on the *content* of an input (its shape does
    not count); all others are computed from constants only. `read` holds the tensors that a node or the
    outside reads, `functions` the functions that the file defines.
    """

    path: Path
    nodes: Sequence[NodeProto]
    opset: Mapping[str, int]
    inputs: tuple[ValueInfoProto, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, TypeProto]
    data: Mapping[str, TensorProto]
    masks: frozenset[str]
    live: Set[str]
    read: Set[str]
    functions: tuple[FunctionProto, ...]

    def is_live(self, node: NodeProto) -> bool:
        """Whether the node works on activations rather than on constants."""
        return not self.live.isdisjoint(node.output)

    @cached_property
    def ordered(self) -> frozenset[str]:
        """Constants that say which of two positions comes first, as causal masks do.

        Comparisons of positions, triangles, and stored squares of masks or truth values, with what is made of them.
        """
        squares = ((name, _sizes(kind)) for name, kind in self.constants.items())
        found = {
            name
            for name, shape in squares
            if len(shape) > 1
            and shape[-1] == shape[-2] > 1
            and (name in self.masks or _is_truth(self.constants[name]))
        }
        for node in self.nodes:
            orders = node.op_type in _ORDERS or not found.isdisjoint(node.input)
            if orders and not self.is_live(node):
                found.update(node.output)
        return frozenset(found)

    def live_nodes(self) -> list[NodeProto]:
        """Nodes that become operators, in order."""
        return [node for node in self.nodes if self.is_live(node)]


def read_onnx(path: Path) -> OnnxGraph:
    """Parse and check a file. Raises InputError if it is missing, no ONNX model, empty or cyclic."""
    model = _parse(path)
    graph, constants = model.graph, Constants()
    check_locations(graph.initializer, path)
    nodes = constants.add(stored_tensors(graph), Inliner(model.functions, path).inlined(graph.node))
    outputs = tuple(dict.fromkeys(output.name for output in graph.output))
    if not nodes or not outputs:
        raise InputError(f"{path}: the model has no {'outputs' if nodes else 'operators'}")
    opset = {o.domain: o.version for f in model.functions for o in f.opset_import}
    opset |= {o.domain: o.version for o in model.opset_import}
    return assemble(
        path=path,
        nodes=nodes,
        opset=opset or {"": 1},
        inputs=tuple(value for value in graph.input if value.name not in constants.types),
        outputs=outputs,
        constants=constants,
        masks=_masks(graph, nodes, path),
        functions=tuple(model.functions),
    )


def assemble(
    *,
    path: Path,
    nodes: list[NodeProto],
    opset: Mapping[str, int],
    inputs: tuple[ValueInfoProto, ...],
    outputs: tuple[str, ...],
    constants: Constants,
    masks: frozenset[str],
    functions: tuple[FunctionProto, ...],
) -> OnnxGraph:
    """Sort the nodes, drop what no output needs and find out what is live.

    Raises InputError for a cycle, for tensors without or with two producers, and where no output depends
    on an input.
    """
    names = {value.name for value in inputs}
    kept = needed_nodes(sort_nodes(nodes, names | constants.types.keys(), path), outputs)
    live = live_tensors(kept, names)
    if not kept or not live.intersection(outputs):
        raise InputError(f"{path}: no output is computed from an input")
    read = frozenset(outputs).union(*(names_read(node) for node in kept))
    return OnnxGraph(
        path=path,
        nodes=kept,
        opset=opset,
        inputs=tuple(value for value in inputs if value.name in read),
        outputs=tuple(output for output in outputs if output in live),
        constants=constants.types,
        data=constants.data,
        masks=masks,
        live=live,
        read=read,
        functions=functions,
    )


def _sizes(kind: TypeProto) -> tuple[int, ...]:
    return tuple(axis.dim_value for axis in kind.tensor_type.shape.dim)


def _is_truth(kind: TypeProto) -> bool:
    return kind.tensor_type.elem_type in (TensorProto.BOOL, TensorProto.UINT8)


def _masks(graph: GraphProto, nodes: Iterable[NodeProto], path: Path) -> frozenset[str]:
    """Initializers that are added to something and hold infinities or what stands for them.

    Exporters fold causal masks into them; a trained number is never that large.
    """
    added = {name for node in nodes if node.op_type == "Add" for name in node.input}
    candidates = (t for t in graph.initializer if t.name in added and len(t.dims) > 1)
    return frozenset(t.name for t in candidates if smallest(t, path) <= MASKED)


def _parse(path: Path) -> ModelProto:
    try:
        if not path.is_file():
            raise InputError(f"{path}: not a file" if path.exists() else f"{path}: no such file")
        model = parse_model(path)
    except (DecodeError, ValueError) as error:
        raise InputError(f"{path}: not a readable ONNX model (damaged or another format)") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if not model.HasField("graph"):
        raise InputError(f"{path}: not an ONNX model (it holds no graph)")
    functions = (node for function in model.functions for node in function.node)
    if not all(isinstance(word, str) for word in (*_words(model.graph), *_node_words(functions))):
        raise InputError(f"{path}: not a readable ONNX model (a name in it is not text)")
    return model


def _words(graph: GraphProto) -> Iterator[object]:
    """Names in a graph; the protobuf library hands out those that are no UTF-8 as bytes."""
    for value in (*graph.initializer, *graph.input, *graph.output):
        yield value.name
    yield from _node_words(graph.node)


def _node_words(nodes: Iterable[NodeProto]) -> Iterator[object]:
    for node in nodes:
        yield from (node.op_type, node.domain, node.name, *node.input, *node.output)
        for attribute in node.attribute:
            yield attribute.name
            for body in (
                attribute.graphs if attribute.graphs else [attribute.g] if attribute.HasField("g") else ()
            ):
                yield from _words(body)
