"""The Pareto set of evaluated designs on two axes, and its export as CSV, JSON or SVG."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence

from phaze.explore.metrics import Metric, Row


def pareto(rows: Iterable[Row], x: Metric, y: Metric) -> list[Row]:
    """The rows no other row beats on both axes, by increasing x; of equal rows the first by id."""
    sign_x, sign_y = (1.0 if a.maximise else -1.0 for a in (x, y))
    best_first = sorted(
        rows, key=lambda row: (-sign_x * x.value(row), -sign_y * y.value(row), str(row["id"]))
    )
    kept: list[Row] = []
    for row in best_first:
        if not kept or sign_y * y.value(row) > sign_y * y.value(kept[-1]):
            kept.append(row)
    return sorted(kept, key=x.value)


def to_csv(rows: Sequence[Row]) -> str:
    """One line per design; the header names every column with its unit."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(dict(row) for row in rows)
    return text.getvalue()


def to_json(rows: Sequence[Row], x: Metric, y: Metric) -> str:
    """A document that says which axes and directions the points are optimal for."""
    axes = {
        side: {"name": a.name, "column": a.column, "unit": a.unit, "maximise": a.maximise}
        for side, a in (("x", x), ("y", y))
    }
    points = [{**row, x.column: x.value(row), y.column: y.value(row)} for row in rows]
    return json.dumps({"schema": "phaze-frontier/1", **axes, "points": points}, indent=2) + "\n"
