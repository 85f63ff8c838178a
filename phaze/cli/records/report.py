"""`dse report`: a run as one HTML file to read, to send and to print, its placements played again for the drawings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import shared_options as opt


def command(
    run: Annotated[
        Path,
        typer.Argument(
            help="Run directory of dse run, evaluate, sweep or plan, or what --json printed.", metavar="RUN"
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="File to write (default: report.html in RUN, PLAN.html beside a plan)."),
    ] = None,
    quiet: opt.Quiet = False,
) -> None:
    """Write a run as one HTML file: answer, floorplan, frontier, placement, schedules, memory, proof.

    The file needs no network, follows light and dark, and prints. What has to be worked out again is left out, with
    a remark, where the files of the run have changed since. Of a sweep it shows the frontier, of a plan where time
    and memory go.

    Examples:
        dse report results/gpt3-400W
        dse report plan.json --out plan.html --quiet

    See also: dse trace for one iteration in time; dse pareto for the frontier as a file.
    """
    from phaze.api.at_hand import run_at_hand
    from phaze.api.drawn_runs import answer_page
    from phaze.cli.console_output import progress, say
    from phaze.explore.documents.plan_document import PlanDocument
    from phaze.runs.atomic_files import check_writable, write_atomically

    found = run_at_hand(run)
    a_file = isinstance(found.document, PlanDocument) and run.is_file()
    target = out or (run.with_suffix(".html") if a_file else beside(run, "report.html"))
    check_writable(target)
    with progress(quiet=quiet) as report:
        content, left_out = answer_page(found, report)
        write_atomically(target, content)
    if left_out:
        say(f"left out what has to be worked out again: {left_out}", quiet=quiet)
    say(f"report: {target}", quiet=quiet)


def beside(run: Path, name: str) -> Path:
    """A file in the folder of a run."""
    return (run if run.is_dir() else run.parent) / name
