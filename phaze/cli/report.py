"""`dse report`: a run as one HTML file to read, to send and to print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import options as opt


def command(
    run: Annotated[Path, typer.Argument(help="Run directory of dse run.", metavar="RUN")],
    out: Annotated[Path | None, typer.Option(help="File to write (default: report.html in RUN).")] = None,
    quiet: opt.Quiet = False,
) -> None:
    """Write a run as one HTML file: answer, floorplan, frontier, placement, schedules, memory, proof.

    The file needs no network, follows light and dark, and prints. What has to be worked out again is left out, with
    a remark, where the files of the run have changed since.

    Example: dse report results/gpt3-... --out report.html
    """
    from phaze.cli.output import progress, say
    from phaze.cli.played import played
    from phaze.report.figures.contents import Contents
    from phaze.report.page.page import page
    from phaze.runs.directory import load_designs, load_run
    from phaze.runs.files import check_writable, write_atomically

    document = load_run(run)
    target = out or beside(run, "report.html")
    check_writable(target)
    with progress(quiet=quiet) as report:
        report.update("reporting", 0, 2, "the winner's schedules")
        found = played(document, run)
        report.update("reporting", 1, 2, "the page")
        contents = Contents(
            name=run.resolve().name,
            document=document,
            designs=load_designs(run) if run.is_dir() else (),
            replays=found.replays,
            per_stage=found.per_stage,
            sensitivity=found.sensitivity(),
            left_out=found.left_out,
        )
        write_atomically(target, page(contents))
    if found.left_out:
        say(f"left out what has to be worked out again: {found.left_out}", quiet=quiet)
    say(f"report: {target}", quiet=quiet)


def beside(run: Path, name: str) -> Path:
    """A file in the folder of a run."""
    return (run if run.is_dir() else run.parent) / name
