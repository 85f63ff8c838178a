"""Stacked bars as a small SVG picture: one bar per value, one colour per part, every part named under the pointer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from phaze.report.format import number
from phaze.report.svg import Scale

_WIDTH, _HEIGHT = 760, 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 210, 48, 60
_COLOURS = (
    *("#2563a8", "#7aa6d6", "#c0392b", "#e67e22", "#f1c40f", "#8e44ad"),
    *("#16a085", "#27ae60", "#7f8c8d", "#bdc3c7", "#34495e", "#d35400"),
)
_STYLE = (
    "text{font:13px sans-serif;fill:#222}.title{font-size:16px;font-weight:bold}.grid{stroke:#ddd}"
    ".key{font-size:12px}"
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its label, and its parts from the bottom up; none, nothing is drawn."""

    label: str
    parts: Mapping[str, float]


def draw_bars(bars: Sequence[Bar], title: str, across: str, up: str) -> str:
    """The whole SVG document; all texts are escaped."""
    highest = max((sum(bar.parts.values()) for bar in bars), default=0.0) or 1.0
    scale = Scale(0.0, 1.05 * highest, _HEIGHT - _BOTTOM, _TOP)
    names = list(dict.fromkeys(name for bar in bars for name in bar.parts))
    colour = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(names)}
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
            f'<text class="title" x="{_LEFT}" y="28">{escape(title)}</text>',
            *_grid(scale),
            *(part for place, bar in enumerate(bars) for part in _bar(bar, place, len(bars), scale, colour)),
            *_key(names, colour),
            f'<text x="{middle}" y="{_HEIGHT - 14}" text-anchor="middle">{escape(across)}</text>',
            f'<text transform="translate(18 {(_TOP + _HEIGHT - _BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
            f"{escape(up)}</text>",
            "</svg>\n",
        ]
    )


def _grid(scale: Scale) -> list[str]:
    lines = []
    for tick in scale.ticks():
        y = scale.px(tick)
        lines += [
            f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"/>',
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number(tick)}</text>',
        ]
    return lines


def _bar(bar: Bar, place: int, count: int, scale: Scale, colour: Mapping[str, str]) -> list[str]:
    room = (_WIDTH - _RIGHT - _LEFT) / count
    wide, x = min(0.7 * room, 80.0), _LEFT + (place + 0.5) * room
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
        f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{escape(label)}</text>'
    )
    return drawn


def _key(names: Sequence[str], colour: Mapping[str, str]) -> list[str]:
    """Parts from the top down, as they stand in the bars."""
    lines, x = [], _WIDTH - _RIGHT + 14
    for place, name in enumerate(reversed(names)):
        y = _TOP + 20 * place
        lines += [
            f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour[name]}"/>',
            f'<text class="key" x="{x + 18}" y="{y + 11}">{escape(name)}</text>',
        ]
    return lines
