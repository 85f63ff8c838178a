"""Execution traces of MLCommons Chakra: what one device does for a microbatch, as ASTRA-sim and others read it.

A trace is a row of protobuf messages, each after its length: one of metadata, then one per node. Numbers of fields and
of kinds are those of mlcommons/chakra, schema/protobuf/et_def.proto (version 0.0.4); of its attributes, those that
ASTRA-sim reads (`num_ops`, `tensor_size`, `comm_type`, `comm_size`, `is_cpu_op`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from phaze.errors import InputError
from phaze.workload.work import Collective, LayerChain, Pass, Work
from phaze.workload.workload_overview import totals_of

SCHEMA = "0.0.4"
COMPUTE, COLLECTIVE = 4, 7  # NodeType
COLLECTIVES = MappingProxyType(
    {
        Collective.ALL_REDUCE: 0,
        Collective.ALL_GATHER: 2,
        Collective.ALL_TO_ALL: 6,
        Collective.REDUCE_SCATTER: 7,
    }
)
"""CollectiveCommType of the collectives within a layer."""

_VARINT, _BYTES = 0, 2  # wire types
_NAME, _INT64, _UINT64, _BOOL, _STRING = 1, 9, 13, 27, 29  # AttributeProto

Value = bool | int | str


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A node: kind, the nodes whose data it waits for, and attributes by name."""

    id: int
    name: str
    kind: int
    after: tuple[int, ...] = ()
    attributes: dict[str, Value] = field(default_factory=dict)


def to_chakra(chain: LayerChain) -> bytes:
    """The trace of a chain of layers, forward and in training backward, every operator after fusion a node."""
    told: dict[str, Value] = {"workload": chain.workload, "microbatch_size": chain.microbatch}
    head = _text(1, SCHEMA) + b"".join(_nested(2, _attribute(k, v)) for k, v in told.items())
    return b"".join(_delimited(part) for part in (head, *(_node(node) for node in trace_nodes(chain))))


def trace_nodes(chain: LayerChain) -> list[TraceNode]:
    """Nodes in an order that respects precedence: layer after layer, and back again.

    A layer waits for all that nobody in the layer before waits for; backward also for its own forward pass.
    """
    layers = [(name, chain.layers[i]) for name, i in zip(chain.names, chain.index, strict=True)]
    nodes: list[TraceNode] = []
    last: tuple[int, ...] = ()
    kept: list[tuple[int, ...]] = []
    for name, layer in layers:
        last = _append(nodes, layer.forward, name, last)
        kept.append(last)
    for (name, layer), own in reversed([*zip(layers, kept, strict=True)]):
        if layer.backward is not None:
            last = _append(nodes, layer.backward, f"{name}.backward", tuple(sorted({*last, *own})))
    return nodes


def _append(nodes: list[TraceNode], half: Pass, prefix: str, before: tuple[int, ...]) -> tuple[int, ...]:
    """Append a pass; its last nodes, or those before it where it has none."""
    if not half.works:
        return before
    start = len(nodes)
    waits: list[set[int]] = [set() for _ in half.works]
    for a, b in half.edges:
        waits[b].add(start + a)
    for i, work in enumerate(half.works):
        after = tuple(sorted(waits[i])) or before
        nodes.append(_made(start + i, f"{prefix}.{work.name}" if work.name else prefix, work, after))
    read = {a for a, _ in half.edges}
    return tuple(start + i for i in range(len(half.works)) if i not in read)


def _made(number: int, name: str, work: Work, after: tuple[int, ...]) -> TraceNode:
    """The node of an operator. Raises InputError for a collective that traces have no kind for."""
    if work.link is None:
        totals = totals_of((work,))
        counts = {"num_ops": round(totals.flops + totals.vector_cycles), "tensor_size": round(totals.bytes)}
        return TraceNode(number, name, COMPUTE, after, {"is_cpu_op": False, **counts})
    kind = COLLECTIVES.get(work.link.collective)
    if kind is None:
        raise InputError(f"{name}: a Chakra trace of one device has no {work.link.collective} within a layer")
    sizes = {"comm_type": kind, "comm_size": round(work.link.payload_bytes)}
    return TraceNode(number, name, COLLECTIVE, after, {"is_cpu_op": False, **sizes})


