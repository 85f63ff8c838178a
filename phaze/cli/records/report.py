"""`dse report`: a run as one HTML file to read, to send and to print, its placements played again for the drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze.cli import shared_options as opt
from phaze.errors import InputError
from phaze.tolerances import FEW_STATES, RETOLD

if TYPE_CHECKING:
    from phaze.explore.documents.explanation_document import Sensitivity
    from phaze.explore.documents.plan_document import PlanDocument
    from phaze.explore.documents.result_document import ResultDocument
    from phaze.explore.documents.sweep_document import SweepDocument
    from phaze.explore.request.explore_request import ExploreRequest
    from phaze.explore.request.search_progress import Progress
    from phaze.parallel.timeline.replayed_plan import ReplayedPlan
    from phaze.runs.document_formats import Answer


@dataclass(frozen=True)
class ReplayedRun:
    """The plans of a run by workload, and that with a design per stage.

    Empty where `left_out` says why.
    """

    document: ResultDocument
    request: ExploreRequest | None = None
    plans: Mapping[str, ReplayedPlan] = field(default_factory=dict)
    per_stage: ReplayedPlan | None = None
    left_out: str = ""

    def sensitivity(self) -> dict[str, Sequence[Sensitivity]]:
        """Sensitivity by workload, where the winner's best placement is the run's; takes seconds."""
        from phaze.explore.answers.replayed_plans import request_on_devices
        from phaze.explore.explaining.explained_winner import ExplainedWinner
        from phaze.explore.explaining.parameter_sensitivity import sensitivity
        from phaze.explore.explaining.run_explanation import PATIENCE_S
        from phaze.explore.request.search_progress import Clock
        from phaze.scheduling.passes import SolveLimits

        if self.request is None:
            return {}
        found: dict[str, Sequence[Sensitivity]] = {}
        for task in request_on_devices(self.document, self.request).tasks:
            alone = replace(self.request, task=task, others=())
            one = ExplainedWinner.of(alone, self.document, SolveLimits(Clock(PATIENCE_S).left, FEW_STATES))
            told = self.document.best.workloads[task.workload.name].throughput_samples_per_s
            if abs(one.throughput / told - 1.0) <= RETOLD:
                found[task.workload.name] = sensitivity(one)
        return found


def replayed_run(document: ResultDocument, run: Path) -> ReplayedRun:
    """Replayed plans of a run as far as they can be; the reason why not is kept instead of raised."""
    from phaze.cli.records.recorded_request import request_of
    from phaze.explore.answers.replayed_plans import per_stage_plan, replayed_plans

    try:
        request = request_of(document, run)
        again, plans = per_stage_plan(document, request), replayed_plans(document, request)
        return ReplayedRun(document, request, plans, again)
    except InputError as error:
        return ReplayedRun(document, left_out=" ".join(str(error).split()))


def replayed_plan(document: PlanDocument) -> ReplayedPlan | str:
    """The plan in time, or why it cannot be worked out again: a document names its inputs, it does not hold them."""
    from phaze.explore.answers.plan_replay import replay_plan
    from phaze.inputs.architecture_names import find_architecture
    from phaze.inputs.option_models import PassTaskOptions
    from phaze.inputs.recipe_inputs import task_in_recipe
    from phaze.inputs.task_inputs import asked_task

    told = document.request
    names = ("devices", "global_batch", "network", "framework", "rung", "mode", "fusion")
    try:
        options = PassTaskOptions.of({name: told[name] for name in names} | {"workload": told["workloads"]})
        chip = find_architecture(told["architecture"])
        task = asked_task(options.workload, options)
        return replay_plan(document, task_in_recipe(task, told.get("recipe") or "none", chip), chip)
    except KeyError as error:
        return f"the request of the document does not tell {error}"
    except (InputError, ValueError) as error:  # ValueError: a name that no file can have
        return " ".join(str(error).split())


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
    from phaze.cli.console_output import progress, say
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

    from phaze.report.figures.report_contents import Contents
    from phaze.report.page.answer_pages import run_page
    from phaze.runs.run_directory import DESIGNS, load_designs

    report.update("reporting", 0, 2, "the winner's schedules")
    found = replayed_run(document, run)
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
    return run_page(contents), found.left_out


def _sweep(document: SweepDocument, run: Path, report: Progress) -> tuple[str, str]:
    from phaze.report.page.answer_pages import sweep_page
    from phaze.runs.run_directory import load_designs

    report.update("reporting", 0, 1, "the page")
    frontier = [design.id for design in document.frontier]
    return sweep_page(run.resolve().name, document.manifest, load_designs(run), frontier), ""


def _plan(document: PlanDocument, file: Path, report: Progress) -> tuple[str, str]:

    from phaze.report.figures.plan_figures import PlanContents
    from phaze.report.page.answer_pages import plan_page

    report.update("reporting", 0, 2, "the plan's pipeline")
    found = replayed_plan(document)
    report.update("reporting", 1, 2, "the page")
    return plan_page(PlanContents(file.stem, document, found)), found if isinstance(found, str) else ""


def beside(run: Path, name: str) -> Path:
    """A file in the folder of a run."""
    return (run if run.is_dir() else run.parent) / name
