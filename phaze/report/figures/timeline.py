"""The passes of one pipeline in time, under any schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from phaze.placement.pipelines.order import Kind
from phaze.placement.pipelines.timeline import Timeline
from phaze.report import format as fmt
from phaze.report.figures.rows import Span, time_rows
from phaze.report.page.markup import Html, figure, join, legend

_LOOKS: Mapping[Kind, tuple[str, str]] = {
    Kind.FORWARD: ("c2", "forward"),
    Kind.BACKWARD: ("c1", "backward"),
    Kind.INPUT_GRADIENT: ("c1", "backward: gradients of inputs"),
    Kind.WEIGHT_GRADIENT: ("c3", "backward: gradients of weights"),
}
_MOST = 40  # microbatches' passes of a device that one picture holds
_PX = 360.0  # height of a picture


def pipeline_chart(timeline: Timeline) -> Html:
    """The legend, then the whole pipeline where it is short, else how it fills and how it drains."""
    used = {
        kind: _LOOKS[kind] for kind in Kind if any((order.kind == kind).any() for order in timeline.orders)
    }
    spans = list(_spans(timeline))
    parts = [legend(dict(used.values()))]
    parts += [_window(timeline, spans, *window) for window in _windows(timeline)]
    return join(parts)


def _windows(timeline: Timeline) -> list[tuple[str, float, float]]:
    whole_s, passes = timeline.makespan_s, max(map(len, timeline.orders))
    if passes <= 2 * _MOST:
        return [("all passes", 0.0, whole_s)]
    part_s = whole_s * _MOST / passes
    return [("how it begins", 0.0, part_s), ("how it ends", whole_s - part_s, whole_s)]


def _spans(timeline: Timeline) -> Iterator[Span]:
    """Every pass as a span on the row of its device."""
    rows = zip(timeline.orders, timeline.starts_s, timeline.ends_s, strict=True)
    for device, (order, starts_s, ends_s) in enumerate(rows):
        for action, start_s, end_s in zip(order, starts_s.tolist(), ends_s.tolist(), strict=True):
            look, name = _LOOKS[action.kind]
            tip = (
                f"device {device + 1}, part {action.chunk + 1}, microbatch {action.microbatch + 1}, {name}: "
                f"{fmt.duration(end_s - start_s)} from {fmt.duration(start_s)}"
            )
            yield Span(device, device, start_s, end_s, look, tip)


def _window(timeline: Timeline, spans: list[Span], name: str, start_s: float, end_s: float) -> Html:
    count = len(timeline.orders)
    row_px = min(22.0, max(5.0, _PX / count))
    step = 1 if row_px >= 11 else round(12 / row_px)
    labels = [f"stage {k + 1}" if k % step == 0 else "" for k in range(count)]
    inside = [span for span in spans if span.end_s >= start_s and span.start_s <= end_s]
    described = f"Pipeline of {count} devices, {name}: {len(inside)} passes"
    picture = time_rows(labels, inside, (start_s, end_s), row_px, described)
    caption = f"{name[0].upper()}{name[1:]}: {fmt.duration(start_s)} to {fmt.duration(end_s)}."
    return figure(picture, caption)
