"""`dse pareto`: export a frontier of a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from phaze.cli.shell_completion import one_of, several_of
from phaze.document_names import FrontierFormat
from phaze.inputs.options.offered_values import METRICS


def command(
    run: Annotated[Path, typer.Argument(help="Run directory of dse run or dse sweep.", metavar="RUN")],
    x: Annotated[
        str | None,
        typer.Option("--x", help="Metric across (default: tdp).", autocompletion=one_of(*METRICS)),
    ] = None,
    y: Annotated[
        str | None,
        typer.Option(
            "--y",
            help="Metric upwards (default: throughput).",
            autocompletion=one_of(*METRICS),
        ),
    ] = None,
    z: Annotated[
        str | None, typer.Option("--z", help="A third metric.", autocompletion=one_of(*METRICS))
    ] = None,
    axes: Annotated[
        str | None,
        typer.Option(
            help="Two or more metrics, separated by commas; instead of --x, --y and --z.",
            autocompletion=several_of(*METRICS),
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(help="Corner of the hypervolume: one value per metric (default: the worst of each)."),
    ] = None,
    format: Annotated[
        FrontierFormat, typer.Option("--format", help="csv, json, parquet, html or svg.")
    ] = FrontierFormat.CSV,
    out: Annotated[Path | None, typer.Option(help="File to write (default: stdout).")] = None,
) -> None:
    """Export the evaluated designs that no other one beats on two or more metrics.

    Nothing named: the axes that the run was made over, or power and throughput.

    Metrics: throughput, throughput_per_tdp, mfu, tdp, area, cost_per_chip, energy_per_sample, memory,
    cost_per_sample, cost_per_million_tokens, carbon_per_sample, carbon_per_million_tokens.
    Hypervolume and knee go to stderr (with json into the document).

    Examples:
        dse pareto results/gpt3-400W --x tdp --y throughput --format svg --out frontier.svg
        dse pareto results/gpt3-400W --axes throughput,tdp,area --format json

    See also: dse report for an interactive frontier.
    """
    from phaze.report.charts.frontier_export import (
        axes_of_run,
        frontier,
        frontier_content,
        frontier_remark,
        metrics_named,
    )
    from phaze.runs.atomic_files import write_atomically
    from phaze.runs.document_formats import load_answer
    from phaze.runs.run_directory import RESULT, load_designs

    given = axes is not None or x or y or z
    named = axes if axes is not None else ",".join(filter(None, (x or "tdp", y or "throughput", z)))
    if not given and (run / RESULT).is_file():
        named = ",".join(axes_of_run(load_answer(run)))
    metrics = metrics_named(named.split(","))
    if format is FrontierFormat.PARQUET and out is None:
        raise _input_error("--format parquet needs a file: give one with --out")
    designs = load_designs(run)
    found = frontier(designs, metrics, _reference(reference))
    content = frontier_content(format, found, designs, run.resolve().name)
    if out is None:
        typer.echo(content, nl=False)
    else:
        write_atomically(out, content)
    if format is not FrontierFormat.JSON:
        typer.echo(frontier_remark(found), err=True)


def _reference(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        values = [float(value) for value in text.split(",")]
    except ValueError:
        values = [math.nan]
    if not all(math.isfinite(value) for value in values):
        raise _input_error(f"--reference {text!r} is not a list of numbers such as 700,0")
    return values


def _input_error(message: str) -> Exception:
    from phaze.errors import InputError

    return InputError(message)
