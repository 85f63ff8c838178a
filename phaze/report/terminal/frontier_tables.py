"""Tables of a frontier."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from phaze.explore.documents.result_document import Certificate, Design, FrontierPoint, ResultDocument
from phaze.explore.request.design_metrics import METRICS, Metric, metric
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.economics.package_price import price_usd
from phaze.report import number_format as fmt
from phaze.report.terminal.design_tables import plain_table
from phaze.report.terminal.question_tables import useful_range, with_caption


def amount(name: str, value: float) -> str:
    """An objective's value in a certificate, with its unit: a minimised one is there as its reciprocal."""
    axis = METRICS[name]
    shown = value if axis.maximise else 1.0 / value
    return fmt.memory(shown) if axis.unit == "bytes" else f"{fmt.number(shown, 5)} {axis.unit}"


def axes_table(
    points: Sequence[FrontierPoint],
    names: Sequence[str],
    best: Design,
    most: int,
    *,
    complete: bool,
    economics: Economics,
) -> Table:
    """At most some `most` points by their first axis, the winner among them and marked.

    An architecture stands there once for every setting that is on the frontier.
    """
    axes = [metric(name) for name in names]
    throughput = next(iter(best.workloads.values())).throughput_samples_per_s
    useful, below = useful_range(points, lambda point: point.throughput_samples_per_s, throughput)
    priced = (_priced_row(point, economics) for point in useful)
    rows = sorted(priced, key=lambda row: (axes[0].value(row), row["id"]))
    winner = _winner_row(rows, best)
    at = sorted({*_even_places(len(rows), most), winner})
    title = f"Frontier on {', '.join(fmt.label(name) for name in names)}: {len(at)} of {len(points)} points"
    title += " (* the winner)" + ("" if complete else " (so far)")
    table = plain_table(title, "architecture", *(_heading(axis) for axis in axes))
    for i in at:
        mark = " *" if i == winner else ""
        figures = (_figure(axis, axis.value(rows[i])) for axis in axes)
        table.add_row(escape(rows[i]["id"]) + mark, *figures)
    return with_caption(table, below)


def _winner_row(rows: Sequence[Mapping[str, Any]], best: Design) -> int:
    """The row of the winner: its architecture, in the setting whose throughput is nearest to what is reported."""
    throughput = next(iter(best.workloads.values())).throughput_samples_per_s
    return min(
        range(len(rows)),
        key=lambda i: (rows[i]["id"] != best.id, abs(rows[i]["throughput_samples_per_s"] - throughput)),
    )


def _even_places(count: int, most: int) -> Iterator[int]:
    """At most so many of `count` places, evenly, both ends among them."""
    shown = min(most, count)
    return (round(i * (count - 1) / max(shown - 1, 1)) for i in range(shown))


def _priced_row(point: FrontierPoint, economics: Economics) -> dict[str, Any]:
    """A point with its price."""
    table = to_table([Architecture(name=point.id, fields=point.architecture)])
    price = price_usd(table, np.array([point.area_mm2]), economics)
    return {**point.model_dump(), "price_usd": float(price[0])}


def _heading(axis: Metric) -> str:
    if axis.name == "mfu":
        return "MFU"
    return "memory" if axis.unit == "bytes" else axis.unit


def _figure(axis: Metric, value: float) -> str:
    if axis.name == "mfu":
        return fmt.percent(value)
    return fmt.memory(value) if axis.unit == "bytes" else fmt.number(value)


FRONTIER_ROWS = 10


def frontier_state(certificate: Certificate, *, searched: bool) -> str:
    """Whether the frontier is proven, in words."""
    if certificate.frontier_complete:
        return "yes"
    return "no: it holds what the strategy evaluated" if searched else "no: it may miss designs"


def frontier_table(frontier: Sequence[FrontierPoint], best_id: str, state: str = "") -> Table:
    """Throughput against power, some ten rows; the winner is among them and marked; `state` ends the title."""
    winner = next((p.throughput_samples_per_s for p in frontier if p.id == best_id), math.inf)
    useful, below = useful_range(frontier, lambda point: point.throughput_samples_per_s, winner)
    shown = thin(useful, FRONTIER_ROWS, best_id)
    title = f"Frontier of throughput against power, {len(shown)} of {len(frontier)} points"
    title += (" (* the winner)" if best_id in {p.id for p in shown} else "") + state
    table = plain_table(title, "architecture", "W", "mm2", "samples/s", "MFU", "J/sample")
    for point in shown:
        table.add_row(
            escape(point.id) + (" *" if point.id == best_id else ""),
            fmt.number(point.tdp_w),
            fmt.number(point.area_mm2),
            fmt.number(point.throughput_samples_per_s),
            fmt.percent(point.mfu),
            fmt.number(point.energy_per_sample_j),
        )
    return with_caption(table, below)


def thin(points: Sequence[FrontierPoint], rows: int, keep_id: str = "") -> list[FrontierPoint]:
    """At most `rows` points at even steps of throughput, both ends among them, and the one to keep."""
    ordered = sorted(points, key=lambda point: (point.throughput_samples_per_s, point.tdp_w))
    if len(ordered) <= rows:
        return ordered
    low, high = (ordered[end].throughput_samples_per_s for end in (0, -1))
    kept = {i for i, point in enumerate(ordered) if point.id == keep_id}
    for step in range(rows):
        wanted = low + (high - low) * step / (rows - 1)
        kept.add(min(range(len(ordered)), key=lambda i: abs(ordered[i].throughput_samples_per_s - wanted)))
    return [ordered[i] for i in sorted(kept)]


def frontier_of(document: ResultDocument) -> Table:
    """The frontier on whatever axes it has."""
    complete = document.certificate.frontier_complete
    if axes := document.request.get("axes"):
        figures = Economics(document.request.get("economics", {}))
        return axes_table(
            document.frontier, axes, document.best, FRONTIER_ROWS, complete=complete, economics=figures
        )
    state = "" if complete else " (of what was found)" if document.strategy else " (so far)"
    return frontier_table(document.frontier, document.best.id, state)
