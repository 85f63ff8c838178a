"""`dse report`: a run as one HTML file to read, to send and to print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze.cli import options as opt

if TYPE_CHECKING:
    from phaze.explore.documents.plan_document import PlanDocument
    from phaze.explore.documents.result_document import ResultDocument
    from phaze.explore.documents.sweep_document import SweepDocument
    from phaze.explore.request.search_progress import Progress
    from phaze.runs.document_formats import Answer


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
    from phaze.cli.output import progress, say
    from phaze.explore.documents.plan_document import PlanDocument
    from phaze.runs.atomic_files import check_writable, write_atomically
    from phaze.runs.document_formats import load_answer

    document = load_answer(run)
    a_file = isinstance(document, PlanDocument) and run.is_file()
    target = out or (run.with_suffix(".html") if a_file else beside(run, "report.html"))
    check_writable(target)
    with progress(quiet=quiet) as report:
        content, left_out = _page(document, run, report)
        write_atomically(target, content)
    if left_out:
        say(f"left out what has to be worked out again: {left_out}", quiet=quiet)
    say(f"report: {target}", quiet=quiet)


def _page(document: Answer, run: Path, report: Progress) -> tuple[str, str]:
    """The page of an answer, and why something is left out of it. Raises InputError for answers without one."""
    from phaze.errors import InputError
    from phaze.explore.documents.plan_document import PlanDocument
    from phaze.explore.documents.result_document import ResultDocument
    from phaze.explore.documents.sweep_document import SweepDocument

    match document:
        case ResultDocument():
            return _run(document, run, report)
        case SweepDocument():
            return _sweep(document, run, report)
        case PlanDocument():
            return _plan(document, run, report)
    verb = document.manifest.asked.verb if document.manifest and document.manifest.asked else "another verb"
    raise InputError(f"{run} was made by dse {verb}; reports are drawn of dse run, evaluate, sweep and plan")


def _run(document: ResultDocument, run: Path, report: Progress) -> tuple[str, str]:
    from phaze.cli.played import played
    from phaze.report.figures.contents import Contents
    from phaze.report.page.page import page
    from phaze.runs.run_directory import DESIGNS, load_designs

    report.update("reporting", 0, 2, "the winner's schedules")
    found = played(document, run)
    report.update("reporting", 1, 2, "the page")
    contents = Contents(
        name=run.resolve().name,
        document=document,
        designs=load_designs(run) if (run / DESIGNS).is_file() else (),
        plans=found.plans,
        per_stage=found.per_stage,
        sensitivity=found.sensitivity(),
        left_out=found.left_out,
    )
    return page(contents), found.left_out


def _sweep(document: SweepDocument, run: Path, report: Progress) -> tuple[str, str]:
    from phaze.report.page.sweep import sweep_page
    from phaze.runs.run_directory import load_designs

    report.update("reporting", 0, 1, "the page")
    frontier = [design.id for design in document.frontier]
    return sweep_page(run.resolve().name, document.manifest, load_designs(run), frontier), ""


def _plan(document: PlanDocument, file: Path, report: Progress) -> tuple[str, str]:
    from phaze.cli.played_plan import played_plan
    from phaze.report.figures.plan import PlanContents
    from phaze.report.page.plan import plan_page

    report.update("reporting", 0, 2, "the plan's pipeline")
    found = played_plan(document)
    report.update("reporting", 1, 2, "the page")
    return plan_page(PlanContents(file.stem, document, found)), found if isinstance(found, str) else ""


def beside(run: Path, name: str) -> Path:
    """A file in the folder of a run."""
    return (run if run.is_dir() else run.parent) / name
