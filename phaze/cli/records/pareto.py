"""`dse pareto`: export a frontier of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze.cli.shell_completion import one_of, several_of
from phaze.inputs.option_models import METRICS

if TYPE_CHECKING:
    from phaze.explore.request.design_metrics import Metric, Row
    from phaze.report.charts.frontier_export import Frontier


class Format(StrEnum):
    """What to write."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    HTML = "html"
    SVG = "svg"


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
    format: Annotated[Format, typer.Option("--format", help="csv, json, parquet, html or svg.")] = Format.CSV,
    out: Annotated[Path | None, typer.Option(help="File to write (default: stdout).")] = None,
) -> None:
    """Export the evaluated designs that no other one beats on two or more metrics.

    Nothing named: the axes that the run was made over, or power and throughput.

    Metrics: throughput, throughput_per_tdp, mfu, tdp, area, cost_per_chip, energy_per_sample, memory.
    Hypervolume and knee go to stderr (with json into the document).

    Examples:
        dse pareto results/gpt3-400W --x tdp --y throughput --format svg --out frontier.svg
        dse pareto results/gpt3-400W --axes throughput,tdp,area --format json

    See also: dse report for an interactive frontier.
    """
    from phaze.report.charts.frontier_export import frontier
    from phaze.runs.atomic_files import write_atomically
    from phaze.runs.run_directory import load_designs

    given = axes is not None or x or y or z
    named = axes if axes is not None else ",".join(filter(None, (x or "tdp", y or "throughput", z)))
    metrics = _metrics(named if given else _of_run(run))
    if format is Format.PARQUET and out is None:
        raise _input_error("--format parquet needs a file: give one with --out")
    designs = load_designs(run)
    found = frontier(designs, metrics, _reference(reference))
    content = _content(format, found, designs, run.resolve().name)
    if out is None:
        typer.echo(content, nl=False)
    else:
        write_atomically(out, content)
    if format is not Format.JSON:
        typer.echo(_remark(found), err=True)


def _of_run(run: Path) -> str:
    """The axes that a run was made over, where there are several; else power and throughput."""
    from phaze.explore.documents.result_document import ResultDocument
    from phaze.runs.document_formats import load_answer
    from phaze.runs.run_directory import RESULT

    document = load_answer(run) if (run / RESULT).is_file() else None
    own = document.request.get("axes", []) if isinstance(document, ResultDocument) else []
    return ",".join(own if len(own) > 1 else ["tdp", "throughput"])


def _metrics(names: str) -> list[Metric]:
    from phaze.explore.request.design_metrics import metric

    found = [metric(name.strip()) for name in names.split(",")]
    if len(found) < 2 or len({m.name for m in found}) < len(found):
        raise _input_error("a frontier needs two metrics or more, each once")
    return found


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


def _content(format: Format, found: Frontier, designs: Sequence[Row], name: str) -> str | bytes:
    from phaze.report.charts.frontier_export import to_csv, to_json, to_parquet, with_axes

    title = f"{name}: {', '.join(axis.label for axis in found.axes)}"
    match format:
        case Format.CSV:
            return to_csv(found.rows)
        case Format.JSON:
            return to_json(found)
        case Format.PARQUET:
            return to_parquet([with_axes(row, found.axes) for row in found.rows])
        case Format.HTML:
            from phaze.report.charts.frontier_export import frontier_page

            return frontier_page(found, designs, title)
        case Format.SVG:
            from phaze.report.charts.svg_charts import draw_frontier

            if len(found.axes) != 2:
                raise _input_error("svg draws two metrics; --format html draws more")
            x, y = found.axes
            return draw_frontier(found.rows, x, y, f"{name}: {y.label} against {x.label}", found.knee)


def _remark(found: Frontier) -> str:
    from phaze.report.number_format import number

    corner = ", ".join(f"{a.name} {number(v)}" for a, v in zip(found.axes, found.reference, strict=True))
    knee = f"knee {found.knee}" if found.knee else "no knee below three designs"
    return f"{len(found.rows)} designs; {knee}; hypervolume {number(found.hypervolume)} up to {corner}"


def _input_error(message: str) -> Exception:
    from phaze.errors import InputError

    return InputError(message)
