"""The Pareto set of evaluated designs on two axes, and its export as CSV, JSON or SVG."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phaze.errors import InputError

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Axis:
    """One metric a design is judged by: its name on the command line, its column, its direction."""

    name: str
    column: str
    label: str
    unit: str
    maximise: bool

    def value(self, row: Row) -> float:
        """The metric of one design, in `unit`."""
        if self.name == "throughput_per_tdp":
            return float(row["throughput_samples_per_s"]) / float(row["tdp_w"])
        return float(row[self.column])


AXES = {
    axis.name: axis
    for axis in (
        Axis("throughput", "throughput_samples_per_s", "throughput", "samples/s", maximise=True),
        Axis("throughput_per_tdp", "throughput_per_tdp", "throughput per watt", "samples/s/W", maximise=True),
        Axis("mfu", "mfu", "model FLOPs utilisation", "1", maximise=True),
        Axis("tdp", "tdp_w", "power of one accelerator", "W", maximise=False),
        Axis("area", "area_mm2", "silicon area", "mm2", maximise=False),
        Axis("energy_per_sample", "energy_per_sample_j", "energy per sample", "J", maximise=False),
        Axis("memory", "memory_bytes", "peak memory", "bytes", maximise=False),
    )
}


def axis(name: str) -> Axis:
    """The axis of that name; InputError lists the names there are."""
    if name not in AXES:
        raise InputError(f"unknown axis {name!r}; choose one of {', '.join(AXES)}")
    return AXES[name]


def pareto(rows: Iterable[Row], x: Axis, y: Axis) -> list[Row]:
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


def to_json(rows: Sequence[Row], x: Axis, y: Axis) -> str:
    """A document that says which axes and directions the points are optimal for."""
    axes = {
        side: {"name": a.name, "column": a.column, "unit": a.unit, "maximise": a.maximise}
        for side, a in (("x", x), ("y", y))
    }
    points = [{**row, x.column: x.value(row), y.column: y.value(row)} for row in rows]
    return json.dumps({"schema": "phaze-frontier/1", **axes, "points": points}, indent=2) + "\n"
