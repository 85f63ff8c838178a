"""The package drawn to scale: dies with their components by area, HBM stacks at two edges.

The areas are the model's; where a component lies on the die is a drawing, not a layout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from phaze.explore.documents.result_document import Design
from phaze.report import format as fmt
from phaze.report.figures.parts import Part, area_part
from phaze.report.figures.treemap import Rect, treemap
from phaze.report.page.markup import Html, join, tag

STACK_MM = (7.75, 11.87)
"""Footprint of an HBM2 stack (JESD235); later generations differ by a millimetre or two."""

_GAP_MM, _DIE_GAP_MM, _MARGIN_MM = 1.0, 0.4, 1.2
_MOST_CELLS = 256  # cores that are drawn one by one
_LETTER, _LINE = 0.62, 1.25  # width of a letter and height of a line, in sizes of the type


@dataclass(frozen=True, slots=True)
class _Package:
    """Where everything lies, mm."""

    width: float
    height: float
    dies: tuple[Rect, ...]
    stacks: tuple[Rect, ...]

    @property
    def type_mm(self) -> dict[str, float]:
        """Sizes of the type by class: on a phone, where the picture is smallest; on wide pages only."""
        return {"": 0.034 * self.width, " onwide": 0.0215 * self.width}


def floorplan(design: Design) -> Html:
    """The picture as SVG, one unit to the millimetre."""
    package = _package(design)
    inside = join(
        [
            *(_stack(stack, design) for stack in package.stacks),
            *(block for die in package.dies for block in _die(die, design, package)),
            _scale(package),
        ]
    )
    narrow, wide = package.type_mm.values()
    label = f"Floorplan of {design.id}: {fmt.number(design.area_mm2)} mm², drawn to scale"
    return tag(
        "svg",
        tag("title", label),
        inside,
        look="plan",
        viewBox=f"0 0 {package.width:.3f} {package.height:.3f}",
        role="img",
        style=f"--narrow:{narrow:.3f}px;--wide:{wide:.3f}px",
    )


def _package(design: Design) -> _Package:
    """Dies side by side in the middle, stacks left and right of them."""
    dies = int(design.architecture.get("n_dies", 1))
    stacks = int(design.architecture.get("hbm_stacks", 0))
    side = math.sqrt(design.area_mm2 / dies)
    columns = math.ceil(math.sqrt(dies)) if dies > 2 else dies
    rows = math.ceil(dies / columns)
    across = columns * side + (columns - 1) * _DIE_GAP_MM
    tall = rows * side + (rows - 1) * _DIE_GAP_MM
    sides = [math.ceil(stacks / 2), stacks // 2]
    height = max(tall, max(sides) * (STACK_MM[1] + _DIE_GAP_MM)) + 2 * _MARGIN_MM
    left = _MARGIN_MM + (STACK_MM[0] + _GAP_MM if stacks else 0.0)
    width = 2 * left + across
    step = side + _DIE_GAP_MM
    top = (height - tall) / 2
    placed = tuple(
        Rect(left + (i % columns) * step, top + (i // columns) * step, side, side) for i in range(dies)
    )
    edges = zip((_MARGIN_MM, width - _MARGIN_MM - STACK_MM[0]), sides, strict=True)
    return _Package(
        width, height + 2.2, placed, tuple(s for x, count in edges for s in _column(x, count, height))
    )


def _column(x: float, count: int, height: float) -> Iterator[Rect]:
    """Stacks above each other, spread evenly."""
    step = (height - 2 * _MARGIN_MM) / max(1, count)
    for i in range(count):
        middle = _MARGIN_MM + (i + 0.5) * step
        yield Rect(x, middle - STACK_MM[1] / 2, *STACK_MM)


def _die(die: Rect, design: Design, package: _Package) -> Iterator[Html]:
    """The components of one die: HBM interfaces at the edges of the stacks, links below, the rest by area."""
    dies = len(package.dies)
    parts = {name: area / dies for name, area in design.area_parts_mm2.items() if area > 0}
    phy, links = parts.pop("hbm_phy", 0.0), parts.pop("link", 0.0)
    strip = phy / 2 / die.height
    bottom = links / (die.width - 2 * strip)
    placed: list[tuple[str, Rect, float]] = []
    if phy:
        placed.append(("hbm_phy", Rect(die.x, die.y, strip, die.height), phy))
        placed.append(("hbm_phy", Rect(die.x + die.width - strip, die.y, strip, die.height), phy))
    if links:
        edge = Rect(die.x + strip, die.y + die.height - bottom, die.width - 2 * strip, bottom)
        placed.append(("link", edge, links))
    room = Rect(die.x + strip, die.y, die.width - 2 * strip, die.height - bottom)
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    rects = treemap([area for _, area in ordered], room)
    placed += [(name, rect, area) for (name, area), rect in zip(ordered, rects, strict=True)]
    for name, rect, area in placed:
        yield _block(area_part(name), rect, area, package, _cells(name, design.architecture, dies))


def _block(part: Part, rect: Rect, area: float, package: _Package, cells: int) -> Html:
    """A component with its name where it fits, and its cores as cells."""
    tip = tag("title", f"{part.name}: {fmt.number(area)} mm²" + (" per die" if package.dies[1:] else ""))
    drawn = tag("rect", tip, look=f"block {part.look}", **_place(rect))
    return join([drawn, *_grid(rect, cells), *_name(part, rect, area, package.type_mm)])


def _name(part: Part, rect: Rect, area: float, sizes: Mapping[str, float]) -> Iterator[Html]:
    """The name in the middle, broken into lines; upright in a narrow strip.

    Where there is no room for the area the name stands alone, and where there is none for that, nothing does.
    """
    words = [*part.name.split(), f"{fmt.number(area)} mm²"]
    upright = rect.height > 2.5 * rect.width
    across, tall = (rect.height, rect.width) if upright else (rect.width, rect.height)
    fitting = (
        (look, _wrapped(told, across, tall, size))
        for told in (words, words[:-1])
        for look, size in sizes.items()
    )
    look, lines = next((found for found in fitting if found[1]), ("", []))
    if not lines:
        return
    x, y = rect.x + rect.width / 2, rect.y + rect.height / 2
    turn = f"rotate(-90 {x:.3f} {y:.3f})" if upright else None
    first = 0.35 - (len(lines) - 1) * _LINE / 2
    spans = [
        tag("tspan", line, x=f"{x:.3f}", dy=f"{first if i == 0 else _LINE:.2f}em")
        for i, line in enumerate(lines)
    ]
    yield tag("text", *spans, look=f"t{part.look[1:]}{look}", y=f"{y:.3f}", transform=turn)


def _wrapped(words: list[str], across: float, tall: float, size: float) -> list[str]:
    """The words in lines that fit into so much room at a size of type; none where they do not."""
    letters = across / (_LETTER * size)
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= letters:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    fits = max(map(len, lines)) <= letters and len(lines) * _LINE * size <= tall
    return lines if fits else []


def _cells(name: str, fields: Mapping[str, object], dies: int) -> int:
    """How many equal cores a component is made of on one die; 1 where it is drawn whole."""
    count = fields.get({"mac": "tensor_cores", "lane": "vector_cores"}.get(name, ""), 1)
    return int(count) // dies if isinstance(count, int) and 1 < count // dies <= _MOST_CELLS else 1


def _grid(rect: Rect, cells: int) -> Iterator[Html]:
    """Outlines of equal cells."""
    if cells > 1:
        for cell in treemap([1.0] * cells, rect):
            yield tag("rect", look="cell", **_place(cell))


def _stack(rect: Rect, design: Design) -> Html:
    name = str(design.architecture.get("hbm_generation", "HBM"))
    x, y = rect.x + rect.width / 2, rect.y + rect.height / 2
    label = tag("text", name, look="note", x=f"{x:.3f}", y=f"{y:.3f}", dy="0.35em")
    return join([tag("rect", look="stack", rx="0.25", **_place(rect)), label])


def _scale(package: _Package) -> Html:
    """A ruler of 10 mm."""
    y, x = package.height - 1.0, package.dies[0].x
    line = tag("line", look="scale", x1=f"{x:.3f}", x2=f"{x + 10:.3f}", y1=f"{y:.3f}", y2=f"{y:.3f}")
    label = tag(
        "text",
        "10 mm",
        look="note",
        x=f"{x + 10.6:.3f}",
        y=f"{y:.3f}",
        dy="0.35em",
        style="text-anchor:start",
    )
    return join([line, label])


def _place(rect: Rect) -> dict[str, str]:
    return {
        "x": f"{rect.x:.3f}",
        "y": f"{rect.y:.3f}",
        "width": f"{rect.width:.3f}",
        "height": f"{rect.height:.3f}",
    }
