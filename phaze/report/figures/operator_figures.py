"""The operators of every unique layer: in time on the cores of the winner, and under its roofs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import sqrt
from typing import Any

from phaze.report import number_format as fmt
from phaze.report.charts.gantt_chart import Bar, Gantt, gantt
from phaze.report.figures.iteration_timeline import Span, time_rows
from phaze.report.figures.report_contents import Contents, Schedules, by_workload
from phaze.report.html_markup import (
    Html,
    Section,
    details,
    figure,
    join,
    legend,
    paragraph,
    plain,
    plot,
    rounded,
    table,
    tag,
)
from phaze.scheduling.layer_schedule import LayerSchedule
from phaze.scheduling.operator_roofline import OperatorPoint, Roofs, operator_points, roofs
from phaze.workload.work import Unit

_MOST = 16  # passes that are drawn, those that take most time
_PRINTED = 0.02  # share of a microbatch from which on a pass is unfolded on paper
_UNIT_LOOKS = {"TC": "c1", "VC": "c3", "TC+VC": "c2", "LINK": "c4"}
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
    body = join([drawn, tag("p", facts, look="soft"), details("As a table", _schedule_table(picture))])
    return details(summary, body, opened=opened, printed=one.total_s >= _PRINTED * total_s)


def _spans(bar: Bar) -> Iterator[Span]:
    tip = "\n".join((bar.name, *bar.facts))
    for first, last in bar.blocks:
        look = _UNIT_LOOKS.get(bar.kind.units, "c5")
        yield Span(first, last, bar.start_s, bar.end_s, look, tip, bar.name)


def _schedule_table(picture: Gantt) -> Html:
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


_ROOF_LOOKS = {
    Unit.TENSOR: ("tensor cores", "--c1", "circle"),
    Unit.TENSOR_VECTOR: ("tensor and vector cores", "--c2", "diamond"),
    Unit.VECTOR: ("vector cores", "--c3", "square"),
}
_MOST_ROWS = 40
_TERA = 1e12


def roofline(contents: Contents) -> Iterator[Section]:
    """A plot per workload."""
    if contents.schedules:
        each = enumerate(contents.schedules.items())
        body = by_workload((name, roofline_chart(one, f"roofline{k}")) for k, (name, one) in each)
        yield Section("roofline", "Roofline", body)


def roofline_chart(one: Schedules, name: str) -> Html:
    """The operators of a workload; `name`: of the plot in the page."""
    chip = roofs(one.table, one.recipe)
    points = operator_points(one.passes, one.table)
    if not points:
        return tag("p", "No operator both computes and moves bytes.")
    drawn = {"data": [*_roofs(chip, points), *_operators(points)], "layout": _layout()}
    caption = (
        f"Operators by FLOP per byte of HBM traffic and the rate they reach in their layer's schedule; the larger the "
        "mark, the more time they take. Roofs at the sustained clock: "
        f"{fmt.decimal(chip.tensor_flops_per_s, 'FLOP/s')} on tensor cores, "
        f"{fmt.decimal(chip.vector_flops_per_s, 'FLOP/s')} on vector cores, HBM "
        f"{fmt.decimal(chip.hbm_bytes_per_s, 'B/s')}. Collectives are not shown."
    )
    described = f"Roofline plot of {len(points)} operators"
    return figure(plot(name, drawn, described), caption, _roofline_table(points))


def _roofs(chip: Roofs, points: Sequence[OperatorPoint]) -> Iterator[dict[str, Any]]:
    """Each roof as a line: the slope of HBM up to the peak of one kind of core."""
    least = min(p.intensity for p in points) / 2
    most = max(2 * max(p.intensity for p in points), 4 * chip.tensor_flops_per_s / chip.hbm_bytes_per_s)
    for name, peak, dash in (
        ("roof of the tensor cores", chip.tensor_flops_per_s, "solid"),
        ("roof of the vector cores", chip.vector_flops_per_s, "dot"),
    ):
        ridge = peak / chip.hbm_bytes_per_s
        xs = sorted({least, min(max(ridge, least), most), most})
        yield {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": [rounded(x) for x in xs],
            "y": [rounded(min(peak, x * chip.hbm_bytes_per_s) / _TERA) for x in xs],
            "line": {"color": "--soft", "width": 1.5, "dash": dash},
            "hoverinfo": "name",
        }


def _operators(points: Sequence[OperatorPoint]) -> Iterator[dict[str, Any]]:
    longest = max(p.total_s for p in points)
    for unit, (name, colour, symbol) in _ROOF_LOOKS.items():
        own = [p for p in points if p.unit is unit]
        if own:
            yield {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [rounded(p.intensity) for p in own],
                "y": [rounded(p.flops_per_s / _TERA) for p in own],
                "text": [_hover(p) for p in own],
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {
                    "color": colour,
                    "symbol": symbol,
                    "size": [rounded(7 + 17 * sqrt(p.total_s / longest)) for p in own],
                    "opacity": 0.85,
                    "line": {"color": "--page", "width": 1},
                },
            }


def _hover(point: OperatorPoint) -> str:
    return "<br>".join(
        (
            f"<b>{plain(point.name)}</b>",
            plain(f"{point.layer}, {point.side}"),
            f"{fmt.number(point.intensity)} FLOP/byte",
            fmt.decimal(point.flops_per_s, "FLOP/s"),
            f"{fmt.duration(point.duration_s)}, {fmt.duration(point.total_s)} per microbatch",
        )
    )


def _layout() -> dict[str, Any]:
    decades = {"type": "log", "dtick": 1, "exponentformat": "none"}
    return {
        "xaxis": {**decades, "title": {"text": "FLOP per byte of HBM traffic"}},
        "yaxis": {**decades, "title": {"text": "TFLOP/s"}},
    }


def _roofline_table(points: Sequence[OperatorPoint]) -> Html:
    rows = [
        [
            p.name,
            tag("td", f"{p.layer}, {p.side}", look="left"),
            fmt.number(p.intensity),
            fmt.decimal(p.flops_per_s, "FLOP/s"),
            fmt.duration(p.total_s),
        ]
        for p in islice(points, _MOST_ROWS)
    ]
    heads = ("operator", "<layer", "FLOP/byte", "rate", "per microbatch")
    caption = (
        f"The {len(rows)} of {len(points)} operators that take most time" if len(points) > len(rows) else ""
    )
    return table(heads, rows, caption=caption)
