"""A drawing as Graphviz's DOT, as Mermaid, as SVG and as JSON (docs/formats/graph.md)."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict

from phaze.errors import InputError
from phaze.report import format as fmt
from phaze.report.drawing import Drawing, Node, Side

GRAPH_FORMAT = "dse-graph/1"
_COLOURS = {Side.FORWARD: "#dbe9f6", Side.BACKWARD: "#fde3c8"}


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
    for side, nodes in _sides(drawing):
        lines += [f"  subgraph cluster_{side} {{", f"    label={_quoted(side.value)};"]
        fill = _quoted(_COLOURS[side])
        lines += [f"    {n.id} [label={_quoted(_label(n))}, fillcolor={fill}];" for n in nodes]
        lines.append("  }")
    lines += [f"  {drawing.nodes[a].id} -> {drawing.nodes[b].id};" for a, b in drawing.edges]
    return "\n".join([*lines, "}"]) + "\n"


def to_mermaid(drawing: Drawing) -> str:
    """A flowchart with one subgraph per pass."""
    lines = ["flowchart TD"]
    for side, nodes in _sides(drawing):
        lines.append(f"  subgraph {side}")
        lines += [f'    {n.id}["{_entities(_label(n))}"]:::{side}' for n in nodes]
        lines.append("  end")
    lines += [f"  {drawing.nodes[a].id} --> {drawing.nodes[b].id}" for a, b in drawing.edges]
    lines += [f"  classDef {side} fill:{colour}" for side, colour in _COLOURS.items()]
    return "\n".join(lines) + "\n"


def to_svg(drawing: Drawing) -> str:
    """The DOT text, laid out by Graphviz. Raises InputError where its `dot` is missing or fails."""
    program = shutil.which("dot")
    if program is None:
        raise InputError(
            "--format svg needs the dot program of Graphviz; install it, or take --format mermaid"
        )
    done = subprocess.run(
        [program, "-Tsvg"],
        input=to_dot(drawing),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise InputError(f"Graphviz could not lay the graph out: {done.stderr.strip() or done.returncode}")
    return done.stdout


def _sides(drawing: Drawing) -> Iterator[tuple[Side, list[Node]]]:
    """The passes there are, with their nodes."""
    for side in Side:
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
