"""Operator graphs of common networks, and what training adds to them: dX and dW of every operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chips import Work

ELEMENT_BYTES = 2
"""Half precision."""


@dataclass(frozen=True)
class Node:
    """An operator: its work, the operators it reads, and whether it owns weights (and so has a dW)."""

    name: str
    work: Work
    after: tuple[str, ...]
    weights: bool = False


class Graph:
    """Operators in topological order, added one by one; every method returns the new operator's name."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def linear(
        self, name: str, after: str, rows: int, inner: int, columns: int, *, fused: bool = False
    ) -> str:
        """Activations times weights; `fused` with an activation function on the vector core."""
        elements = 4 * rows * columns if fused else 0
        return self._add(Node(name, Work(1, rows, inner, columns, elements), (after,), weights=True))

    def product(
        self, name: str, after: tuple[str, str], heads: int, rows: int, inner: int, columns: int
    ) -> str:
        """Two activations multiplied, head by head."""
        return self._add(Node(name, Work(heads, rows, inner, columns), after))

    def vector(self, name: str, after: Sequence[str], elements: int, passes: int = 1) -> str:
        """Elementwise work or a reduction: several passes over the elements, one read and one write."""
        work = Work(elements=elements * passes, moved_bytes=2 * ELEMENT_BYTES * elements)
        return self._add(Node(name, work, tuple(after)))

    def _add(self, node: Node) -> str:
        self.nodes.append(node)
        return node.name


def backward(forward: Sequence[Node]) -> list[Node]:
    """Gradient operators of a forward graph, starting at its outputs.

    An operator that several others read has their gradients summed; operators that read nothing need no dX.
    """
    work = {node.name: node.work for node in forward}
    arriving: dict[str, list[str]] = {node.name: [] for node in forward}
    gradients: list[Node] = []
    for node in reversed(forward):
        source = tuple(arriving[node.name])
        if len(source) > 1:
            gradients.append(_sum(node, source))
            source = (gradients[-1].name,)
        for gradient, targets in _gradients(node, work, source):
            gradients.append(gradient)
            for target in targets:
                arriving[target].append(gradient.name)
    return gradients


def training(forward: Sequence[Node]) -> list[Node]:
    """Forward graph, loss, and all gradients; the loss makes every gradient wait for every output."""
    read = {name for node in forward for name in node.after}
    outputs = tuple(node.name for node in forward if node.name not in read)
    elements = sum(_output_elements(node.work) for node in forward if node.name in outputs)
    loss = Node("loss", Work(elements=4 * elements, moved_bytes=2 * ELEMENT_BYTES * elements), outputs)
    gradients = [
        node if node.after else Node(node.name, node.work, (loss.name,)) for node in backward(forward)
    ]
    return [*forward, loss, *gradients]


def _sum(node: Node, source: tuple[str, ...]) -> Node:
    elements = _output_elements(node.work)
    moved = ELEMENT_BYTES * elements * (len(source) + 1)
    return Node(f"d_{node.name}_sum", Work(elements=elements * len(source), moved_bytes=moved), source)


def _gradients(
    node: Node, work: dict[str, Work], source: tuple[str, ...]
) -> list[tuple[Node, tuple[str, ...]]]:
    """Gradient operators of one operator, each with the operators whose outputs it differentiates."""
    shape, after = node.work, node.after
    if not shape.gemms:
        return [(Node(f"d_{node.name}", shape, source), after)]
    second = Work(shape.gemms, shape.inner, shape.rows, shape.columns)
    if not node.weights:
        first = Work(shape.gemms, shape.rows, shape.columns, shape.inner)
        return [
            (Node(f"{node.name}_da", first, source), after[:1]),
            (Node(f"{node.name}_db", second, source), after[1:]),
        ]
    by_weight = (Node(f"{node.name}_dw", second, source), ())
    derivative = work[after[0]].elements if after and work[after[0]].gemms else 0
    by_input = Work(shape.gemms, shape.rows, shape.columns, shape.inner, derivative)
    return ([(Node(f"{node.name}_dx", by_input, source), after)] if after else []) + [by_weight]


def _output_elements(work: Work) -> int:
    return work.gemms * work.rows * work.columns if work.gemms else work.moved_bytes // (2 * ELEMENT_BYTES)
