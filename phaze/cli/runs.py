"""`dse runs`: the runs of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze.cli import options as opt

if TYPE_CHECKING:
    from phaze.runs.listing import ListedRun


def command(
    folder: Annotated[Path, typer.Argument(help="Folder of run directories.")] = Path("results"),
    json: opt.Json = False,
) -> None:
    """List the runs of a folder, the latest first: what was asked, and the answer.

    Example: dse runs results
    """
    from phaze.cli.output import print_json, print_rows, say
    from phaze.runs.listing import list_runs

    found = list_runs(folder)
    rows = [_row(run) for run in found if run.document is not None]
    if json:
        print_json(rows)
    else:
        print_rows(rows)
    for run in found:
        if run.document is None:
            say(run.problem, quiet=False)
    if not found:
        say(f"no runs in {folder}", quiet=json)


def _row(run: ListedRun) -> dict[str, Any]:
    document = run.document
    if document is None:
        msg = "only runs that can be read have a row"
        raise AssertionError(msg)
    certificate = document.certificate
    return {
        "run": run.path.name,
        "started_utc": document.manifest.started_utc[5:16].replace("T", " "),  # month to minute
        "workloads": ", ".join(document.best.workloads),
        "objective": certificate.objective,
        "value": certificate.objective_value,
        "tdp_w": document.best.tdp_w,
        "gap": certificate.gap,
    }
