"""One iteration of a plan in time, under any schedule, drawn as rows that fit any width."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from phaze.parallel.pipelines.action_order import ActionKind
from phaze.parallel.timeline import plan_runs as tail
from phaze.parallel.timeline.plan_runs import closing
from phaze.parallel.timeline.replayed_plan import ReplayedPlan
from phaze.report import number_format as fmt
from phaze.report.charts.svg_charts import Scale
from phaze.report.html_markup import Html, figure, join, legend, tag
from phaze.report.number_format import time_unit

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


@dataclass(frozen=True, slots=True)
class Window:
    """A part of an iteration that one picture shows, with its name."""

    name: str
    start_s: float
    end_s: float


_LOOKS: Mapping[ActionKind, tuple[str, str]] = {
    ActionKind.FORWARD: ("c2", "forward"),
    ActionKind.BACKWARD: ("c1", "backward"),
    ActionKind.INPUT_GRADIENT: ("c1", "backward: gradients of inputs"),
    ActionKind.WEIGHT_GRADIENT: ("c3", "backward: gradients of weights"),
}
_CLOSING: Mapping[str, str] = {
    tail.REDUCTION: "c4",
    tail.OPTIMIZER: "c5",
    tail.GATHER: "c6",
    tail.HOST: "c7",
}
_MOST = 40  # microbatches' passes of a device that one picture holds
_PX = 360.0  # height of a picture


def pipeline_chart(played: ReplayedPlan) -> Html:
    """The legend, then the whole iteration where it is short, else how it begins and how it ends."""
    spans = list(plan_spans(played))
    parts = [legend(plan_looks(played))]
    parts += [_window(len(played.timeline.orders), spans, window) for window in plan_windows(played)]
    return join(parts)


def plan_looks(played: ReplayedPlan) -> dict[str, str]:
    """Meanings of the classes of a plan's spans: name by class."""
    orders = played.timeline.orders
    used = [_LOOKS[kind] for kind in ActionKind if any((order.kind == kind).any() for order in orders)]
    return dict(used) | {_CLOSING[one.name]: one.name for one in closing(played)}


def plan_windows(played: ReplayedPlan) -> list[Window]:
    """The whole iteration where it is short enough, else how the pipeline fills, and how it drains."""
    timeline, whole_s = played.timeline, played.iteration.iteration_s
    passes = max(map(len, timeline.orders))
    if passes <= 2 * _MOST:
        return [Window("the whole iteration", 0.0, whole_s)]
    part_s = timeline.makespan_s * _MOST / passes
    start_s = timeline.makespan_s - part_s
    return [Window("how it begins", 0.0, part_s), Window("how it ends", start_s, whole_s)]


def plan_spans(played: ReplayedPlan) -> Iterator[Span]:
    """Every pass, then what follows the last, as a span on the row of its device."""
    timeline = played.timeline
    rows = zip(timeline.orders, timeline.starts_s, timeline.ends_s, strict=True)
    for device, (order, starts_s, ends_s) in enumerate(rows):
        for action, start_s, end_s in zip(order, starts_s.tolist(), ends_s.tolist(), strict=True):
            look, name = _LOOKS[action.kind]
            tip = (
                f"device {device + 1}, part {action.chunk + 1}, microbatch {action.microbatch + 1}, {name}: "
                f"{fmt.duration(end_s - start_s)} from {fmt.duration(start_s)}"
            )
            yield Span(device, device, start_s, end_s, look, tip)
    for one in closing(played):
        tip = f"device {one.device + 1}, {one.name}: {fmt.duration(one.end_s - one.start_s)}"
        yield Span(one.device, one.device, one.start_s, one.end_s, _CLOSING[one.name], tip)


def _window(count: int, spans: list[Span], window: Window) -> Html:
    row_px = min(22.0, max(5.0, _PX / count))
    step = 1 if row_px >= 11 else round(12 / row_px)
    labels = [f"stage {k + 1}" if k % step == 0 else "" for k in range(count)]
    start_s, end_s = window.start_s, window.end_s
    inside = [span for span in spans if span.end_s >= start_s and span.start_s <= end_s]
    described = f"Pipeline of {count} devices, {window.name}: {len(inside)} passes"
    picture = time_rows(labels, inside, (start_s, end_s), row_px, described)
    caption = f"{window.name[0].upper()}{window.name[1:]}: {fmt.duration(start_s)} to {fmt.duration(end_s)}."
    return figure(picture, caption)
