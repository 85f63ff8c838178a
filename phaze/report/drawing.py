"""What `dse graph` draws: the layers of a workload, or the operators of one layer, in both passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from itertools import pairwise

from phaze.errors import InputError
from phaze.workload.work import Layer, LayerChain, Pass
from phaze.workload.workload_overview import Totals, totals_of


class Side(StrEnum):
    """Which pass a node belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class Node:
    """A layer's pass or an operator. `unit` is what an operator occupies, empty for a layer."""

    id: str
    name: str
    kind: str
    side: Side
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
        """What is drawn, in words."""
        return f"{self.chain.workload}, {self.mode}" + (f": {self.layer}" if self.layer else "")


def draw_model(chain: LayerChain, mode: str) -> Drawing:
    """Layer after layer forward, and in training back again; backward reads what forward kept."""
    layers = [(name, chain.layers[number]) for name, number in zip(chain.names, chain.index, strict=True)]
    count = len(layers)
    nodes = [
        Node(f"f{i}", name, layer.kind, Side.FORWARD, "", _totals(layer, layer.forward))
        for i, (name, layer) in enumerate(layers, 1)
    ]
    edges = list(pairwise(range(count)))
    if any(layer.backward for _, layer in layers):
        for i, (name, layer) in reversed(tuple(enumerate(layers, 1))):
            totals = totals_of(layer.backward.works if layer.backward else ())
            edges += [(len(nodes) - 1, len(nodes)), (i - 1, len(nodes))]
            nodes.append(Node(f"b{i}", name, layer.kind, Side.BACKWARD, "", totals))
    return Drawing(chain, mode, None, tuple(nodes), tuple(sorted(set(edges))))


def draw_layer(chain: LayerChain, mode: str, which: str) -> Drawing:
    """Operators of one layer, as scheduled: after fusion, views left out.

    The passes are not joined: between them lie the other layers. Raises InputError for no such layer.
    """
    position = _position(chain, which)
    layer = chain.layers[chain.index[position]]
    halves = [(Side.FORWARD, layer.forward)]
    halves += [(Side.BACKWARD, layer.backward)] if layer.backward else []
    nodes: list[Node] = []
    edges: list[tuple[int, int]] = []
    for side, half in halves:
        edges += [(a + len(nodes), b + len(nodes)) for a, b in half.edges]
        nodes += _operators(side, half)
    return Drawing(chain, mode, chain.names[position], tuple(nodes), tuple(edges))


def _operators(side: Side, half: Pass) -> Iterator[Node]:
    for i, work in enumerate(half.works, 1):
        yield Node(f"{side[0]}{i}", work.name, work.kind, side, work.unit.value, totals_of((work,)))


def _totals(layer: Layer, half: Pass) -> Totals:
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
