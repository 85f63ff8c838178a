"""A frontier on any axes as a table: one column for each axis that was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.result_document import Design, FrontierPoint
from phaze.explore.request.design_metrics import METRICS, Metric, metric
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.price import price_usd
from phaze.report import format as fmt
from phaze.report.design import plain_table


def amount(name: str, value: float) -> str:
    """An objective's value in a certificate, with its unit: a minimised one is there as its reciprocal."""
    axis = METRICS[name]
    shown = value if axis.maximise else 1.0 / value
    return fmt.memory(shown) if axis.unit == "bytes" else f"{fmt.number(shown, 5)} {axis.unit}"


def axes_table(
    points: Sequence[FrontierPoint], names: Sequence[str], best: Design, most: int, *, complete: bool
) -> Table:
    """At most some `most` points by their first axis, the winner among them and marked.

    An architecture stands there once for every setting that is on the frontier.
    """
    axes = [metric(name) for name in names]
    rows = sorted((_row(point) for point in points), key=lambda row: (axes[0].value(row), row["id"]))
    winner = _nearest(rows, best)
    at = sorted({*_even(len(rows), most), winner})
    title = f"Frontier on {', '.join(fmt.label(name) for name in names)}: {len(at)} of {len(rows)} points"
    title += " (* the winner)" + ("" if complete else " (so far)")
    table = plain_table(title, "architecture", *(_heading(axis) for axis in axes))
    for i in at:
        mark = " *" if i == winner else ""
        figures = (_figure(axis, axis.value(rows[i])) for axis in axes)
        table.add_row(escape(rows[i]["id"]) + mark, *figures)
    return table


def _nearest(rows: Sequence[Mapping[str, Any]], best: Design) -> int:
    """The row of the winner: its architecture, in the setting whose throughput is nearest to what is reported."""
    throughput = next(iter(best.workloads.values())).throughput_samples_per_s
    return min(
        range(len(rows)),
        key=lambda i: (rows[i]["id"] != best.id, abs(rows[i]["throughput_samples_per_s"] - throughput)),
    )


def _even(count: int, most: int) -> Iterator[int]:
    """At most so many of `count` places, evenly, both ends among them."""
    shown = min(most, count)
    return (round(i * (count - 1) / max(shown - 1, 1)) for i in range(shown))


def _row(point: FrontierPoint) -> dict[str, Any]:
    """A point with its price."""
    table = to_table([Architecture(name=point.id, fields=point.architecture)])
    return {**point.model_dump(), "price_usd": float(price_usd(table, np.array([point.area_mm2]))[0])}


def _heading(axis: Metric) -> str:
    if axis.name == "mfu":
        return "MFU"
    return "memory" if axis.unit == "bytes" else axis.unit


def _figure(axis: Metric, value: float) -> str:
    if axis.name == "mfu":
        return fmt.percent(value)
    return fmt.memory(value) if axis.unit == "bytes" else fmt.number(value)
