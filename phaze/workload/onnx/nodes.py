"""Nodes of an ONNX graph: how they are called, what their attributes say, and in which order they run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

from phaze.errors import InputError
from phaze.workload.onnx.bodies import reads

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
    """How messages name a node: type, and name or first output."""
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
    for name in reads(node):
        if name in makers:
            yield name
        elif name not in known:
            raise InputError(f"{path}: {node_label(node)} reads {name!r}, which nothing makes")


def _in_order(nodes: list[NodeProto], known: set[str]) -> bool:
    seen = set(known)
    for node in nodes:
        if not seen.issuperset(reads(node)):
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
            wanted.update(reads(node))
    return tuple(reversed(kept))


def live_tensors(nodes: Iterable[NodeProto], inputs: Iterable[str]) -> frozenset[str]:
    """Tensors that depend on the content of an input."""
    live = set(inputs)
    for node in nodes:
        if not is_shape_query(node) and not live.isdisjoint(reads(node)):
            live.update(filter(None, node.output))
    return frozenset(live)
