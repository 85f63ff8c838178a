"""`dse runs`: the runs of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze.cli import shared_options as opt

if TYPE_CHECKING:
    from phaze.runs.document_formats import Answer


def command(
    folder: Annotated[Path, typer.Argument(help="Folder of run directories.")] = Path("results"),
    json: opt.Json = False,
) -> None:
    """List the runs of a folder, the latest first: what was asked, and the answer, whichever verb it is of.

    Examples:
        dse runs
        dse runs results --json

    See also: dse diff for two of them; dse report for one.
    """
    from phaze.cli.console_output import print_json, print_rows, say
    from phaze.runs.run_listing import list_runs

    found = list_runs(folder)
    rows = [_row(run.path, run.document) for run in found if run.document is not None]
    if json:
        print_json(rows)
    else:
        print_rows([_in_units(row) for row in rows])
    for run in found:
        if run.document is None:
            say(run.problem, quiet=False)
    if not found:
        say(f"no runs in {folder}", quiet=json)


def _row(path: Path, document: Answer) -> dict[str, Any]:
    from phaze.explore.documents.result_document import ResultDocument

    manifest = document.manifest
    certificate = document.certificate if isinstance(document, ResultDocument) else None
    return {
        "run": path.name,
        "verb": manifest.asked.verb if manifest and manifest.asked else "run" if certificate else None,
        "started_utc": manifest.started_utc[5:16].replace("T", " ") if manifest else None,  # month to minute
        "workloads": ", ".join(_workloads(document)) or None,
        **_told(document),
        "tdp_w": document.best.tdp_w if isinstance(document, ResultDocument) else None,
        "gap": certificate.gap if certificate else None,
    }


def _in_units(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table: the value of the objective with its unit, a gap in percent."""
    from phaze.explore.request.design_metrics import METRICS
    from phaze.report.number_format import number, percent
    from phaze.report.terminal.frontier_tables import amount

    name, value, gap = row["objective"], row["value"], row["gap"]
    told = "-" if value is None else amount(name, value) if name in METRICS else number(value)
    return row | {"value": told.strip(), "gap": "-" if gap is None else percent(gap)}


def _workloads(document: Answer) -> list[str]:
    """Names of the workloads, as far as a document tells them in one place."""
    from phaze.explore.documents.plan_document import WhatIfDocument
    from phaze.explore.documents.result_document import ResultDocument
    from phaze.explore.documents.serving_document import ServingDocument

    match document:
        case ResultDocument():
            return list(document.best.workloads)
        case ServingDocument():
            return [document.request["workload"]]
        case WhatIfDocument():
            plans = [point.plan for point in document.points if point.plan is not None]
            return list(plans[0].request["workloads"]) if plans else []
        case _:
            return list(document.request["workloads"])


def _told(document: Answer) -> dict[str, Any]:
    """Objective of an answer and its value, where that is one number."""
    from phaze.explore.documents.fleet_document import FleetDocument
    from phaze.explore.documents.plan_document import PlanDocument, WhatIfDocument
    from phaze.explore.documents.result_document import ResultDocument
    from phaze.explore.documents.serving_document import ServingDocument
    from phaze.explore.documents.sweep_document import SweepDocument

    match document:
        case ResultDocument(certificate=certificate):
            return {"objective": certificate.objective, "value": certificate.objective_value}
        case PlanDocument(best=best) | FleetDocument(best=best):
            return {"objective": "throughput", "value": best.throughput_samples_per_s}
        case ServingDocument(best=served):
            return {"objective": "requests_per_s", "value": served.requests_per_s}
        case SweepDocument(objectives=objectives):
            return {"objective": ", ".join(objectives), "value": None}
        case WhatIfDocument(varied=varied):
            return {"objective": f"throughput by {varied}", "value": None}
        case _:
            return {"objective": "throughput", "value": None}
