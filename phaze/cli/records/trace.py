"""`dse trace`: one iteration of a run in time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import shared_options as opt
from phaze.document_names import TraceFormat


def command(
    run: Annotated[Path, typer.Argument(help="Run directory of dse run.", metavar="RUN")],
    out: Annotated[Path | None, typer.Option(help="File to write (default: trace.json in RUN).")] = None,
    format: Annotated[
        TraceFormat, typer.Option("--format", help="json (Perfetto, chrome://tracing) or svg (Gantt chart).")
    ] = TraceFormat.JSON,
    workload: Annotated[
        str | None, typer.Option("--workload", "-w", help="Which one, of several (default: the first).")
    ] = None,
    per_stage: Annotated[
        bool, typer.Option("--per-stage", help="The pipeline with a design for every stage.")
    ] = False,
    quiet: opt.Quiet = False,
) -> None:
    """Write one iteration in time: stages as processes; passes, layers, links and cores as threads.

    Open the JSON file at ui.perfetto.dev or in chrome://tracing. Every microbatch is there pass by pass and layer by
    layer, the first one operator by operator. A name that ends in .gz is compressed.

    Examples:
        dse trace results/gpt3-400W --out trace.json.gz
        dse trace results/gpt3-400W --format svg --out iteration.svg

    See also: dse report, which draws the same iteration.
    """
    from phaze.api.at_hand import run_at_hand
    from phaze.api.drawn_runs import iteration_in_time, packed
    from phaze.cli.console_output import say
    from phaze.cli.records.report import beside
    from phaze.runs.atomic_files import check_writable, write_atomically

    found = run_at_hand(run)
    target = out or beside(run, f"trace.{format.value}")
    check_writable(target)
    text = iteration_in_time(found, format, workload, per_stage=per_stage)
    write_atomically(target, packed(text, target))
    say(f"trace: {target}", quiet=quiet)
