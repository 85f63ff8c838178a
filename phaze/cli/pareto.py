"""`dse pareto`: export a frontier of a run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """What to write."""

    CSV = "csv"
    JSON = "json"
    SVG = "svg"


def command(
    run: Annotated[Path, typer.Argument(help="Run directory of dse run or dse sweep.", metavar="RUN")],
    x: Annotated[str, typer.Option("--x", help="Metric across.")] = "tdp",
    y: Annotated[str, typer.Option("--y", help="Metric upwards.")] = "throughput",
    format: Annotated[Format, typer.Option("--format", help="csv, json or svg.")] = Format.CSV,
    out: Annotated[Path | None, typer.Option(help="File to write (default: stdout).")] = None,
) -> None:
    """Export the evaluated designs that no other one beats on two metrics.

    Metrics: throughput, throughput_per_tdp, mfu, tdp, area, energy_per_sample, memory.

    Example: dse pareto results/gpt3-... --x tdp --y throughput --format svg --out frontier.svg
    """
    from phaze.explore.metrics import metric
    from phaze.report.frontier import pareto, to_csv, to_json
    from phaze.report.svg import draw
    from phaze.runs.directory import load_designs
    from phaze.runs.files import write_atomically

    across, up = metric(x), metric(y)
    rows = pareto(load_designs(run), across, up)
    match format:
        case Format.CSV:
            text = to_csv(rows)
        case Format.JSON:
            text = to_json(rows, across, up)
        case Format.SVG:
            text = draw(rows, across, up, f"{run.resolve().name}: {up.label} against {across.label}")
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(out, text)
