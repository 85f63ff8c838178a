"""The Pareto set of evaluated designs on any axes, its hypervolume and knee, and its export: CSV, Parquet, JSON, and
one HTML page to turn, to zoom and to read.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from phaze.csv_file import rows_to_csv
from phaze.document_names import DocumentName, FrontierFormat
from phaze.errors import InputError
from phaze.explore.documents.result_document import ResultDocument
from phaze.explore.frontier.frontier_indicators import hypervolume, knee
from phaze.explore.frontier.pareto_archive import nondominated
from phaze.explore.request.design_metrics import Metric, Row, metric
from phaze.report import palette
from phaze.report.number_format import number
from phaze.runs.design_table import DESIGNS_SCHEMA, column


@dataclass(frozen=True)
class Frontier:
    """Designs that no other evaluated one beats, by rising first axis.

    `knee`: id of the best compromise (`frontier_indicators.knee`), None below three designs. `hypervolume`: what they
    dominate up to `reference`, one value per axis, in the product of the axes' units.
    """

    axes: tuple[Metric, ...]
    rows: tuple[Row, ...]
    knee: str | None
    reference: tuple[float, ...]
    hypervolume: float


def pareto(rows: Iterable[Row], *axes: Metric) -> list[Row]:
    """The rows no other row beats on all axes, by increasing first axis; of equal rows the first by id."""
    ordered = sorted(rows, key=lambda row: str(row["id"]))
    values = _minimised(ordered, axes)
    _, first = np.unique(values, axis=0, return_index=True)
    kept = [ordered[i] for i in sorted(first[nondominated(values[first])])]
    return sorted(kept, key=axes[0].value)


def frontier(
    rows: Sequence[Row], axes: Sequence[Metric], reference: Sequence[float] | None = None
) -> Frontier:
    """The frontier of a design table; the reference is the worst value of each axis in it, unless given.

    Raises InputError where there is no design or a reference of another length.
    """
    if not rows:
        raise InputError("the design table is empty")
    if reference is not None and len(reference) != len(axes):
        raise InputError(f"the reference has {len(reference)} values for {len(axes)} axes")
    kept, signs = pareto(rows, *axes), _signs(axes)
    corner = _minimised(rows, axes).max(axis=0) if reference is None else np.array(reference) * signs
    values = _minimised(kept, axes)
    at = knee(values)
    return Frontier(
        axes=tuple(axes),
        rows=tuple(kept),
        knee=None if at is None else str(kept[at]["id"]),
        reference=tuple((corner * signs).tolist()),
        hypervolume=hypervolume(values, corner),
    )


def _signs(axes: Sequence[Metric]) -> NDArray[np.float64]:
    return np.array([-1.0 if axis.maximise else 1.0 for axis in axes])


def _minimised(rows: Sequence[Row], axes: Sequence[Metric]) -> NDArray[np.float64]:
    """The axes of some rows, (rows, axes), each turned so that less is better."""
    values = np.array([[axis.value(row) for axis in axes] for row in rows]).reshape(len(rows), len(axes))
    return values * _signs(axes)


def with_axes(row: Row, axes: Sequence[Metric]) -> dict[str, Any]:
    """A row with a column for each axis, also for those that are worked out of others."""
    return {**row, **{axis.column: axis.value(row) for axis in axes}}


def to_parquet(rows: Sequence[Row]) -> bytes:
    """The same columns as a Parquet file, whose fields tell their unit and meaning.

    Raises InputError with the line that installs PyArrow where it is missing.
    """
    try:
        import pyarrow as pa
        from pyarrow.parquet import write_table
    except ImportError as error:
        raise InputError(
            "a Parquet file needs PyArrow: pip install '.[parquet]' in a clone of phaze; csv needs nothing"
        ) from error
    table = pa.Table.from_pylist([dict(row) for row in rows])
    told = pa.schema([field.with_metadata(_told(field.name)) for field in table.schema])
    content = io.BytesIO()
    write_table(table.cast(told.with_metadata({"schema": DESIGNS_SCHEMA})), content)
    return content.getvalue()


def _told(name: str) -> dict[str, str] | None:
    known = column(name)
    return {"unit": known.unit, "description": known.description} if known else None


def to_json(found: Frontier) -> str:
    """A document that says which axes and directions the points are optimal for, and what is known of them."""
    axes = [{"name": a.name, "column": a.column, "unit": a.unit, "maximise": a.maximise} for a in found.axes]
    document = {
        "schema": DocumentName.FRONTIER.version(1),
        "x": axes[0],
        "y": axes[1],
        "axes": axes,
        "hypervolume": found.hypervolume,
        "reference": list(found.reference),
        "knee": found.knee,
        "points": [with_axes(row, found.axes) for row in found.rows],
    }
    return json.dumps(document, indent=2) + "\n"


def axes_of_run(document: object) -> tuple[str, ...]:
    """Names of the metrics that a run was made over, where there are several; else power and throughput."""
    own = document.request.get("axes", []) if isinstance(document, ResultDocument) else []
    return tuple(own) if len(own) > 1 else ("tdp", "throughput")


def metrics_named(names: Sequence[str]) -> list[Metric]:
    """The metrics of these names. Raises InputError for an unknown one, and for fewer than two, each once."""
    found = [metric(name.strip()) for name in names]
    if len(found) < 2 or len({m.name for m in found}) < len(found):
        raise InputError("a frontier needs two metrics or more, each once")
    return found


def frontier_content(form: FrontierFormat, found: Frontier, designs: Sequence[Row], name: str) -> str | bytes:
    """The frontier of the run called `name`, whose evaluated `designs` stand behind it on the page.

    Raises InputError where a picture is asked of more than two metrics.
    """
    title = f"{name}: {', '.join(axis.label for axis in found.axes)}"
    match form:
        case FrontierFormat.CSV:
            return rows_to_csv(found.rows)
        case FrontierFormat.JSON:
            return to_json(found)
        case FrontierFormat.PARQUET:
            return to_parquet([with_axes(row, found.axes) for row in found.rows])
        case FrontierFormat.HTML:
            return frontier_page(found, designs, title)
        case FrontierFormat.SVG:
            from phaze.report.charts.svg_charts import draw_frontier

            if len(found.axes) != 2:
                raise InputError("svg draws two metrics; html draws more")
            x, y = found.axes
            return draw_frontier(found.rows, x, y, f"{name}: {y.label} against {x.label}", found.knee)


def frontier_remark(found: Frontier) -> str:
    """Number of designs, knee and hypervolume in a sentence."""
    corner = ", ".join(f"{a.name} {number(v)}" for a, v in zip(found.axes, found.reference, strict=True))
    knee_told = f"knee {found.knee}" if found.knee else "no knee below three designs"
    return f"{len(found.rows)} designs; {knee_told}; hypervolume {number(found.hypervolume)} up to {corner}"


_PAGE_HEIGHT = 720


def frontier_page(found: Frontier, designs: Sequence[Row], title: str) -> str:
    """The page: all evaluated designs in grey, the frontier in blue, its knee in orange and named.

    Two axes give a plane, three a space that can be turned, more a matrix of planes. All texts are escaped.
    """
    knees = [row for row in found.rows if str(row["id"]) == found.knee]
    kept = {str(row["id"]) for row in found.rows}
    others = [row for row in designs if str(row["id"]) not in kept]
    traces = [
        _trace(others, found.axes, f"evaluated ({len(others)})", palette.GREY, 5),
        _trace(found.rows, found.axes, f"frontier ({len(found.rows)})", palette.BLUE, 7, join=True),
        *(_trace([row], found.axes, f"knee: {row['id']}", palette.ORANGE, 12, label=True) for row in knees),
    ]
    figure = go.Figure(data=[trace for trace in traces if trace is not None])
    figure.update_layout(
        title=escape(title), template="plotly_white", height=_PAGE_HEIGHT, **_layout(found.axes)
    )
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
