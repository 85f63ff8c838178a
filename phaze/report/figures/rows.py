"""Rows of things that happen in time, drawn so that they fit any width: labels and axis are text beside the picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from phaze.report.format import time_unit
from phaze.report.page.markup import Html, join, tag
from phaze.report.svg import Scale

_WIDTH = 1000.0  # units across; the picture is stretched to the width there is
_NAMED = 60.0  # the same: what is narrower bears no name
_LINE_PX = 13.0  # height of a line of a name
_GAP = 1.4  # between neighbours
_EDGE = (
    6.0  # per cent of the width: labels closer to an end than this do not stand in the middle of their tick
)


@dataclass(frozen=True, slots=True)
class Span:
    """Something on rows first..last from start to end, s; `look` is the class that colours it.

    `name` is written on it where there is room, `tip` is what a pointer finds.
    """

    first: int
    last: int
    start_s: float
    end_s: float
    look: str
    tip: str
    name: str = ""


def time_rows(
    labels: Sequence[str],
    spans: Iterable[Span],
    window_s: tuple[float, float],
    row_px: float,
    description: str,
) -> Html:
    """The picture of all that happens inside a window of time; `description` is read aloud for it."""
    start, end = window_s
    scale = Scale(start, end, 0.0, _WIDTH)
    height = row_px * len(labels)
    drawn, names = [], []
    for span in spans:
        left, right = (scale.px(min(max(t, start), end)) for t in (span.start_s, span.end_s))
        if right > left or (start <= span.start_s <= end and span.start_s == span.end_s):
            drawn.append(_rect(span, left, max(right - left, 0.4), row_px))
            names += _name(span, left, right - left, row_px)
    picture = tag(
        "svg",
        *drawn,
        viewBox=f"0 0 {_WIDTH:g} {height:g}",
        preserveAspectRatio="none",
        height=f"{height:g}",
        role="img",
        aria_label=description,
    )
    side = tag(
        "div",
        *(tag("span", label, title=label) for label in labels),
        look="rows",
        style=f"grid-auto-rows:{row_px:g}px",
        aria_hidden="true",
    )
    chart = tag("div", picture, *names, look="chart")
    return tag("div", side, chart, axis(window_s), look="gantt")


def _name(span: Span, left: float, width: float, row_px: float) -> list[Html]:
    """The name as text above the picture, which does not stretch with it; cut off where it is too long."""
    tall = (span.last - span.first + 1) * row_px
    if not span.name or width < _NAMED or tall < _LINE_PX:
        return []
    where = f"left:{left / 10:.2f}%;width:{width / 10:.2f}%;top:{span.first * row_px:g}px;height:{tall:g}px"
    return [tag("span", span.name, look=f"on{span.look[1:]}", style=where, aria_hidden="true")]


def _rect(span: Span, left: float, width: float, row_px: float) -> Html:
    top, tall = span.first * row_px, (span.last - span.first + 1) * row_px
    gap = 1.0 if row_px >= 6 else 0.0
    return tag(
        "rect",
        tag("title", span.tip),
        look=span.look,
        x=f"{left:.2f}",
        y=f"{top:g}",
        width=f"{width - _GAP if width > 4 * _GAP else width:.2f}",
        height=f"{tall - gap:g}",
    )


def axis(window_s: tuple[float, float], about: int = 6) -> Html:
    """Round times below a picture, the unit behind the first."""
    start, end = window_s
    factor, unit = time_unit(end or 1.0)
    scale = Scale(start * factor, end * factor, 0.0, 100.0)
    ticks = scale.ticks(about)
    digits = max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9)) if len(ticks) > 1 else 3
    marks = []
    for tick in ticks:
        at = scale.px(tick)
        label = f"{tick:,.{digits}f}" + (f" {unit}" if tick == ticks[0] else "")
        look = "first" if at < _EDGE else "last" if at > 100 - _EDGE else None
        marks.append(tag("span", label, style=f"left:{at:.2f}%", look=look))
    return tag("div", join(marks, ""), look="axis", aria_hidden="true")
