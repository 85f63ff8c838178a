"""A frontier as a small SVG picture: axes with units, every point with its name as a tooltip."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from phaze.explore.request.design_metrics import Metric, Row
from phaze.report.format import number

WIDTH, HEIGHT = 720, 480
LEFT, RIGHT, TOP, BOTTOM = 90, 24, 48, 64
_FONT, _TITLE_FONT = 13, 16  # px
_WIDE = 0.6  # width of a character of a sans-serif font over its size, amply
_BESIDE = 8  # px between a point and its name
_STYLE = (
    "text{font:13px sans-serif;fill:#222}.title{font-size:16px;font-weight:bold}.grid{stroke:#ddd}"
    ".axis{stroke:#222}.line{fill:none;stroke:#2563a8;stroke-width:2}.dot{fill:#2563a8}"
    ".dot.knee{fill:#c0392b}"
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


def draw(rows: Sequence[Row], x: Metric, y: Metric, title: str, knee: str | None = None) -> str:
    """The whole SVG document; all texts are escaped. The design called `knee` is named and red."""
    points = [(x.value(row), y.value(row), str(row["id"])) for row in rows]
    across = _scale([p[0] for p in points], LEFT, WIDTH - RIGHT)
    up = _scale([p[1] for p in points], HEIGHT - BOTTOM, TOP)
    path = " ".join(f"{across.px(a):.1f},{up.px(b):.1f}" for a, b in _steps(points, falling=x.maximise))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
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


def _scale(values: Sequence[float], first_px: float, last_px: float) -> Scale:
    """A range with some air around the values; a single value stands in the middle."""
    low, high = min(values), max(values)
    air = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return Scale(low - air, high + air, first_px, last_px)


def _round_step(raw: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below `raw`."""
    power = 10.0 ** math.floor(math.log10(raw))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
