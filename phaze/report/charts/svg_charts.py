"""Small SVG pictures: a frontier, stacked bars, predicted against measured values; and the scale that pictures
share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

import numpy as np

from phaze.arrays import Floats
from phaze.explore.request.design_metrics import Metric, Row
from phaze.report import palette
from phaze.report.number_format import number

WIDTH, HEIGHT = 720, 480
LEFT, RIGHT, TOP, BOTTOM = 90, 24, 48, 64
_FONT, _TITLE_FONT = 13, 16  # px
_WIDE = 0.6  # width of a character of a sans-serif font over its size, amply
_BESIDE = 8  # px between a point and its name
_FRONTIER_STYLE = (
    f"text{{font:13px sans-serif;fill:{palette.INK}}}.title{{font-size:16px;font-weight:bold}}"
    f".grid{{stroke:{palette.LINE}}}.axis{{stroke:{palette.INK}}}.dot{{fill:{palette.BLUE}}}"
    f".line{{fill:none;stroke:{palette.BLUE};stroke-width:2}}"
    f".dot.knee{{fill:{palette.ORANGE};stroke:{palette.INK}}}"
)


@dataclass(frozen=True)
class Scale:
    """Maps values linearly onto pixels and chooses round ticks."""

    low: float
    high: float
    first_px: float
    last_px: float

    def px(self, value: float) -> float:
        """The pixel of a value."""
        return self.first_px + (value - self.low) / (self.high - self.low) * (self.last_px - self.first_px)

    def ticks(self, about: int = 5) -> list[float]:
        """Round values inside the range, about so many."""
        step = _round_step((self.high - self.low) / about)
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def draw_frontier(rows: Sequence[Row], x: Metric, y: Metric, title: str, knee: str | None = None) -> str:
    """The whole SVG document; all texts are escaped. The design called `knee` is named and orange."""
    points = [(x.value(row), y.value(row), str(row["id"])) for row in rows]
    across = _padded_scale([p[0] for p in points], LEFT, WIDTH - RIGHT)
    up = _padded_scale([p[1] for p in points], HEIGHT - BOTTOM, TOP)
    path = " ".join(f"{across.px(a):.1f},{up.px(b):.1f}" for a, b in _steps(points, falling=x.maximise))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{_FRONTIER_STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text class="title" x="{LEFT}" y="28"{_shrunk(title, _TITLE_FONT, WIDTH - LEFT)}>{escape(title)}</text>',
        *_x_axis(across, x),
        *_y_axis(up, y),
        f'<polyline class="line" points="{path}"/>',
    ]
    for a, b, name in points:
        tip = f"{name}: {number(a)} {x.unit}, {number(b)} {y.unit}"
        at = across.px(a), up.px(b)
        kind = "dot knee" if name == knee else "dot"
        parts.append(
            f'<circle class="{kind}" cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="4"><title>{escape(tip)}</title></circle>'
        )
        if name == knee:
            parts.append(_label(f"knee: {name}", *at))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _label(text: str, x: float, y: float) -> str:
    """A text beside a point: to the right of it, or to its left where there is more room and it needs it."""
    right, left = WIDTH - x - _BESIDE, x - LEFT - _BESIDE
    side, anchor = (
        (_BESIDE, "start") if _FONT * _WIDE * len(text) <= right or right >= left else (-_BESIDE, "end")
    )
    size = _shrunk(text, _FONT, left if anchor == "end" else right)
    return f'<text x="{x + side:.1f}" y="{y + 16:.1f}" text-anchor="{anchor}"{size}>{escape(text)}</text>'


def _shrunk(text: str, font_px: float, room_px: float) -> str:
    """The style of a text that is too long for its room at its own size; nothing for others."""
    needed = font_px * _WIDE * len(text)
    return f' style="font-size:{font_px * room_px / needed:.2f}px"' if needed > room_px else ""


def _steps(points: Sequence[tuple[float, float, str]], *, falling: bool) -> list[tuple[float, float]]:
    """The edge of what the designs reach: between two of them nothing is interpolated, the worse one counts."""
    path: list[tuple[float, float]] = []
    for a, b, _ in points:
        if path:
            path.append((path[-1][0], b) if falling else (a, path[-1][1]))
        path.append((a, b))
    return path


def _x_axis(scale: Scale, axis: Metric) -> list[str]:
    bottom = HEIGHT - BOTTOM
    parts = []
    for tick in scale.ticks():
        at = f"{scale.px(tick):.1f}"
        parts.append(f'<line class="grid" x1="{at}" y1="{TOP}" x2="{at}" y2="{bottom}"/>')
        parts.append(f'<text x="{at}" y="{bottom + 20}" text-anchor="middle">{number(tick)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<line class="axis" x1="{LEFT}" y1="{bottom}" x2="{WIDTH - RIGHT}" y2="{bottom}"/>')
    parts.append(f'<text x="{middle}" y="{HEIGHT - 16}" text-anchor="middle">{_caption(axis)}</text>')
    return parts


def _y_axis(scale: Scale, axis: Metric) -> list[str]:
    parts = []
    for tick in scale.ticks():
        at = f"{scale.px(tick):.1f}"
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{at}" x2="{WIDTH - RIGHT}" y2="{at}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at}" dy="4" text-anchor="end">{number(tick)}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<line class="axis" x1="{LEFT}" y1="{TOP}" x2="{LEFT}" y2="{HEIGHT - BOTTOM}"/>')
    parts.append(
        f'<text transform="translate(20 {middle}) rotate(-90)" text-anchor="middle">{_caption(axis)}</text>'
    )
    return parts


def _caption(axis: Metric) -> str:
    return escape(axis.label if axis.unit == "1" else f"{axis.label} ({axis.unit})")


def _padded_scale(values: Sequence[float], first_px: float, last_px: float) -> Scale:
    """A range with some air around the values; a single value stands in the middle."""
    low, high = min(values), max(values)
    air = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return Scale(low - air, high + air, first_px, last_px)


def _round_step(raw: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below `raw`."""
    power = 10.0 ** math.floor(math.log10(raw))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))