def _node(node: TraceNode) -> bytes:
    packed = b"".join(map(_varint, node.after))
    parts = [_number(1, node.id), _text(2, node.name), _number(3, node.kind)]
    parts += [_nested(5, packed)] if packed else []
    return b"".join(parts + [_nested(10, _attribute(k, v)) for k, v in node.attributes.items()])


def _attribute(name: str, value: Value) -> bytes:
    if isinstance(value, bool):
        return _text(_NAME, name) + _number(_BOOL, value)
    if isinstance(value, str):
        return _text(_NAME, name) + _text(_STRING, value)
    return _text(_NAME, name) + _number(_UINT64 if name == "tensor_size" else _INT64, value)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; all but the last have the eighth bit."""
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*made, value))


def _number(place: int, value: int) -> bytes:
    return _varint(place << 3 | _VARINT) + _varint(int(value))


def _nested(place: int, content: bytes) -> bytes:
    return _varint(place << 3 | _BYTES) + _varint(len(content)) + content


def _text(place: int, content: str) -> bytes:
    return _nested(place, content.encode())


def _delimited(message: bytes) -> bytes:
    return _varint(len(message)) + message


def read_chakra(data: bytes, source: str) -> list[TraceNode]:
    """The nodes of a trace, those of other writers too: what they wait for and their numbers and words.

    Raises InputError for what is no trace, and for nodes that wait for some that are not there.
    """
    try:
        messages = [*_messages(data)][1:]
        nodes = [_read_node(message) for message in messages]
    except (IndexError, UnicodeDecodeError, KeyError, ValueError) as error:
        raise InputError(f"{source}: not a Chakra execution trace ({error})") from error
    known = {node.id for node in nodes}
    for node in nodes:
        if missing := sorted({*node.after} - known):
            raise InputError(
                f"{source}: node {node.id} ({node.name}) waits for {missing[0]}, which is not there"
            )
    return nodes


def _messages(data: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(data):
        size, place = _take(data, place)
        if place + size > len(data):
            msg = "it ends within a message"
            raise ValueError(msg)
        yield data[place : place + size]
        place += size


def _take(data: bytes, place: int) -> tuple[int, int]:
    """A number, and where the next one begins."""
    value, shift = 0, 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


_FIXED = MappingProxyType({1: 8, 5: 4})  # bytes of other wire types


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers of fields, each with its number or its bytes."""
    place = 0
    while place < len(data):
        key, place = _take(data, place)
        wire = key & 7
        if wire == _VARINT:
            value, place = _take(data, place)
            yield key >> 3, value
            continue
        if wire == _BYTES:
            size, place = _take(data, place)
        else:
            size = _FIXED[wire]
        if place + size > len(data):
            msg = "a field ends beyond its message"
            raise ValueError(msg)
        yield key >> 3, data[place : place + size]
        place += size


def _read_node(message: bytes) -> TraceNode:
    number, name, kind, after = 0, "", 0, list[int]()
    attributes: dict[str, Value] = {}
    for place, value in _fields(message):
        if isinstance(value, int):
            number, kind = (value if place == 1 else number), (value if place == 3 else kind)
            after += [value] if place == 5 else []
        elif place == 2:
            name = value.decode()
        elif place == 5:
            after += _packed(value)
        elif place == 10:
            attributes |= _read_attribute(value)
    return TraceNode(number, name, kind, tuple(after), attributes)


def _packed(data: bytes) -> Sequence[int]:
    found, place = [], 0
    while place < len(data):
        value, place = _take(data, place)
        found.append(value)
    return found


def _read_attribute(message: bytes) -> dict[str, Value]:
    """A number, truth or word by its name; lists and fractions are left out."""
    found = dict(_fields(message))
    name = found.get(_NAME)
    called = name.decode() if isinstance(name, bytes) else ""
    for place in (_INT64, _UINT64, 7, 11):
        if isinstance(value := found.get(place), int):
            return {called: value}
    if isinstance(truth := found.get(_BOOL), int):
        return {called: bool(truth)}
    word = found.get(_STRING)
    return {called: word.decode()} if isinstance(word, bytes) else {}
