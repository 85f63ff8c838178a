"""`dse report`: a run as one HTML file to read, to send and to print, its placements played again for the drawings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import shared_options as opt


def command(
    run: Annotated[
        list[Path],
        typer.Argument(
            help="Run directory, of any verb, or what --json printed; or several of dse run.", metavar="RUN"
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="File to write (default: report.html in RUN, NAME.html beside NAME.json)."),
    ] = None,
    quiet: opt.Quiet = False,
) -> None:
    """Write a run as one HTML file: answer, what limits it, frontier, floorplan, placement, schedules, memory, proof.

    The file needs no network, follows light and dark, prints, and saves its tables as CSV. What has to be worked out
    again is left out, with a remark, where the files of the run have changed since. Of a sweep it shows the frontier,
    of a plan where time and memory go, of several runs their winners and frontiers side by side.

    Examples:
        dse report results/gpt3-400W
        dse report results/gpt3-400W results/gpt3-500W --out both.html
        dse report plan.json --out plan.html --quiet

    See also: dse trace for one iteration in time; dse pareto for the frontier as a file.
    """
    from phaze.api.at_hand import run_at_hand
    from phaze.api.drawn_runs import answer_page, runs_together
    from phaze.cli.console_output import progress, say
    from phaze.runs.atomic_files import check_writable, write_atomically

    found = [run_at_hand(one) for one in run]
    target = out or _place(run)
    check_writable(target)
    with progress(quiet=quiet) as report:
        content, left_out = (runs_together(found), "") if run[1:] else answer_page(found[0], report)
        write_atomically(target, content)
    if left_out:
        say(f"left out what has to be worked out again: {left_out}", quiet=quiet)
    say(f"report: {target}", quiet=quiet)


def _place(runs: Sequence[Path]) -> Path:
    """Where the page goes by itself: into the folder of the run, or beside a file under its name."""
    from phaze.errors import InputError
    from phaze.runs.run_directory import RESULT

    first, *others = runs
    if others:
        raise InputError("several runs on one page need a file: give one with --out")
    return (
        first.with_suffix(".html")
        if first.is_file() and first.name != RESULT
        else beside(first, "report.html")
    )


def beside(run: Path, name: str) -> Path:
    """A file in the folder of a run."""
    return (run if run.is_dir() else run.parent) / name
