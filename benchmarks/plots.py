"""Curves on two logarithmic axes as an SVG picture, with the exponents fitted to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10
from xml.sax.saxutils import escape

import numpy as np

from phaze.report.charts.svg_charts import BOTTOM, HEIGHT, LEFT, TOP, Scale
from phaze.report.number_format import number

_WIDTH, _PLOT_RIGHT = 860, 560
_COLOURS = (
    "#2563a8",
    "#c2410c",
    "#15803d",
    "#7e22ce",
    "#a16207",
    "#0e7490",
    "#be185d",
    "#4b5563",
    "#000000",
    "#d4a017",
)
_STYLE = (
    "text{font:13px sans-serif;fill:#222}.title{font-size:16px;font-weight:bold}.grid{stroke:#ddd}"
    ".axis{stroke:#222}polyline{fill:none;stroke-width:2}"
)


@dataclass(frozen=True)
class Curve:
    """Points (x, y), both above zero, by increasing x; those at `open_x` are drawn hollow and not fitted.

    `power_law`: whether one is fitted at all.
    """

    name: str
    points: Sequence[tuple[float, float]]
    open_x: frozenset[float] = frozenset()
    power_law: bool = True

    @property
    def exponent(self) -> float | None:
        """p of the power law x^p that fits best, by least squares of the logarithms; None where none is fitted."""
        fitted = [point for point in self.points if point[0] not in self.open_x]
        if len(fitted) < 2 or not self.power_law:
            return None
        x, y = np.log(np.asarray(fitted, dtype=float)).T
        return float(np.polyfit(x, y, 1)[0])


def draw(curves: Sequence[Curve], title: str, x: str, y: str) -> str:
    """The whole SVG document; `x` and `y` are the captions of the axes."""
    points = [point for curve in curves for point in curve.points]
    across = _scale([a for a, _ in points], LEFT, _PLOT_RIGHT)
    up = _scale([b for _, b in points], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {HEIGHT}" '
        f'width="{_WIDTH}" height="{HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text class="title" x="{LEFT}" y="28">{escape(title)}</text>',
        *_x_axis(across, x),
        *_y_axis(up, y),
    ]
    for k, curve in enumerate(curves):
        parts += _curve(curve, _COLOURS[k % len(_COLOURS)], 24 * k, across, up)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _curve(curve: Curve, colour: str, shift: int, across: Scale, up: Scale) -> list[str]:
    """Line, points with tooltips, and the legend's line."""
    at = [(across.px(log10(a)), up.px(log10(b))) for a, b in curve.points]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in at)
    power = "" if curve.exponent is None else f", exponent {curve.exponent:.2f}"
    left, top = _PLOT_RIGHT + 20, TOP + 12 + shift
    return [
        f'<polyline points="{path}" stroke="{colour}"/>',
        *(
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" stroke="{colour}" stroke-width="1.5" '
            f'fill="{"#fff" if x in curve.open_x else colour}"><title>{number(x)}, {number(y)}</title></circle>'
            for (a, b), (x, y) in zip(at, curve.points, strict=True)
        ),
        f'<line x1="{left}" y1="{top}" x2="{left + 20}" y2="{top}" stroke="{colour}" stroke-width="3"/>',
        f'<text x="{left + 28}" y="{top}" dy="4">{escape(curve.name + power)}</text>',
    ]


def _scale(values: Sequence[float], first_px: float, last_px: float) -> Scale:
    """Logarithms to base 10, with some air and at least a power of ten: noise must not look like growth."""
    low, high = log10(min(values)), log10(max(values))
    air = max(0.05 * (high - low), (1.0 - (high - low)) / 2)
    return Scale(low - air, high + air, first_px, last_px)


def _ticks(scale: Scale) -> list[tuple[str, str]]:
    """Pixel and label of every power of ten in the range, and of 2 and 5 times it where there are few."""
    multiples = (1, 2, 5) if scale.high - scale.low < 2.5 else (1,)
    powers = range(floor(scale.low), floor(scale.high) + 1)
    values = [m * 10.0**power for power in powers for m in multiples]
    return [
        (f"{scale.px(log10(value)):.1f}", number(value, 1))
        for value in values
        if scale.low <= log10(value) <= scale.high
    ]


def _x_axis(scale: Scale, caption: str) -> list[str]:
    bottom, parts = HEIGHT - BOTTOM, []
    for at, label in _ticks(scale):
        parts.append(f'<line class="grid" x1="{at}" y1="{TOP}" x2="{at}" y2="{bottom}"/>')
        parts.append(f'<text x="{at}" y="{bottom + 20}" text-anchor="middle">{label}</text>')
    middle = (LEFT + _PLOT_RIGHT) / 2
    parts.append(f'<line class="axis" x1="{LEFT}" y1="{bottom}" x2="{_PLOT_RIGHT}" y2="{bottom}"/>')
    parts.append(f'<text x="{middle}" y="{HEIGHT - 16}" text-anchor="middle">{escape(caption)}</text>')
    return parts


def _y_axis(scale: Scale, caption: str) -> list[str]:
    parts = []
    for at, label in _ticks(scale):
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{at}" x2="{_PLOT_RIGHT}" y2="{at}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at}" dy="4" text-anchor="end">{label}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<line class="axis" x1="{LEFT}" y1="{TOP}" x2="{LEFT}" y2="{HEIGHT - BOTTOM}"/>')
    parts.append(
        f'<text transform="translate(20 {middle}) rotate(-90)" text-anchor="middle">{escape(caption)}</text>'
    )
    return parts
