"""One iteration of a plan in time, under any schedule: passes, and what follows the last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from phaze.explore.answers.plan_replay import ReplayedPlan
from phaze.placement.pipelines.order import Kind
from phaze.report import format as fmt
from phaze.report.figures.rows import Span, time_rows
from phaze.report.page.markup import Html, figure, join, legend
from phaze.report.replay import runs_of_plan as tail
from phaze.report.replay.runs_of_plan import closing


@dataclass(frozen=True, slots=True)
class Window:
    """A part of an iteration that one picture shows, with its name."""

    name: str
    start_s: float
    end_s: float


_LOOKS: Mapping[Kind, tuple[str, str]] = {
    Kind.FORWARD: ("c2", "forward"),
    Kind.BACKWARD: ("c1", "backward"),
    Kind.INPUT_GRADIENT: ("c1", "backward: gradients of inputs"),
    Kind.WEIGHT_GRADIENT: ("c3", "backward: gradients of weights"),
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
    """What the classes of its spans stand for."""
    orders = played.timeline.orders
    used = [_LOOKS[kind] for kind in Kind if any((order.kind == kind).any() for order in orders)]
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
