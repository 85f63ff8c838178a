"""Chart of `dse graph`: the layers of a workload, or the operators of one layer, in both passes; as DOT
(Graphviz), Mermaid, SVG, JSON (docs/formats/graph.md) and as a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from itertools import groupby, pairwise

from rich.markup import escape
from rich.table import Table

from phaze.document_names import DocumentName
from phaze.errors import InputError
from phaze.report import number_format as fmt
from phaze.report import palette
from phaze.report.charts.layered_graph import Box, LayeredGraph, layered_svg, longest_paths
from phaze.report.terminal.design_tables import plain_table
from phaze.workload.work import Layer, LayerChain, Pass, block_of
from phaze.workload.workload_overview import Totals, totals_of


class NodePass(StrEnum):
    """Which pass a node belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class Node:
    """A layer's pass or an operator. `unit` is what an operator occupies, empty for a layer."""

    id: str
    name: str
    kind: str
    side: NodePass
    unit: str
    totals: Totals


@dataclass(frozen=True, slots=True)
class Drawing:
    """Nodes in an order that respects precedence; `edges` are pairs (before, after) of positions.

    `layer` is the name of the layer drawn, None for the whole model.
    """

    chain: LayerChain
    mode: str
    layer: str | None
    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int], ...]

    @property
    def title(self) -> str:
        """Title of the chart: workload, mode and, of one layer alone, its name."""
        return f"{self.chain.workload}, {self.mode}" + (f": {self.layer}" if self.layer else "")


def draw_model(chain: LayerChain, mode: str) -> Drawing:
    """Layer after layer forward, and in training back again; backward reads what forward kept."""
    layers = [(name, chain.layers[number]) for name, number in zip(chain.names, chain.index, strict=True)]
    count = len(layers)
    nodes = [
        Node(f"f{i}", name, layer.kind, NodePass.FORWARD, "", _pass_totals(layer, layer.forward))
        for i, (name, layer) in enumerate(layers, 1)
    ]
    edges = list(pairwise(range(count)))
    if any(layer.backward for _, layer in layers):
        for i, (name, layer) in reversed(tuple(enumerate(layers, 1))):
            totals = totals_of(layer.backward.works if layer.backward else ())
            edges += [(len(nodes) - 1, len(nodes)), (i - 1, len(nodes))]
            nodes.append(Node(f"b{i}", name, layer.kind, NodePass.BACKWARD, "", totals))
    return Drawing(chain, mode, None, tuple(nodes), tuple(sorted(set(edges))))


def draw_layer(chain: LayerChain, mode: str, which: str) -> Drawing:
    """Operators of one layer, as scheduled: after fusion, views left out.

    The passes are not joined: between them lie the other layers. Raises InputError for no such layer.
    """
    position = _position(chain, which)
    layer = chain.layers[chain.index[position]]
    halves = [(NodePass.FORWARD, layer.forward)]
    halves += [(NodePass.BACKWARD, layer.backward)] if layer.backward else []
    nodes: list[Node] = []
    edges: list[tuple[int, int]] = []
    for side, half in halves:
        edges += [(a + len(nodes), b + len(nodes)) for a, b in half.edges]
        nodes += _layer_operators(side, half)
    return Drawing(chain, mode, chain.names[position], tuple(nodes), tuple(edges))


def _layer_operators(side: NodePass, half: Pass) -> Iterator[Node]:
    for i, work in enumerate(half.works, 1):
        yield Node(f"{side[0]}{i}", work.name, work.kind, side, work.unit.value, totals_of((work,)))


def _pass_totals(layer: Layer, half: Pass) -> Totals:
    return totals_of(half.works) + Totals(parameters=layer.parameters)


def _position(chain: LayerChain, which: str) -> int:
    """Position of a layer given by its number, counted from 1, or by its name."""
    if which in chain.names:
        return chain.names.index(which)
    count = len(chain.names)
    if which.isdecimal() and 1 <= int(which) <= count:
        return int(which) - 1
    near = get_close_matches(which, chain.names, n=3, cutoff=0.4)
    hint = f"; nearest: {', '.join(near)}" if near else f", the first of which is {chain.names[0]}"
    raise InputError(f"--layer {which!r}: {chain.workload} has layers 1 to {count}{hint}")


GRAPH_FORMAT = DocumentName.GRAPH.version(1)
_COLOURS = {NodePass.FORWARD: palette.SKY, NodePass.BACKWARD: palette.TINTS[palette.ORANGE]}


