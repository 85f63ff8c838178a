"""Predicted against measured values as a small SVG picture: both axes logarithmic, the diagonal drawn."""

from __future__ import annotations

import math
from xml.sax.saxutils import escape

import numpy as np

from phaze.arrays import Floats
from phaze.report.format import number

SIZE, LEFT, TOP, EDGE = 440, 70, 40, 34
MOST = 800  # points that are drawn; of more, evenly spaced ones in the order of the file
_STYLE = (
    "text{font:12px sans-serif;fill:#222}.title{font-size:14px;font-weight:bold}.grid{stroke:#e4e4e4}"
    ".same{stroke:#222}.band{stroke:#999;stroke-dasharray:4 4}.dot{fill:#2563a8;fill-opacity:.45}"
)


def draw_scatter(measured: Floats, predicted: Floats, title: str, unit: str) -> str:
    """The whole SVG document; points on the diagonal are right, the dashed lines are 20 % off."""
    shown = np.unique(np.linspace(0, len(measured) - 1, min(len(measured), MOST)).astype(np.intp))
    x, y = np.log10(measured[shown]), np.log10(predicted[shown])
    low, high = math.floor(min(x.min(), y.min())), math.ceil(max(x.max(), y.max()))
    if low == high:
        high += 1
    inner = SIZE - LEFT - EDGE
    across = LEFT + (x - low) / (high - low) * inner
    up = TOP + inner - (y - low) / (high - low) * inner
    bottom, right = TOP + inner, LEFT + inner
    shift = math.log10(1.2) / (high - low) * inner
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE}" role="img">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            f'<rect width="{SIZE}" height="{SIZE}" fill="#fff"/>',
            f'<text class="title" x="{LEFT}" y="22">{escape(title)}</text>',
            *_grid(low, high, inner),
            f'<line class="same" x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{TOP}"/>',
            f'<line class="band" x1="{LEFT}" y1="{bottom - shift:.1f}" x2="{right - shift:.1f}" y2="{TOP}"/>',
            f'<line class="band" x1="{LEFT + shift:.1f}" y1="{bottom}" x2="{right}" y2="{TOP + shift:.1f}"/>',
            *(
                f'<circle class="dot" cx="{a:.1f}" cy="{b:.1f}" r="2"/>'
                for a, b in zip(across, up, strict=True)
            ),
            f'<text x="{LEFT + inner / 2}" y="{SIZE - 6}" text-anchor="middle">measured, {escape(unit)}</text>',
            f'<text transform="translate(14 {TOP + inner / 2}) rotate(-90)" text-anchor="middle">'
            f"predicted, {escape(unit)}</text>",
            "</svg>\n",
        ]
    )


def _grid(low: int, high: int, inner: int) -> list[str]:
    """A line and a label per power of ten, or per few of them where they are many."""
    lines = []
    for power in range(low, high + 1, math.ceil((high - low) / 6)):
        at = (power - low) / (high - low) * inner
        x, y, label = LEFT + at, TOP + inner - at, number(10.0**power)
        lines += [
            f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{TOP + inner}"/>',
            f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + inner}" y2="{y:.1f}"/>',
            f'<text x="{x:.1f}" y="{TOP + inner + 16}" text-anchor="middle">{label}</text>',
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>',
        ]
    return lines
