"""One iteration as an SVG Gantt chart: a file for documents and slides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from phaze.explore.evaluation.planned_iteration import strategy_record
from phaze.parallel.timeline.replayed_plan import ReplayedPlan
from phaze.report import palette
from phaze.report.charts.svg_charts import Scale
from phaze.report.figures.iteration_timeline import Span, Window, plan_looks, plan_spans, plan_windows
from phaze.report.html_markup import Html, tag, text
from phaze.report.number_format import duration, time_unit
from phaze.report.plan_words import summary

WIDTH, LEFT, RIGHT = 1200, 88, 24
_TOP, _BELOW = 96, 64  # px above the first chart, and below each for its axis
_STYLE = (
    f"text{{font:13px sans-serif;fill:{palette.INK}}}.title{{font-size:17px;font-weight:bold}}"
    f".soft{{fill:{palette.SOFT}}}.tick{{stroke:{palette.GREY}}}"
    + "".join(f".{look}{{fill:{colour}}}" for look, colour in palette.CLASSES.items())
)


@dataclass(frozen=True)
class IterationPicture:
    """An iteration of some stages: `looks` tells what the classes of its spans stand for."""

    facts: str
    stages: int
    looks: Mapping[str, str]
    spans: Sequence[Span]
    windows: Sequence[Window]


def iteration_picture(played: ReplayedPlan) -> IterationPicture:
    """A plan as a picture."""
    edges = played.costs.layouts.edges(played.strategy)
    record = strategy_record(played.strategy, played.iteration.microbatches, edges)
    facts = f"iteration {duration(played.iteration.iteration_s)}; {summary(record)}"
    spans, stages = list(plan_spans(played)), len(played.timeline.orders)
    return IterationPicture(facts, stages, plan_looks(played), spans, plan_windows(played))


def draw_iteration(picture: IterationPicture, title: str) -> str:
    """The whole document; all texts are escaped."""
    row_px = min(20.0, max(5.0, 480 / picture.stages))
    tall = row_px * picture.stages
    height = _TOP + len(picture.windows) * (tall + _BELOW)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" '
        f'height="{height:g}" role="img">',
        tag("title", title),
        f"<style>{_STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height:g}" fill="#fff"/>',
        tag("text", title, look="title", x=16, y=28),
        tag("text", picture.facts, look="soft", x=16, y=50),
        *_legend(picture.looks),
    ]
    for k, window in enumerate(picture.windows):
        lines += _chart(picture, window, _TOP + k * (tall + _BELOW), row_px)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _legend(looks: Mapping[str, str]) -> Iterator[Html]:
    x = 16
    for look, name in looks.items():
        yield tag("rect", look=look, x=x, y=66, width=14, height=14)
        yield tag("text", name, x=x + 20, y=78)
        x += 44 + 8 * len(name)


def _chart(picture: IterationPicture, window: Window, top: float, row_px: float) -> Iterator[Html]:
    """The stages inside a window, and the axis below them."""
    scale = Scale(window.start_s, window.end_s, LEFT, WIDTH - RIGHT)
    bottom = top + row_px * picture.stages
    yield tag(
        "rect",
        fill=palette.WASH,
        x=LEFT,
        y=f"{top:g}",
        width=WIDTH - RIGHT - LEFT,
        height=f"{bottom - top:g}",
    )
    step = max(1, round(14 / row_px))
    for k in range(0, picture.stages, step):
        yield tag(
            "text", f"stage {k + 1}", x=LEFT - 8, y=f"{top + (k + 0.5) * row_px + 4:g}", text_anchor="end"
        )
    for span in picture.spans:
        left, right = (
            scale.px(min(max(t, window.start_s), window.end_s)) for t in (span.start_s, span.end_s)
        )
        if right > left:
            yield tag(
                "rect",
                tag("title", span.tip),
                look=span.look,
                x=f"{left:.2f}",
                y=f"{top + span.first * row_px:g}",
                width=f"{max(right - left - 0.5, 0.3):.2f}",
                height=f"{row_px - 1:g}",
            )
    yield from _axis(window, bottom)


def _axis(window: Window, bottom: float) -> Iterator[Html]:
    factor, unit = time_unit(window.end_s)
    scale = Scale(window.start_s * factor, window.end_s * factor, LEFT, WIDTH - RIGHT)
    for tick in scale.ticks(10):
        at = f"{scale.px(tick):.1f}"
        yield tag("line", look="tick", x1=at, x2=at, y1=f"{bottom:g}", y2=f"{bottom + 5:g}")
        yield tag("text", f"{tick:g}", x=at, y=f"{bottom + 20:g}", text_anchor="middle")
    words = text(f"time ({unit}), {window.name}")
    yield tag("text", words, x=(LEFT + WIDTH - RIGHT) / 2, y=f"{bottom + 40:g}", text_anchor="middle")