def to_json(drawing: Drawing) -> str:
    """The document that `docs/formats/graph.md` describes."""
    document = {
        "format": GRAPH_FORMAT,
        "workload": drawing.chain.workload,
        "mode": drawing.mode,
        "layer": drawing.layer,
        "microbatch_size": drawing.chain.microbatch,
        "tensor_parallel": drawing.chain.tensor_parallel,
        "nodes": [
            {"id": n.id, "name": n.name, "kind": n.kind, "pass": n.side.value, "unit": n.unit or None}
            | asdict(n.totals)
            for n in drawing.nodes
        ],
        "edges": [[drawing.nodes[a].id, drawing.nodes[b].id] for a, b in drawing.edges],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def to_dot(drawing: Drawing) -> str:
    """A directed graph with one cluster per pass."""
    lines = [
        f"digraph {_quoted(_printable(drawing.title))} {{",
        '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=11];',
    ]
    for side, nodes in _passes_drawn(drawing):
        lines += [f"  subgraph cluster_{side} {{", f"    label={_quoted(side.value)};"]
        fill = _quoted(_COLOURS[side])
        lines += [f"    {n.id} [label={_quoted(_label(n))}, fillcolor={fill}];" for n in nodes]
        lines.append("  }")
    lines += [f"  {drawing.nodes[a].id} -> {drawing.nodes[b].id};" for a, b in drawing.edges]
    return "\n".join([*lines, "}"]) + "\n"


def to_mermaid(drawing: Drawing) -> str:
    """A flowchart with one subgraph per pass."""
    lines = ["flowchart TD"]
    for side, nodes in _passes_drawn(drawing):
        lines.append(f"  subgraph {side}")
        lines += [f'    {n.id}["{_entities(_label(n))}"]:::{side}' for n in nodes]
        lines.append("  end")
    lines += [f"  {drawing.nodes[a].id} --> {drawing.nodes[b].id}" for a, b in drawing.edges]
    lines += [f"  classDef {side} fill:{colour}" for side, colour in _COLOURS.items()]
    return "\n".join(lines) + "\n"


def to_svg(drawing: Drawing) -> str:
    """A picture of its own making: the passes side by side; of a model each pattern of layers once, with how often.

    Layers of a block are one box where there are too many.
    """
    boxes, edges = _model_boxes(drawing) if drawing.layer is None else _layer_boxes(drawing)
    fills = {side.value: _COLOURS[side] for side, _ in _passes_drawn(drawing)}
    return layered_svg(LayeredGraph(_printable(drawing.title), boxes, edges, fills))


def _layer_boxes(drawing: Drawing) -> tuple[list[Box], list[tuple[str, str]]]:
    """Operators of a layer, each in the row below the last one that it waits for."""
    rows = longest_paths(len(drawing.nodes), drawing.edges)
    boxes = [
        Box(node.id, tuple(_label(node).split("\n")), node.side.value, row)
        for node, row in zip(drawing.nodes, rows, strict=True)
    ]
    return boxes, [(drawing.nodes[a].id, drawing.nodes[b].id) for a, b in drawing.edges]


_MOST_BOXES = 24  # of one pass, in a picture that a person takes in at once


@dataclass(frozen=True, slots=True)
class _Shown:
    """Layers that one box stands for: those from `first` on, and how often what they are comes again."""

    first: int
    layers: int
    times: int = 1


def _model_boxes(drawing: Drawing) -> tuple[list[Box], list[tuple[str, str]]]:
    """Layers of a model, those of a pattern that repeats once: forward downwards, backward upwards beside it.

    Where that is more than a person can take in, the layers of a block are one box.
    """
    shown = _patterns([_Shown(i, 1) for i in range(len(drawing.chain.index))], drawing.chain)
    if len(shown) > _MOST_BOXES:
        shown = _patterns(list(_blocks(drawing.chain)), drawing.chain)
    sides = {side: {node.id: node for node in nodes} for side, nodes in _passes_drawn(drawing)}
    boxes, edges = [], []
    for side, nodes in sides.items():
        ids = [f"{side[0]}{part.first + 1}" for part in shown]
        for row, (name, part) in enumerate(zip(ids, shown, strict=True)):
            inside = [nodes[f"{side[0]}{i + 1}"] for i in range(part.first, part.first + part.layers)]
            first, *rest = _label(_as_one(inside)).split("\n")
            often = f" x {part.times}" if part.times > 1 else ""
            boxes.append(Box(name, (first + often, *rest), side.value, row))
        edges += list(pairwise(ids if side is NodePass.FORWARD else ids[::-1]))
    if NodePass.BACKWARD in sides:
        edges += [(f"f{part.first + 1}", f"b{part.first + 1}") for part in shown]
    return boxes, edges


def _patterns(parts: Sequence[_Shown], chain: LayerChain) -> list[_Shown]:
    """Parts of a chain, those of a pattern that follows itself once."""
    kinds: dict[tuple[int, ...], int] = {}
    made = [chain.index[part.first : part.first + part.layers] for part in parts]
    numbers = [kinds.setdefault(tuple(layers), len(kinds)) for layers in made]
    return [
        replace(part, times=times)
        for start, length, times in repeats(numbers)
        for part in parts[start : start + length]
    ]


def _blocks(chain: LayerChain) -> Iterator[_Shown]:
    """Layers in a row that belong to one block."""
    first = 0
    for _, names in groupby(chain.names, block_of):
        layers = len(tuple(names))
        yield _Shown(first, layers)
        first += layers


def _as_one(nodes: Sequence[Node]) -> Node:
    """Several layers' passes as one, called by their block."""
    if len(nodes) == 1:
        return nodes[0]
    totals = sum((node.totals for node in nodes[1:]), nodes[0].totals)
    return replace(nodes[0], name=block_of(nodes[0].name), kind=f"{len(nodes)} layers", totals=totals)


def _passes_drawn(drawing: Drawing) -> Iterator[tuple[NodePass, list[Node]]]:
    """The passes there are, with their nodes."""
    for side in NodePass:
        if nodes := [node for node in drawing.nodes if node.side is side]:
            yield side, nodes


def _label(node: Node) -> str:
    """Name; kind and size on a second line."""
    totals = node.totals
    size = [fmt.decimal(totals.flops, "FLOP")] if totals.flops else []
    size.append(fmt.memory(totals.bytes))
    return f"{_printable(node.name)}\n{_printable(node.kind)}, {', '.join(size)}"


def _printable(text: str) -> str:
    return "".join(filter(str.isprintable, text))


def _quoted(text: str) -> str:
    """A DOT string; a line break is written as DOT does."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _entities(text: str) -> str:
    """Text inside Mermaid's quotes: letters, digits and harmless signs as they are, others as their codes."""
    return "<br/>".join("".join(map(_entity, line)) for line in text.split("\n"))


def _entity(character: str) -> str:
    harmless = character.isalnum() or character in " .,_-+"
    return character if harmless else f"#{ord(character)};"


_LONGEST_PATTERN = 12


def drawing_tables(drawing: Drawing) -> Iterator[Table]:
    """A model as one table of its layers; a layer as one table per pass."""
    if drawing.layer is None:
        yield _layers_table(drawing)
        return
    for side in NodePass:
        if any(node.side is side for node in drawing.nodes):
            yield _operators_table(drawing, side)


def repeats(numbers: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Cut a sequence into patterns that follow one another: (start, length of the pattern, times).

    Greedy from the left, the pattern that covers most; patterns are at most 12 long.
    """
    start = 0
    while start < len(numbers):
        length, times = 1, 1
        for size in range(1, min(_LONGEST_PATTERN, (len(numbers) - start) // 2) + 1):
            count = _times(numbers, start, size)
            if count > 1 and count * size > length * times:
                length, times = size, count
        yield start, length, times
        start += length * times


def _times(numbers: Sequence[int], start: int, size: int) -> int:
    """How often the pattern of that size at `start` stands there."""
    pattern, count = numbers[start : start + size], 1
    while numbers[start + count * size : start + (count + 1) * size] == pattern:
        count += 1
    return count


def _layers_table(drawing: Drawing) -> Table:
    """One row per layer; patterns that repeat are written once."""
    chain = drawing.chain
    title = f"{escape(drawing.title)}, FLOPs of each pass"
    table = plain_table(title, "", "layer", "times", "operators", "parameters", *NodePass, "kept")
    table.columns[1].justify = "left"
    sides = [_of_pass(drawing, side) for side in NodePass]
    sides[1].reverse()
    for start, length, times in repeats(chain.index):
        for i in range(start, start + length):
            layer = chain.layers[chain.index[i]]
            halves = [side[i].totals for side in sides if side]
            table.add_row(
                str(i + 1),
                escape(chain.names[i]),
                ("" if times == 1 else f"{times}" if length == 1 else f"| {times}"),
                " + ".join(f"{half.operators}" for half in halves),
                _count(layer.parameters),
                *(_count(half.flops) for half in halves),
                *([] if sides[1] else ["-"]),
                fmt.memory(layer.saved_bytes),
            )
    return table


def _operators_table(drawing: Drawing, side: NodePass) -> Table:
    """One row per operator, with the numbers of those it waits for."""
    nodes = _of_pass(drawing, side)
    first = drawing.nodes.index(nodes[0])
    before: dict[int, list[int]] = {}
    for a, b in drawing.edges:
        before.setdefault(b - first, []).append(a - first + 1)
    table = plain_table(f"{escape(drawing.title)}, {side}", "", "after", "operator", "unit", "FLOPs", "bytes")
    for column in table.columns[1:4]:
        column.justify = "left"
    for i, node in enumerate(nodes):
        table.add_row(
            str(i + 1),
            ", ".join(map(str, before.get(i, ()))) or "-",
            escape(node.name),
            node.unit,
            _count(node.totals.flops),
            fmt.memory(node.totals.bytes),
        )
    return table


def _of_pass(drawing: Drawing, side: NodePass) -> list[Node]:
    return [node for node in drawing.nodes if node.side is side]


def _count(value: float) -> str:
    return fmt.decimal(value, "").strip() if value else "-"
