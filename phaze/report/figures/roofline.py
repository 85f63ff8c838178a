"""Operators under the roofs of the winner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import sqrt
from typing import Any

from phaze.report import format as fmt
from phaze.report.figures.contents import Contents, by_workload
from phaze.report.figures.plot import plain, plot, rounded
from phaze.report.figures.schedules import Schedules
from phaze.report.page.markup import Html, Section, figure, table, tag
from phaze.report.replay.roofline import OperatorPoint, Roofs, operator_points, roofs
from phaze.workload.work import Unit

_LOOKS = {
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
    return figure(plot(name, drawn, described), caption, _table(points))


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
    for unit, (name, colour, symbol) in _LOOKS.items():
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


def _table(points: Sequence[OperatorPoint]) -> Html:
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
