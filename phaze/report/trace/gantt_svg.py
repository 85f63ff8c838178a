"""One iteration as an SVG Gantt chart: a file for documents and slides."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.report.figures.pipeline import all_spans
from phaze.report.figures.rows import Span
from phaze.report.figures.windows import Window, windows
from phaze.report.format import duration, time_unit
from phaze.report.page.markup import Html, tag, text
from phaze.report.replay.pipeline import pass_runs
from phaze.report.replay.replay import Replay
from phaze.report.svg import Scale

WIDTH, LEFT, RIGHT = 1200, 88, 24
_TOP, _BELOW = 96, 64  # px above the first chart, and below each for its axis
_COLOURS = {"c2": ("#7fb3e0", "forward"), "c1": ("#1d5fa6", "backward")}
_TAIL = {"c4": ("#e5a13c", "gradient reduction"), "c5": ("#8a6fb0", "optimizer step")}
_STYLE = (
    "text{font:13px sans-serif;fill:#222}.title{font-size:17px;font-weight:bold}.soft{fill:#666}.tick{stroke:#bbb}"
    + "".join(f".{look}{{fill:{colour}}}" for look, (colour, _) in (_COLOURS | _TAIL).items())
)


def draw(plan: Replay, title: str) -> str:
    """The whole document; all texts are escaped."""
    parts = windows(plan)
    row_px = min(20.0, max(5.0, 480 / len(plan.stages)))
    tall = row_px * len(plan.stages)
    height = _TOP + len(parts) * (tall + _BELOW)
    spans = list(all_spans(plan, pass_runs(plan)))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" '
        f'height="{height:g}" role="img">',
        tag("title", title),
        f"<style>{_STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height:g}" fill="#fff"/>',
        tag("text", title, look="title", x=16, y=28),
        tag("text", _facts(plan), look="soft", x=16, y=50),
        *_legend(plan),
    ]
    for k, window in enumerate(parts):
        lines += _chart(plan, spans, window, _TOP + k * (tall + _BELOW), row_px)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _facts(plan: Replay) -> str:
    d = plan.degrees
    return (
        f"iteration {duration(plan.iteration_s)}; data {d.data_parallel} x tensor {d.tensor_parallel} x pipeline "
        f"{len(plan.stages)}, {plan.microbatches} microbatches of {d.microbatch_size}, recompute {d.recompute}"
    )


def _legend(plan: Replay) -> Iterator[Html]:
    looks = dict(_COLOURS) if plan.training else {"c2": _COLOURS["c2"]}
    looks |= _TAIL if plan.reduction_s or plan.optimizer_s else {}
    x = 16
    for look, (_, name) in looks.items():
        yield tag("rect", look=look, x=x, y=66, width=14, height=14)
        yield tag("text", name, x=x + 20, y=78)
        x += 44 + 8 * len(name)


def _chart(plan: Replay, spans: list[Span], window: Window, top: float, row_px: float) -> Iterator[Html]:
    """The stages inside a window, and the axis below them."""
    scale = Scale(window.start_s, window.end_s, LEFT, WIDTH - RIGHT)
    bottom = top + row_px * len(plan.stages)
    yield tag(
        "rect", fill="#f3f5f7", x=LEFT, y=f"{top:g}", width=WIDTH - RIGHT - LEFT, height=f"{bottom - top:g}"
    )
    step = max(1, round(14 / row_px))
    for k in range(0, len(plan.stages), step):
        yield tag(
            "text", f"stage {k + 1}", x=LEFT - 8, y=f"{top + (k + 0.5) * row_px + 4:g}", text_anchor="end"
        )
    for span in spans:
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
