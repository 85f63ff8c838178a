"""A drawing as a table for the terminal: who waits for whom, and how large each part is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.markup import escape
from rich.table import Table

from phaze.report import format as fmt
from phaze.report.design import plain_table
from phaze.report.drawing import Drawing, Node, Side

_LONGEST_PATTERN = 12


def drawing_tables(drawing: Drawing) -> Iterator[Table]:
    """A model as one table of its layers; a layer as one table per pass."""
    if drawing.layer is None:
        yield _layers(drawing)
        return
    for side in Side:
        if any(node.side is side for node in drawing.nodes):
            yield _operators(drawing, side)


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


def _layers(drawing: Drawing) -> Table:
    """One row per layer; patterns that repeat are written once."""
    chain = drawing.chain
    title = f"{escape(drawing.title)}, FLOPs of each pass"
    table = plain_table(title, "", "layer", "times", "operators", "parameters", *Side, "kept")
    table.columns[1].justify = "left"
    sides = [_of_side(drawing, side) for side in Side]
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


def _operators(drawing: Drawing, side: Side) -> Table:
    """One row per operator, with the numbers of those it waits for."""
    nodes = _of_side(drawing, side)
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


def _of_side(drawing: Drawing, side: Side) -> list[Node]:
    return [node for node in drawing.nodes if node.side is side]


def _count(value: float) -> str:
    return fmt.decimal(value, "").strip() if value else "-"
