"""The winner: its package drawn to scale, its hardware fields, and where its area and power go."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from phaze.explore.documents.result_document import Design
from phaze.report import number_format as fmt
from phaze.report.figures.report_contents import Contents
from phaze.report.html_markup import (
    Bar,
    Html,
    Section,
    bars,
    figure,
    join,
    legend,
    pair,
    paragraph,
    table,
    tag,
)
from phaze.report.number_format import label
from phaze.report.part_words import AREA, POWER
from phaze.report.terminal.design_tables import shown_fields


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle, mm or any other length."""

    x: float
    y: float
    width: float
    height: float

    @property
    def area(self) -> float:
        """Width times height."""
        return self.width * self.height


def treemap(areas: Sequence[float], room: Rect) -> list[Rect]:
    """One rectangle per area, in their order, filling `room`; the areas are taken as shares of it.

    Squarified: rows along the shorter side, each as long as that makes its rectangles squarer (Bruls, Huizing,
    van Wijk, 2000). Areas are best given from large to small, and must be greater than zero.
    """
    factor = room.area / sum(areas) if areas else 1.0
    left = [area * factor for area in areas]
    placed: list[Rect] = []
    while left:
        count = 1
        side = min(room.width, room.height)
        while count < len(left) and _worst(left[: count + 1], side) <= _worst(left[:count], side):
            count += 1
        row, room = _treemap_row(left[:count], room)
        placed += row
        left = left[count:]
    return placed


def _worst(row: Sequence[float], side: float) -> float:
    """The largest ratio of sides among rectangles of these areas, put along `side`."""
    depth = sum(row) / side
    return max(max(depth**2 / area, area / depth**2) for area in row)


def _treemap_row(row: Sequence[float], room: Rect) -> tuple[list[Rect], Rect]:
    """The rectangles of a row along the shorter side of the room, and what is left of it."""
    upright = room.width >= room.height
    depth = sum(row) / (room.height if upright else room.width)
    placed, at = [], 0.0
    for area in row:
        length = area / depth
        if upright:
            placed.append(Rect(room.x, room.y + at, depth, length))
        else:
            placed.append(Rect(room.x + at, room.y, length, depth))
        at += length
    if upright:
        return placed, Rect(room.x + depth, room.y, room.width - depth, room.height)
    return placed, Rect(room.x, room.y + depth, room.width, room.height - depth)


@dataclass(frozen=True, slots=True)
class Part:
    """A part in words, and the class that colours it: 1, 2 compute, 3 storage, 4 interfaces, 6, 7 everything else."""

    name: str
    look: str


_AREA_LOOKS = {
    "mac": "c1",
    **dict.fromkeys(("lane", "int32", "fp64", "simt"), "c2"),
    **dict.fromkeys(("registers", "local", "global"), "c3"),
    **dict.fromkeys(("hbm_phy", "link"), "c4"),
    "misc": "c7",
}
_POWER_LOOKS = {
    **dict.fromkeys(("mac", "operands"), "c1"),
    "vector": "c2",
    **dict.fromkeys(("hbm", "hbm_background", "link"), "c4"),
    "leakage": "c7",
}
TIME: Mapping[str, Part] = {
    "compute_s": Part("compute", "c1"),
    "memory_s": Part("waiting for HBM", "c3"),
    "global_buffer_s": Part("waiting for the global buffer", "c2"),
    "collective_s": Part("communication", "c4"),
    "bubble_s": Part("pipeline fill and drain", "c7"),
    "optimizer_s": Part("optimizer step", "c5"),
    "host_s": Part("waiting for the host", "c6"),
}
GROUPS: Mapping[str, str] = {
    "c1": "matrix compute",
    "c2": "vector compute",
    "c3": "storage",
    "c4": "interfaces",
    "c6": "everything else",
}


def area_part(name: str) -> Part:
    """A part of the area; one that nobody knows is called by its name."""
    return Part(AREA.get(name, label(name)), _AREA_LOOKS.get(name, "c6"))


def power_part(name: str) -> Part:
    """A part of the power."""
    return Part(POWER.get(name, label(name)), _POWER_LOOKS.get(name, "c6"))


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
        placed.append(("hbm_phy", Rect(die.x, die.y, strip, die.height), phy / 2))
        placed.append(("hbm_phy", Rect(die.x + die.width - strip, die.y, strip, die.height), phy / 2))
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


def architecture(contents: Contents) -> Iterator[Section]:
    """The floorplan with the fields, then area and power."""
    best = contents.document.best
    picture = join([legend(GROUPS), floorplan(best)])
    caption = (
        f"{best.id}, drawn to scale: {fmt.number(best.area_mm2)} mm² of silicon. Areas are the model's, positions are "
        f"not a layout. HBM stacks are shown with the footprint of HBM2 ({STACK_MM[0]:g} x {STACK_MM[1]:g} mm) and "
        "are no part of the area."
    )
    fields = table(["", ""], shown_fields(best.architecture), look="facts")
    yield Section("architecture", "Architecture", pair(figure(picture, caption), fields))
    yield Section("area-power", "Area and power", join(_area_and_power(best)))


def _area_and_power(best: Design) -> Iterator[Html]:
    yield pair(
        join([tag("h3", "Area"), _parts(best.area_parts_mm2, "mm²", best.area_mm2, area_part)]),
        join([tag("h3", "Power, worst case"), _parts(best.power_parts_w, "W", best.tdp_w, power_part)]),
    )
    drawn = sum(best.power_parts_w.values())
    if best.tdp_w > drawn * (1 + 1e-9):
        yield paragraph(
            f"The total holds a margin of {fmt.percent(best.tdp_w / drawn - 1)} over what is drawn."
        )


def _parts(values: Mapping[str, float], unit: str, total: float, part: Callable[[str], Part]) -> Html:
    """Every part that is not zero, largest first."""
    ordered = sorted(((name, value) for name, value in values.items() if value), key=lambda item: -item[1])
    largest = ordered[0][1] if ordered else 1.0
    rows: list[list[object]] = [
        [
            part(name).name,
            fmt.number(value),
            fmt.percent(value / total),
            bars([Bar(value / largest, part(name).look)]),
        ]
        for name, value in ordered
    ]
    rows.append([tag("strong", "total"), tag("strong", fmt.number(total)), "", ""])
    return table(["", unit, "share", ""], rows, look="wide")
