"""A Gantt chart as SVG: one file that needs nothing else, readable on paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from phaze.report import palette
from phaze.report.charts.gantt_chart import CRITICAL, IDLE, OUTLINE_PX, Bar, Gantt, Kind, row_px
from phaze.report.charts.svg_charts import Scale
from phaze.report.number_format import time_unit

RIGHT, TOP, BOTTOM = 24, 96, 56
_LETTER, _LINE = 7.3, 14.0  # px of a character and of a line at 12 px, on the safe side
_STYLE = (
    f"text{{font:12px sans-serif;fill:{palette.INK}}}.title{{font-size:16px;font-weight:bold}}"
    f".tick{{stroke:{palette.SOFT}}}"
    ".bar{stroke:#fff}.critical{stroke:#000}"
    ".bound{stroke:#000;stroke-width:2;stroke-dasharray:4 3}.name{pointer-events:none}"
)


def draw_gantt_svg(chart: Gantt) -> str:
    """The whole SVG document; all texts are escaped."""
    return "\n".join(_Drawing(chart).lines()) + "\n"


class _Drawing:
    """Sizes and scales of one picture, in px."""

    def __init__(self, chart: Gantt) -> None:
        """Many operators make the picture wider, many rows make each lower."""
        self.chart = chart
        factor, self.unit = time_unit(chart.span_s)
        self.left = 24 + _LETTER * max(len(label) for label in chart.rows)
        self.width = min(2400.0, max(960.0, self.left + RIGHT + 12 * len(chart.bars)))
        self.row = row_px(len(chart.rows))
        self.bottom = TOP + self.row * len(chart.rows)
        self.axis = Scale(0.0, chart.span_s * factor, self.left, self.width - RIGHT)
        self.time = Scale(0.0, chart.span_s, self.left, self.width - RIGHT)

    def lines(self) -> Iterator[str]:
        """The document from back to front."""
        chart, width, height = self.chart, f"{self.width:.0f}", f"{self.bottom + BOTTOM:.0f}"
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">'
        )
        yield f"<title>{escape(chart.title)}: {escape(chart.facts)}</title><style>{_STYLE}</style>"
        yield from _hatchings(chart.kinds)
        yield f'<rect width="{width}" height="{height}" fill="#fff"/>'
        yield f'<text class="title" x="16" y="28">{escape(chart.title)}</text>'
        yield f'<text x="16" y="50">{escape(chart.facts)}</text>'
        yield from _legend(chart)
        yield from self._rows()
        yield from self._ticks()
        if chart.bound_shows:
            yield self._upright("bound", self.time.px(chart.lower_bound_s), 8)
        # The longest first, that none hides a short one; critical ones last, that their outlines are whole.
        for bar in sorted(chart.bars, key=lambda bar: (bar.critical, bar.start_s - bar.end_s)):
            yield from self._bar(bar)
        yield "</svg>"

    def _rows(self) -> Iterator[str]:
        for i, label in enumerate(self.chart.rows):
            top = TOP + i * self.row
            yield (
                f'<rect class="row" fill="{IDLE}" x="{self.left:.1f}" y="{top + 1:.1f}" '
                f'width="{self.width - RIGHT - self.left:.1f}" height="{self.row - 2:.1f}"/>'
            )
            yield (
                f'<text x="{self.left - 8:.1f}" y="{top + self.row / 2:.1f}" dy="4" text-anchor="end">'
                f"{escape(label)}</text>"
            )

    def _ticks(self) -> Iterator[str]:
        for tick in self.axis.ticks(10):
            at = self.axis.px(tick)
            yield self._upright("tick", at)
            yield f'<text x="{at:.1f}" y="{self.bottom + 18:.1f}" text-anchor="middle">{tick:g}</text>'
        middle = (self.left + self.width - RIGHT) / 2
        yield f'<text x="{middle:.1f}" y="{self.bottom + 40:.1f}" text-anchor="middle">time ({self.unit})</text>'

    def _upright(self, look: str, x: float, beyond: float = 0) -> str:
        top, bottom = TOP - beyond, self.bottom + beyond
        return f'<line class="{look}" x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{bottom:.1f}"/>'

    def _bar(self, bar: Bar) -> Iterator[str]:
        tip = "\n".join((bar.name, *bar.facts))
        yield f"<g><title>{escape(tip)}</title>"
        left = self.time.px(bar.start_s)
        width = max(1.0, self.time.px(bar.end_s) - left)
        look = f'class="{"critical" if bar.critical else "bar"}" stroke-width="{bar.outline_px(width):.2g}"'
        for first, last in bar.blocks:
            top, height = TOP + first * self.row + 2, (last - first + 1) * self.row - 4
            yield (
                f'<rect {look} x="{left:.2f}" y="{top:.1f}" width="{width:.2f}" '
                f'height="{height:.1f}" fill="{_paint(bar.kind, self.chart.kinds)}"/>'
            )
            yield from _name(bar, left, top, width, height)
        yield "</g>"


def _name(bar: Bar, left: float, top: float, width: float, height: float) -> Iterator[str]:
    """The name in the middle of a block: across, upright where only that fits, or not at all."""
    length = _LETTER * len(bar.name)
    across = length + 6 <= width and height >= _LINE
    if not across and (length + 6 > height or width < _LINE):
        return
    x, y = left + width / 2, top + height / 2
    turned = "" if across else " rotate(-90)"
    yield (
        f'<text class="name" transform="translate({x:.1f} {y:.1f}){turned}" dy="4" text-anchor="middle" '
        f'style="fill:{bar.kind.ink}">{escape(bar.name)}</text>'
    )


def _paint(kind: Kind, kinds: Sequence[Kind]) -> str:
    return f"url(#hatch{kinds.index(kind)})" if kind.stripe else kind.fill


def _hatchings(kinds: Sequence[Kind]) -> Iterator[str]:
    for i, kind in enumerate(kinds):
        if kind.stripe:
            yield (
                f'<pattern id="hatch{i}" width="8" height="8" patternUnits="userSpaceOnUse" '
                f'patternTransform="rotate(45)"><rect width="8" height="8" fill="{kind.fill}"/>'
                f'<rect width="2" height="8" fill="{kind.stripe}"/></pattern>'
            )


def _legend(chart: Gantt) -> Iterator[str]:
    """Swatches in one line below the facts."""
    entries = [(kind.units, f'class="bar" fill="{_paint(kind, chart.kinds)}"') for kind in chart.kinds]
    entries += [
        (CRITICAL, f'class="critical" stroke-width="{OUTLINE_PX}" fill="#fff"'),
        ("idle", f'fill="{IDLE}" stroke="{palette.GREY}"'),
    ]
    x = 16.0
    for text, look in entries:
        yield f'<rect {look} x="{x:.1f}" y="64" width="18" height="14"/>'
        yield f'<text x="{x + 24:.1f}" y="75">{escape(text)}</text>'
        x += 48 + 0.8 * _LETTER * len(text)
    if chart.bound_shows:
        yield f'<line class="bound" x1="{x:.1f}" y1="71" x2="{x + 18:.1f}" y2="71"/>'
        yield f'<text x="{x + 24:.1f}" y="75">lower bound</text>'
