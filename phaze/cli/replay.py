"""`dse replay`: a run made again, and compared with what it was."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phaze.cli import options as opt

FAILED = 5
"""Exit code where the answer is another one."""


def command(
    run: Annotated[Path, typer.Argument(help="Run directory of dse run.", metavar="RUN")],
    out: Annotated[Path | None, typer.Option(help="Also keep the new run in this folder.")] = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Repeat a run from its recorded command line and compare; exit code 5 if the answer differs.

    A run that its time limit ended may end elsewhere on another machine.

    Example: dse replay results/gpt3-...
    """
    from contextlib import nullcontext

    from phaze.cli.output import console, print_json, progress
    from phaze.cli.rerun import check_inputs, recorded
    from phaze.explore.api import explore
    from phaze.inputs.request import make_request
    from phaze.report.difference import print_difference
    from phaze.runs.difference import difference
    from phaze.runs.directory import load_run, run_directory, write_run

    document = load_run(run)
    asked = recorded(document.manifest.command, run)
    check_inputs(document.manifest, asked)
    request = make_request(asked)
    with run_directory(out) if out else nullcontext() as folder, progress(quiet=quiet) as report:
        answer = explore(request, report)
        same = {name: getattr(document.manifest, name) for name in ("command", "inputs_sha256")}
        manifest = answer.document.manifest.model_copy(update=same)
        again = answer.document.model_copy(update={"manifest": manifest})
        if folder is not None:
            write_run(folder, again, answer.designs)
    found = difference(document, again)
    if json:
        print_json(found)
    else:
        print_difference(found, console())
    if not found.same_answer:
        raise typer.Exit(FAILED)
