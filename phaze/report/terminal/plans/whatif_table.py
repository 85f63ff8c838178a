"""Best plan as one thing varies: a table, and a picture of where the time goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape as html
from pathlib import Path

from rich.console import Console, RenderableType
from rich.markup import escape

from phaze.errors import InputError
from phaze.explore.documents.plan_document import WhatIfDocument, WhatIfPoint
from phaze.report import number_format as fmt
from phaze.report.charts.svg_charts import StackedBar, draw_bars
from phaze.report.plan_words import TIMES, summary_with_batch
from phaze.report.terminal.design_tables import plain_table
from phaze.runs.atomic_files import check_writable, write_atomically


def print_whatif(document: WhatIfDocument, console: Console) -> None:
    """One line per value, then the plans."""
    table, *plans = whatif_blocks(document)
    console.print(table)
    console.print()
    for line in plans:
        console.print(line)


def whatif_blocks(document: WhatIfDocument) -> Iterator[RenderableType]:
    """The table, one line per value, then a line for every plan."""
    by_goodput = any(point.plan and point.plan.best.best_by is not None for point in document.points)
    figures = (
        "iteration",
        "samples/s",
        *(["goodput"] if by_goodput else []),
        "MFU",
        "memory",
        "of the fastest",
    )
    table = plain_table("", document.varied, *figures)
    best = max((_worth(point) for point in document.points), default=0.0)
    for point in document.points:
        if point.plan is None:
            table.add_row(escape(point.value), "does not fit", *[""] * (len(figures) - 1))
            continue
        told = point.plan.best
        table.add_row(
            escape(point.value),
            fmt.duration(told.iteration_time_s),
            fmt.number(told.throughput_samples_per_s),
            *([fmt.number(_worth(point))] if by_goodput else []),
            fmt.percent(told.mfu),
            fmt.memory(told.memory_bytes),
            fmt.percent(_worth(point) / best),
        )
    yield table
    for point in document.points:
        told_plan = summary_with_batch(point.plan.best) if point.plan else point.reason or ""
        yield f"[bold]{escape(document.varied)} {escape(point.value)}[/bold]: {escape(told_plan)}"


def _worth(point: WhatIfPoint) -> float:
    """Goodput of a point where plans are ordered by it, else throughput."""
    if point.plan is None:
        return 0.0
    best = point.plan.best
    return best.throughput_samples_per_s if best.best_by is None else best.best_by


def check_plot_file(path: Path) -> None:
    """Find out before the work: InputError for a suffix other than .svg and .html, or a place nobody can write."""
    if path.suffix.lower() not in (".svg", ".html"):
        raise InputError(f"--plot {path}: the name must end in .svg or .html")
    check_writable(path)


def write_plot(document: WhatIfDocument, path: Path) -> None:
    """Stacked bars of seconds per sample and device, whole or not at all. Raises InputError as `check_plot_file`."""
    check_plot_file(path)
    bars = [StackedBar(point.value, _parts(point)) for point in document.points]
    title = f"Device time per sample by {document.varied.replace('_', ' ')}"
    picture = draw_bars(bars, title, document.varied.replace("_", " "), "device seconds per sample")
    if path.suffix.lower() == ".html":
        picture = (
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{html(title)}</title></head>\n'
            f"<body>{picture}</body></html>\n"
        )
    write_atomically(path, picture)


def _parts(point: WhatIfPoint) -> Mapping[str, float]:
    """Seconds of all devices per sample, by cause."""
    if point.plan is None:
        return {}
    best = point.plan.best
    each = int(point.plan.request["devices"]) / (best.throughput_samples_per_s * best.iteration_time_s)
    spent = best.breakdown.model_dump()
    return {name: spent[key] * each for key, name in TIMES.items() if spent[key] > 0}
