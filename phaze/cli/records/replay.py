"""`dse replay`: a run made again, and compared with what it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze.cli import shared_options as opt

if TYPE_CHECKING:
    from phaze.runs.document_formats import Answer

FAILED = 5
"""Exit code where the answer is another one."""


def command(
    run: Annotated[Path, typer.Argument(help="Run directory.", metavar="RUN")],
    out: Annotated[Path | None, typer.Option(help="Also keep the new run in this folder.")] = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Ask again what a run directory was asked, and compare; exit code 5 if the answer differs.

    For all that dse run, sweep, evaluate, compare, plan and whatif keep, from Python too. A run that its time limit
    ended may end elsewhere on another machine.

    Examples:
        dse replay results/gpt3-400W
        dse replay results/gpt3-400W --out results/again --json

    Exit codes: 3, 4, 5

    See also: dse diff; dse certify.
    """
    from contextlib import nullcontext

    from phaze.cli.console_output import console, print_json, progress, say
    from phaze.inputs.recorded.repeated_question import repeat_question
    from phaze.report.terminal.side_by_side import print_difference
    from phaze.runs.document_formats import load_answer
    from phaze.runs.run_difference import compare_runs
    from phaze.runs.run_directory import run_directory

    document = load_answer(run)
    with run_directory(out) if out else nullcontext() as folder, progress(quiet=quiet) as report:
        new = repeat_question(document, run, report)
        if folder is not None:
            new.write(folder, new.document)
    found = compare_runs(document, new.document)
    if json:
        print_json(found)
    else:
        print_difference(found, console())
    if not found.same_answer:
        if _was_short_of_time(document):
            say(
                "the first run took more than half of its time limit: how many points were evaluated, and what it "
                "tells beside the best, may depend on that",
                quiet=quiet,
            )
        raise typer.Exit(FAILED)


def _was_short_of_time(document: Answer) -> bool:
    """Whether a search took so much of its time limit that it went about its work in another way."""
    limit_s = getattr(document, "request", {}).get("time_limit_s")
    return bool(limit_s and document.manifest and document.manifest.wall_time_s > limit_s / 2)