_BARS_WIDTH, _BARS_HEIGHT = 760, 460
_BARS_LEFT, _BARS_RIGHT, _BARS_TOP, _BARS_BOTTOM = 80, 210, 48, 60
_BARS_STYLE = (
    f"text{{font:13px sans-serif;fill:{palette.INK}}}.title{{font-size:16px;font-weight:bold}}"
    f".grid{{stroke:{palette.LINE}}}.key{{font-size:12px}}"
)


@dataclass(frozen=True, slots=True)
class StackedBar:
    """One bar: its label, and its parts from the bottom up; none, nothing is drawn."""

    label: str
    parts: Mapping[str, float]


def draw_bars(bars: Sequence[StackedBar], title: str, across: str, up: str) -> str:
    """The whole SVG document; all texts are escaped."""
    highest = max((sum(bar.parts.values()) for bar in bars), default=0.0) or 1.0
    scale = Scale(0.0, 1.05 * highest, _BARS_HEIGHT - _BARS_BOTTOM, _BARS_TOP)
    names = list(dict.fromkeys(name for bar in bars for name in bar.parts))
    colour = {name: palette.MANY[i % len(palette.MANY)] for i, name in enumerate(names)}
    middle = (_BARS_LEFT + _BARS_WIDTH - _BARS_RIGHT) / 2
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_BARS_WIDTH} {_BARS_HEIGHT}" role="img">',
            f"<title>{escape(title)}</title><style>{_BARS_STYLE}</style>",
            f'<rect width="{_BARS_WIDTH}" height="{_BARS_HEIGHT}" fill="#fff"/>',
            f'<text class="title" x="{_BARS_LEFT}" y="28">{escape(title)}</text>',
            *_bars_grid(scale),
            *(
                part
                for place, bar in enumerate(bars)
                for part in _stacked_bar(bar, place, len(bars), scale, colour)
            ),
            *_bars_key(names, colour),
            f'<text x="{middle}" y="{_BARS_HEIGHT - 14}" text-anchor="middle">{escape(across)}</text>',
            f'<text transform="translate(18 {(_BARS_TOP + _BARS_HEIGHT - _BARS_BOTTOM) / 2}) rotate(-90)" '
            f'text-anchor="middle">'
            f"{escape(up)}</text>",
            "</svg>\n",
        ]
    )


def _bars_grid(scale: Scale) -> list[str]:
    lines = []
    for tick in scale.ticks():
        y = scale.px(tick)
        lines += [
            f'<line class="grid" x1="{_BARS_LEFT}" y1="{y:.1f}" x2="{_BARS_WIDTH - _BARS_RIGHT}" y2="{y:.1f}"/>',
            f'<text x="{_BARS_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number(tick)}</text>',
        ]
    return lines


def _stacked_bar(
    bar: StackedBar, place: int, count: int, scale: Scale, colour: Mapping[str, str]
) -> list[str]:
    room = (_BARS_WIDTH - _BARS_RIGHT - _BARS_LEFT) / count
    wide, x = min(0.7 * room, 80.0), _BARS_LEFT + (place + 0.5) * room
    drawn, below = [], 0.0
    for name, value in bar.parts.items():
        top, bottom = scale.px(below + value), scale.px(below)
        tip = f"{bar.label}, {name}: {number(value)}"
        drawn.append(
            f'<rect x="{x - wide / 2:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{bottom - top:.1f}" '
            f'fill="{colour[name]}"><title>{escape(tip)}</title></rect>'
        )
        below += value
    label = bar.label if bar.parts else f"{bar.label}: none"
    drawn.append(
        f'<text x="{x:.1f}" y="{_BARS_HEIGHT - _BARS_BOTTOM + 18}" text-anchor="middle">{escape(label)}</text>'
    )
    return drawn


