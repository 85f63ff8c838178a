"""The operators of every unique layer in time, on the cores of the winner."""

from __future__ import annotations

from collections.abc import Iterator

from phaze.report import format as fmt
from phaze.report.figures.contents import Contents, by_workload
from phaze.report.figures.rows import Span, time_rows
from phaze.report.figures.schedules import Schedules
from phaze.report.gantt import Bar, Gantt, gantt
from phaze.report.page.markup import Html, Section, details, join, legend, paragraph, table, tag
from phaze.report.replay.layer_schedule import LayerSchedule

_MOST = 16  # passes that are drawn, those that take most time
_PRINTED = 0.02  # share of a microbatch from which on a pass is unfolded on paper
_LOOKS = {"TC": "c1", "VC": "c3", "TC+VC": "c2", "LINK": "c4"}
_NAMES = {
    "c1": "tensor cores",
    "c2": "tensor and vector cores together",
    "c3": "vector cores",
    "c4": "link",
}


def operators(contents: Contents) -> Iterator[Section]:
    """The schedules behind the layer times."""
    if contents.schedules:
        body = by_workload((name, operator_charts(one)) for name, one in contents.schedules.items())
        yield Section("operators", "Operators of each layer", body)


def operator_charts(found: Schedules) -> Html:
    """One picture for every pass of a unique layer, those that take most time first."""
    schedules = found.passes
    total = sum(one.total_s for one in schedules)
    words = (
        f"Equal layers are scheduled once: {len(schedules)} passes of unique layers, those that take most time first. "
        "An operator runs on one core of each kind it needs, or on all of them."
    )
    if len(schedules) > _MOST:
        words += f" The first {_MOST} are drawn; dse trace writes all."
    drawn = [_chart(one, total, opened=i < 2) for i, one in enumerate(schedules[:_MOST])]
    return join([paragraph(words), legend(_NAMES), *drawn])


def _chart(one: LayerSchedule, total_s: float, *, opened: bool) -> Html:
    """One pass: a line of figures, unfolding to its picture and table."""
    picture = gantt(one.problem, one.result, f"{one.kind}, {one.side}")
    often = "once" if one.runs == 1 else f"{one.runs:,} times"
    summary = (
        f"{one.kind}, {one.side}: {fmt.duration(one.duration_s)}, {often}, "
        f"{fmt.percent(one.total_s / total_s)} of a microbatch"
    )
    spans = [span for bar in picture.bars for span in _spans(bar)]
    row_px = min(20.0, max(4.0, 200 / len(picture.rows)))
    labels = [row.replace("LINK0", "link") for row in picture.rows]
    end_s = max(one.duration_s, one.result.makespan_s) or 1e-9
    drawn = time_rows(labels, spans, (0.0, end_s), row_px, summary)
    facts = f"Schedule: {picture.facts}."
    if one.floor_s > one.result.makespan_s * (1 + 1e-9):
        facts += f" Its bytes take {fmt.duration(one.floor_s)} through memory: that is what counts."
    if one.duration_s > max(one.floor_s, one.result.makespan_s) * (1 + 1e-6):
        facts += f" As software runs it, it takes {fmt.duration(one.duration_s)}."
    body = join([drawn, tag("p", facts, look="soft"), details("As a table", _table(picture))])
    return details(summary, body, opened=opened, printed=one.total_s >= _PRINTED * total_s)


def _spans(bar: Bar) -> Iterator[Span]:
    tip = "\n".join((bar.name, *bar.facts))
    for first, last in bar.blocks:
        look = _LOOKS.get(bar.kind.units, "c5")
        yield Span(first, last, bar.start_s, bar.end_s, look, tip, bar.name)


def _table(picture: Gantt) -> Html:
    rows = [
        [
            bar.name,
            tag("td", bar.kind.units, look="left"),
            fmt.duration(bar.start_s),
            fmt.duration(bar.end_s - bar.start_s),
            tag("td", bar.facts[-1].removeprefix("mode: "), look="left"),
            "yes" if bar.critical else "",
        ]
        for bar in sorted(picture.bars, key=lambda bar: bar.start_s)
    ]
    return table(("operator", "<unit", "start", "duration", "<runs on", "critical"), rows)
