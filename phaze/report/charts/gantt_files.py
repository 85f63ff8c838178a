"""A Gantt chart as a file in the format its name asks for; here the HTML page that needs no network: zoom, and hover
for the facts of an operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from phaze.errors import InputError
from phaze.report import palette
from phaze.report.charts import gantt_svg
from phaze.report.charts.gantt_chart import CRITICAL, IDLE, OUTLINE_PX, Bar, Gantt, Kind, row_px
from phaze.report.number_format import time_unit
from phaze.runs.atomic_files import check_writable, write_atomically

_STYLE = f"body{{font:14px sans-serif;color:{palette.INK};margin:16px}}h1{{font-size:18px}}"
# Named one by one: the default ones include an upload to Plotly's servers.
_BUTTONS = ["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]


def draw_gantt_html(chart: Gantt) -> str:
    """The whole HTML document with Plotly inside (5 MB); all texts are escaped."""
    import plotly.graph_objects as go

    factor, unit = time_unit(chart.span_s)
    traces = [*(_bars(kind, chart, factor) for kind in chart.kinds), *_legend(chart)]
    figure = go.Figure([go.Bar(trace) for trace in traces], _layout(chart, factor, unit))
    if chart.bound_shows:
        at = chart.lower_bound_s * factor
        figure.add_vline(at, line={"color": "#000000", "dash": "dash"}, layer="below")
        figure.add_annotation(x=at, y=1, yref="paper", text="lower bound", ax=0, ay=-24, arrowhead=2)
    plot = figure.to_html(
        full_html=False,
        include_plotlyjs=True,
        div_id="schedule",
        config={"displaylogo": False, "responsive": True, "modeBarButtons": [_BUTTONS]},
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        f"<title>{escape(chart.title)}</title><style>{_STYLE}</style></head>\n"
        f"<body>\n<h1>{escape(chart.title)}</h1>\n<p>{escape(chart.facts)}</p>\n{plot}\n</body>\n</html>\n"
    )


def _bars(kind: Kind, chart: Gantt, factor: float) -> dict[str, Any]:
    """The operators of one kind: a bar for every block of rows, in the unit of the axis; critical ones on top."""
    bars = [(bar, block) for bar in chart.bars if bar.kind == kind for block in bar.blocks]
    bars.sort(key=lambda item: item[0].critical)
    # Plotly leaves out a bar without length, hence a hair for operators that take no time.
    lengths = [(bar.end_s - bar.start_s) or 1e-4 * chart.span_s for bar, _ in bars]
    outlines = {
        "width": [bar.outline_px(1000 * (bar.end_s - bar.start_s) / chart.span_s) for bar, _ in bars],
        "color": ["#000000" if bar.critical else "#ffffff" for bar, _ in bars],
    }
    return {
        "legendgroup": kind.units,
        "showlegend": False,
        "orientation": "h",
        "base": [bar.start_s * factor for bar, _ in bars],
        "x": [length * factor for length in lengths],
        "y": [(first + last) / 2 for _, (first, last) in bars],
        "width": [last - first + 0.9 for _, (first, last) in bars],
        "text": [_plain(bar.name) for bar, _ in bars],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "insidetextfont": {"color": kind.ink},
        "hovertext": [_hover(bar) for bar, _ in bars],
        "hoverinfo": "text",
        "marker": {**_fill(kind), "line": outlines},
    }


def _hover(bar: Bar) -> str:
    return "<br>".join((f"<b>{_plain(bar.name)}</b>", *map(_plain, bar.facts)))


def _plain(text: str) -> str:
    """The text as Plotly shows it: it reads tags, and of the character references not those of quotes."""
    return escape(text, quote=False)


def _fill(kind: Kind) -> dict[str, Any]:
    striped = {"shape": "/", "bgcolor": kind.fill, "fgcolor": kind.stripe, "size": 8, "solidity": 0.25}
    return {"color": kind.fill, **({"pattern": striped} if kind.stripe else {})}


def _legend(chart: Gantt) -> Iterator[dict[str, Any]]:
    """Traces without bars; a click on that of a kind of operators hides them."""
    looks = [(kind.units, _fill(kind)) for kind in chart.kinds]
    looks.append((CRITICAL, {"color": "#ffffff", "line": {"color": "#000000", "width": OUTLINE_PX}}))
    looks.append(("idle", {"color": IDLE}))
    for name, marker in looks:
        yield {"x": [None], "y": [None], "name": _plain(name), "legendgroup": name, "marker": marker}


def _layout(chart: Gantt, factor: float, unit: str) -> dict[str, Any]:
    count, span = len(chart.rows), chart.span_s * factor
    rows = {"tickvals": list(range(count)), "ticktext": [_plain(row) for row in chart.rows]}
    time = {"title": {"text": f"time ({unit})"}, "range": [-0.002 * span, 1.002 * span]}
    return {
        "height": 160 + count * row_px(count),
        "barmode": "overlay",
        "plot_bgcolor": IDLE,
        "margin": {"t": 80, "r": 24},
        "legend": {"orientation": "h", "y": 1, "yanchor": "bottom", "yref": "paper"},
        "uniformtext": {"mode": "hide", "minsize": 10},  # names only where they fit; zooming shows more
        "xaxis": {**time, "zeroline": False, "showgrid": False, "exponentformat": "power"},
        "yaxis": {
            **rows,
            "range": [count - 0.5, -0.5],
            "fixedrange": True,
            "showgrid": False,
            "zeroline": False,
        },
    }


_DRAW = {".svg": gantt_svg.draw_gantt_svg, ".html": draw_gantt_html}


def check_gantt_file(path: Path) -> None:
    """Find out before the work: InputError for a suffix other than .svg and .html, or a place nobody can write."""
    if path.suffix.lower() not in _DRAW:
        raise InputError(f"--gantt {path}: the name must end in {' or '.join(_DRAW)}")
    check_writable(path)


def write_gantt(chart: Gantt, path: Path) -> None:
    """Draw a chart into a file, whole or not at all. Raises InputError as `check_gantt_file` does."""
    check_gantt_file(path)
    write_atomically(path, _DRAW[path.suffix.lower()](chart))