def _bars_key(names: Sequence[str], colour: Mapping[str, str]) -> list[str]:
    """Parts from the top down, as they stand in the bars."""
    lines, x = [], _BARS_WIDTH - _BARS_RIGHT + 14
    for place, name in enumerate(reversed(names)):
        y = _BARS_TOP + 20 * place
        lines += [
            f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour[name]}"/>',
            f'<text class="key" x="{x + 18}" y="{y + 11}">{escape(name)}</text>',
        ]
    return lines


SCATTER_SIZE, SCATTER_LEFT, SCATTER_TOP, SCATTER_EDGE = 440, 70, 40, 34
MOST_SCATTERED = 800  # points that are drawn; of more, evenly spaced ones in the order of the file
_SCATTER_STYLE = (
    f"text{{font:12px sans-serif;fill:{palette.INK}}}.title{{font-size:14px;font-weight:bold}}"
    f".grid{{stroke:{palette.LINE}}}.same{{stroke:{palette.INK}}}"
    f".band{{stroke:{palette.SOFT};stroke-dasharray:4 4}}.dot{{fill:{palette.BLUE};fill-opacity:.45}}"
)


def draw_scatter(measured: Floats, predicted: Floats, title: str, unit: str) -> str:
    """The whole SVG document; points on the diagonal are right, the dashed lines are 20 % off."""
    shown = np.unique(np.linspace(0, len(measured) - 1, min(len(measured), MOST_SCATTERED)).astype(np.intp))
    x, y = np.log10(measured[shown]), np.log10(predicted[shown])
    low, high = math.floor(min(x.min(), y.min())), math.ceil(max(x.max(), y.max()))
    if low == high:
        high += 1
    inner = SCATTER_SIZE - SCATTER_LEFT - SCATTER_EDGE
    across = SCATTER_LEFT + (x - low) / (high - low) * inner
    up = SCATTER_TOP + inner - (y - low) / (high - low) * inner
    bottom, right = SCATTER_TOP + inner, SCATTER_LEFT + inner
    shift = math.log10(1.2) / (high - low) * inner
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SCATTER_SIZE} {SCATTER_SIZE}" role="img">',
            f"<title>{escape(title)}</title><style>{_SCATTER_STYLE}</style>",
            f'<rect width="{SCATTER_SIZE}" height="{SCATTER_SIZE}" fill="#fff"/>',
            f'<text class="title" x="{SCATTER_LEFT}" y="22">{escape(title)}</text>',
            *_decade_grid(low, high, inner),
            f'<line class="same" x1="{SCATTER_LEFT}" y1="{bottom}" x2="{right}" y2="{SCATTER_TOP}"/>',
            f'<line class="band" x1="{SCATTER_LEFT}" y1="{bottom - shift:.1f}" x2="{right - shift:.1f}" '
            f'y2="{SCATTER_TOP}"/>',
            f'<line class="band" x1="{SCATTER_LEFT + shift:.1f}" y1="{bottom}" x2="{right}" '
            f'y2="{SCATTER_TOP + shift:.1f}"/>',
            *(
                f'<circle class="dot" cx="{a:.1f}" cy="{b:.1f}" r="2"/>'
                for a, b in zip(across, up, strict=True)
            ),
            f'<text x="{SCATTER_LEFT + inner / 2}" y="{SCATTER_SIZE - 6}" text-anchor="middle">measured, '
            f"{escape(unit)}</text>",
            f'<text transform="translate(14 {SCATTER_TOP + inner / 2}) rotate(-90)" text-anchor="middle">'
            f"predicted, {escape(unit)}</text>",
            "</svg>\n",
        ]
    )


def _decade_grid(low: int, high: int, inner: int) -> list[str]:
    """A line and a label per power of ten, or per few of them where they are many."""
    lines = []
    for power in range(low, high + 1, math.ceil((high - low) / 6)):
        at = (power - low) / (high - low) * inner
        x, y, label = SCATTER_LEFT + at, SCATTER_TOP + inner - at, number(10.0**power)
        lines += [
            f'<line class="grid" x1="{x:.1f}" y1="{SCATTER_TOP}" x2="{x:.1f}" y2="{SCATTER_TOP + inner}"/>',
            f'<line class="grid" x1="{SCATTER_LEFT}" y1="{y:.1f}" x2="{SCATTER_LEFT + inner}" y2="{y:.1f}"/>',
            f'<text x="{x:.1f}" y="{SCATTER_TOP + inner + 16}" text-anchor="middle">{label}</text>',
            f'<text x="{SCATTER_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>',
        ]
    return lines
