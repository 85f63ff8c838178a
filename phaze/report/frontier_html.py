"""A frontier as one HTML page that needs nothing else: turn it, zoom, read every design under the pointer."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from phaze.explore.request.design_metrics import Metric, Row
from phaze.report.format import number
from phaze.report.frontier import Frontier

_GREY, _BLUE, _RED = "#b8bec6", "#2563a8", "#c0392b"
_HEIGHT = 720


def page(found: Frontier, designs: Sequence[Row], title: str) -> str:
    """The page: all evaluated designs in grey, the frontier in blue, its knee in red and named.

    Two axes give a plane, three a space that can be turned, more a matrix of planes. All texts are escaped.
    """
    knees = [row for row in found.rows if str(row["id"]) == found.knee]
    kept = {str(row["id"]) for row in found.rows}
    others = [row for row in designs if str(row["id"]) not in kept]
    traces = [
        _trace(others, found.axes, f"evaluated ({len(others)})", _GREY, 5),
        _trace(found.rows, found.axes, f"frontier ({len(found.rows)})", _BLUE, 7, join=True),
        *(_trace([row], found.axes, f"knee: {row['id']}", _RED, 12, label=True) for row in knees),
    ]
    figure = go.Figure(data=[trace for trace in traces if trace is not None])
    figure.update_layout(title=escape(title), template="plotly_white", height=_HEIGHT, **_layout(found.axes))
    body = figure.to_html(full_html=False, include_plotlyjs=True, div_id="frontier")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title></head>\n'
        f"<body>{body}<p>Hypervolume {number(found.hypervolume)} up to "
        f"{escape(_at(found.axes, found.reference))}.</p></body></html>\n"
    )


def _trace(
    rows: Sequence[Row],
    axes: Sequence[Metric],
    name: str,
    colour: str,
    size: int,
    *,
    join: bool = False,
    label: bool = False,
) -> Any:  # noqa: ANN401 - plotly has no common type of traces
    """Some designs as points; `join` draws the edge of what they reach, `label` writes their names beside them."""
    values = [[axis.value(row) for row in rows] for axis in axes]
    names = [escape(str(row["id"])) for row in rows]
    common: dict[str, Any] = {
        "name": escape(name),
        "hovertext": [
            "<br>".join([one, *(escape(f"{a.label}: {_figure(a, a.value(row))}") for a in axes)])
            for one, row in zip(names, rows, strict=True)
        ],
        "hoverinfo": "text",
    }
    marker = {"color": colour, "size": size}
    if len(axes) > 3:
        dimensions = [{"label": _caption(a), "values": v} for a, v in zip(axes, values, strict=True)]
        common |= {"text": common.pop("hovertext"), "diagonal_visible": False, "showupperhalf": False}
        return go.Splom(dimensions=dimensions, marker=marker, **common)
    mode = "markers+text" if label else "markers"
    common |= {"text": names, "marker": marker}
    if len(axes) == 3:
        marker["size"] = size / 2
        return go.Scatter3d(x=values[0], y=values[1], z=values[2], mode=mode, **common)
    # Between two designs nothing is interpolated: the worse one counts.
    line = {"color": colour, "shape": "vh" if axes[0].maximise else "hv"}
    common |= {"line": line, "textposition": "bottom right"}
    return go.Scatter(x=values[0], y=values[1], mode="lines+markers" if join else mode, **common)


def _layout(axes: Sequence[Metric]) -> dict[str, Any]:
    titles = [{"title": {"text": _caption(axis)}} for axis in axes]
    names = ("xaxis", "yaxis", "zaxis")
    if len(axes) == 2:
        return dict(zip(names, titles, strict=False))
    return {"scene": dict(zip(names, titles, strict=True))} if len(axes) == 3 else {}


def _caption(axis: Metric) -> str:
    return axis.label if axis.unit == "1" else f"{axis.label} ({axis.unit})"


def _figure(axis: Metric, value: float) -> str:
    return number(value) if axis.unit == "1" else f"{number(value)} {axis.unit}"


def _at(axes: Sequence[Metric], values: Sequence[float]) -> str:
    pairs = zip(axes, values, strict=True)
    return ", ".join(f"{axis.label} {_figure(axis, value)}" for axis, value in pairs)
