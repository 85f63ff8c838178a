"""Layered drawing of a graph: boxes in rows, each below what it waits for, and curves between them, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from phaze.report import palette

_FONT, _WIDE = 12, 0.6  # px, and width of a character over it
_LINE, _PAD, _GAP, _BELOW, _MARGIN = 16, 10, 18, 34, 24  # px
_HEAD = 56  # px above the first row: the title, and the names of the groups


@dataclass(frozen=True, slots=True)
class Box:
    """A box of one or more lines, in a group that has a column of its own; `row` counts from the top."""

    id: str
    lines: tuple[str, ...]
    group: str
    row: int

    @property
    def width(self) -> float:
        """Width in px, as wide as its longest line."""
        return 2 * _PAD + _WIDE * _FONT * max(map(len, self.lines))


@dataclass(frozen=True, slots=True)
class LayeredGraph:
    """Boxes, and pairs (before, after) of their ids."""

    title: str
    boxes: Sequence[Box]
    edges: Sequence[tuple[str, str]]
    fills: Mapping[str, str]
    """Colour of every group, in their order from the left."""


def longest_paths(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Row of every node of a graph whose edges lead to later nodes: the longest way there."""
    rows = [0] * count
    for before, after in sorted(edges, key=lambda edge: edge[1]):
        rows[after] = max(rows[after], rows[before] + 1)
    return rows


def layered_svg(graph: LayeredGraph) -> str:
    """The whole SVG document; all texts are escaped."""
    placed, width = _placed(graph)
    height = _HEAD + _row_height(graph) * (1 + max(box.row for box in graph.boxes)) + _MARGIN
    title = escape(graph.title)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(graph.title, {chr(34): "&quot;"})}">',
        f"<style>text{{font:{_FONT}px sans-serif;fill:{palette.INK};text-anchor:middle}}"
        f".t{{font-weight:bold;text-anchor:start}}path{{fill:none;stroke:{palette.INK};opacity:.5}}"
        f"rect{{stroke:{palette.INK};stroke-width:.5}}</style>",
        f'<marker id="arrow" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
        f'<path d="M0 0L6 3L0 6z" style="fill:{palette.INK}"/></marker>',
        f'<rect width="100%" height="100%" fill="#fff" style="stroke:none"/><text class="t" x="{_MARGIN}" y="20">'
        f"{title}</text>",
        *(_name(group, graph, placed) for group in graph.fills),
        *(_curve(placed[a], placed[b]) for a, b in graph.edges),
        *(_drawn(box, placed[box.id], graph.fills[box.group]) for box in graph.boxes),
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


@dataclass(frozen=True, slots=True)
class _Place:
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def _name(group: str, graph: LayeredGraph, placed: Mapping[str, _Place]) -> str:
    """Name of a group above its boxes."""
    own = [placed[box.id] for box in graph.boxes if box.group == group]
    middle = (min(at.x for at in own) + max(at.x + at.width for at in own)) / 2
    return f'<text x="{middle:.1f}" y="{_HEAD - 8}">{escape(group)}</text>'


def _row_height(graph: LayeredGraph) -> float:
    return _LINE * max(len(box.lines) for box in graph.boxes) + _PAD + _BELOW


def _placed(graph: LayeredGraph) -> tuple[dict[str, _Place], float]:
    """Place of every box, groups side by side with their rows centred, and the width of the picture."""
    found: dict[str, _Place] = {}
    left, step = float(_MARGIN), _row_height(graph)
    for group in graph.fills:
        rows: dict[int, list[Box]] = {}
        for box in graph.boxes:
            if box.group == group:
                rows.setdefault(box.row, []).append(box)
        widths = {row: sum(box.width for box in some) + _GAP * (len(some) - 1) for row, some in rows.items()}
        widest = max(widths.values(), default=0.0)
        for row, some in rows.items():
            x = left + (widest - widths[row]) / 2
            for box in some:
                found[box.id] = _Place(x, _HEAD + row * step, box.width, step - _BELOW)
                x += box.width + _GAP
        left += widest + (2 * _MARGIN if rows else 0.0)
    return found, left


def _curve(a: _Place, b: _Place) -> str:
    """From one box to the next: down or up between rows, across within one."""
    if abs(a.y - b.y) < 1:
        first, last = (a, b) if a.x < b.x else (b, a)
        return f'<path d="M{first.x + first.width:.1f} {a.y + a.height / 2:.1f}H{last.x:.1f}"/>'
    down = a.y < b.y
    start, end = (a.y + a.height, b.y) if down else (a.y, b.y + b.height)
    half = (start + end) / 2
    return (
        f'<path d="M{a.middle:.1f} {start:.1f}C{a.middle:.1f} {half:.1f} {b.middle:.1f} {half:.1f} '
        f'{b.middle:.1f} {end:.1f}" marker-end="url(#arrow)"/>'
    )


def _drawn(box: Box, at: _Place, fill: str) -> str:
    lines = [
        f'<text x="{at.middle:.1f}" y="{at.y + _PAD / 2 + _LINE * (k + 0.75):.1f}">{escape(line)}</text>'
        for k, line in enumerate(box.lines)
    ]
    size = f'width="{at.width:.1f}" height="{at.height:.1f}"'
    shape = f'<rect x="{at.x:.1f}" y="{at.y:.1f}" {size} rx="4" fill="{fill}"/>'
    return f"<g>{shape}{''.join(lines)}</g>"
