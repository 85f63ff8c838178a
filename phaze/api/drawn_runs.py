"""Runs drawn: the HTML page of an answer, its placements played again, and one iteration in time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from phaze.document_names import TraceFormat
from phaze.errors import MALFORMED, InputError
from phaze.tolerances import FEW_STATES, RETOLD

if TYPE_CHECKING:
    from phaze.api.at_hand import RunAtHand
    from phaze.explore.documents.explanation_document import Explanation, Sensitivity
    from phaze.explore.documents.plan_document import PlanDocument
    from phaze.explore.documents.result_document import ResultDocument
    from phaze.explore.documents.sweep_document import SweepDocument
    from phaze.explore.request.explore_request import ExploreRequest
    from phaze.explore.request.search_progress import Progress
    from phaze.parallel.timeline.replayed_plan import ReplayedPlan

D = TypeVar("D")


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

    def explanation(self) -> Explanation | None:
        """Why the winner is what it is; None of several workloads, and where this version of the model says otherwise.

        Takes seconds.
        """
        from phaze.explore.explaining.run_explanation import explain
        from phaze.inputs.recorded.recorded_request import question_in

        if self.request is None:
            return None
        try:
            question = question_in(self.request, self.document, Path(self.document.best.id), "dse report")
            return explain(question, self.document)
        except InputError:
            return None

    def sensitivity(self, explained: Explanation | None = None) -> dict[str, Sequence[Sensitivity]]:
        """Sensitivity by workload, where the winner's best placement is the run's; takes seconds.

        That of the workload which is `explained` is taken from there.
        """
        from phaze.explore.explaining.explained_winner import ExplainedWinner
        from phaze.explore.explaining.parameter_sensitivity import sensitivity
        from phaze.explore.explaining.run_explanation import PATIENCE_S
        from phaze.explore.plans.replayed_plans import request_on_devices
        from phaze.explore.request.search_progress import Clock
        from phaze.scheduling.passes import SolveLimits

        if self.request is None:
            return {}
        found: dict[str, Sequence[Sensitivity]] = {}
        for task in request_on_devices(self.document, self.request).tasks:
            if explained is not None and explained.workload == task.workload.name:
                found[explained.workload] = explained.sensitivity
                continue
            alone = replace(self.request, task=task, others=())
            one = ExplainedWinner.of(alone, self.document, SolveLimits(Clock(PATIENCE_S).left, FEW_STATES))
            told = self.document.best.workloads[task.workload.name].throughput_samples_per_s
            if abs(one.throughput / told - 1.0) <= RETOLD:
                found[task.workload.name] = sensitivity(one)
        return found


def replayed_run(document: ResultDocument, asked: Callable[[], ExploreRequest]) -> ReplayedRun:
    """Replayed plans of a run as far as they can be; the reason why not is kept instead of raised."""
    from phaze.explore.plans.replayed_plans import per_stage_plan, replayed_plans

    try:
        request = asked()
        again, plans = per_stage_plan(document, request), replayed_plans(document, request)
        return ReplayedRun(document, request, plans, again)
    except InputError as error:
        return ReplayedRun(document, left_out=" ".join(str(error).split()))


def replayed_plan(document: PlanDocument) -> ReplayedPlan | str:
    """The plan in time, or why it cannot be worked out again: a document names its inputs, it does not hold them."""
    from phaze.explore.plans.plan_replay import replay_plan
    from phaze.inputs.architecture_names import find_architecture
    from phaze.inputs.options.task_options import PassTaskOptions
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


def answer_page(run: RunAtHand, report: Progress) -> tuple[str, str]:
    """The HTML page of an answer, and why something is left out of it (empty: nothing is)."""
    from phaze.explore.documents.compare_document import CompareDocument
    from phaze.explore.documents.fleet_document import FleetDocument
    from phaze.explore.documents.plan_document import PlanDocument, WhatIfDocument
    from phaze.explore.documents.result_document import ResultDocument
    from phaze.explore.documents.serving_document import ServingDocument
    from phaze.explore.documents.sweep_document import SweepDocument
    from phaze.report.page.fleet_page import fleet_page
    from phaze.report.page.other_pages import compare_page, serving_page, whatif_page

    match document := run.document:
        case ResultDocument():
            return _run(document, run, report)
        case SweepDocument():
            return _sweep(document, run, report)
        case PlanDocument():
            return _plan(document, run, report)
        case CompareDocument():
            return _page(compare_page, document, run), ""
        case WhatIfDocument():
            return _page(whatif_page, document, run), ""
        case ServingDocument() | FleetDocument():
            if isinstance(document, FleetDocument):
                page = _page(fleet_page, document, run)
            else:
                page = _page(serving_page, document, run)
            return page, ""


def _page(drawn: Callable[[str, D], str], document: D, run: RunAtHand) -> str:
    """A page of what was asked and answered. Raises InputError where what was asked makes no sense."""
    try:
        return drawn(run.name, document)
    except MALFORMED as error:
        raise InputError(
            f"{run.place}: its request makes no sense: {' '.join(str(error).split())}"
        ) from error


def runs_together(runs: Sequence[RunAtHand]) -> str:
    """The HTML page of several runs of `dse run` or `dse evaluate`.

    Raises InputError for one of another verb, and where one is there twice.
    """
    from phaze.explore.documents.result_document import ResultDocument
    from phaze.report.page.other_pages import runs_page

    found: dict[str, ResultDocument] = {}
    for run in runs:
        if not isinstance(run.document, ResultDocument):
            raise InputError(f"{run.place} was not made by dse run; a page of several runs holds no others")
        if any(run.document == other for other in found.values()):
            raise InputError(f"{run.place} is named twice")
        found[run.name if run.name not in found else str(run.place)] = run.document
    return runs_page(found)


def _run(document: ResultDocument, run: RunAtHand, report: Progress) -> tuple[str, str]:
    from phaze.report.figures.report_contents import Contents
    from phaze.report.page.answer_pages import run_page

    report.update("reporting", 0, 3, "the winner's schedules")
    found = replayed_run(document, run.request)
    report.update("reporting", 1, 3, "why it is so")
    explained = found.explanation()
    report.update("reporting", 2, 3, "the page")
    contents = Contents(
        name=run.name,
        document=document,
        designs=run.designs,
        plans=found.plans,
        per_stage=found.per_stage,
        sensitivity=found.sensitivity(explained),
        explanation=explained,
        left_out=found.left_out,
    )
    return run_page(contents), found.left_out


def _sweep(document: SweepDocument, run: RunAtHand, report: Progress) -> tuple[str, str]:
    from phaze.report.page.answer_pages import sweep_page

    report.update("reporting", 0, 1, "the page")
    frontier = [design.id for design in document.frontier]
    return sweep_page(run.name, document.manifest, run.designs, frontier), ""


def _plan(document: PlanDocument, run: RunAtHand, report: Progress) -> tuple[str, str]:
    from phaze.report.figures.plan_figures import PlanContents
    from phaze.report.page.answer_pages import plan_page

    report.update("reporting", 0, 2, "the plan's pipeline")
    found = replayed_plan(document)
    report.update("reporting", 1, 2, "the page")
    return plan_page(PlanContents(run.name, document, found)), found if isinstance(found, str) else ""


def iteration_in_time(
    run: RunAtHand, form: TraceFormat, workload: str | None = None, *, per_stage: bool = False
) -> str:
    """One iteration of a run as text: events in JSON, or SVG; `per_stage`: of the pipeline with a design per stage.

    `workload`: which one, of several. Raises InputError where the run has no such thing, or was not made by dse run.
    """
    from phaze.explore.documents.result_document import ResultDocument

    if not isinstance(document := run.document, ResultDocument):
        raise InputError(f"{run.place} was not made by dse run, whose iterations can be drawn")
    name = _workload(document, run, workload)
    if per_stage:
        return _per_stage(document, run, name, f"{run.name}: {name} on a design for every stage", form)
    return _planned(document, run, name, f"{run.name}: {name} on {document.best.id}", form)


def _workload(document: ResultDocument, run: RunAtHand, workload: str | None) -> str:
    """The workload that is asked for, or the first. Raises InputError for one that the run does not have."""
    from phaze.inputs.named_choices import nearest

    names = list(document.best.workloads)
    if workload is not None and workload not in names:
        raise InputError(
            f"{run.place} has no workload {workload!r}{nearest(workload, names)}; it has {', '.join(names)}"
        )
    return workload or names[0]


def _planned(document: ResultDocument, run: RunAtHand, workload: str, title: str, form: TraceFormat) -> str:
    """The winner's plan."""
    from phaze.explore.plans.replayed_plans import replayed_plans

    played = replayed_plans(document, run.request())[workload]
    stages = document.best.workloads[workload].placement.stages
    return _drawn(played, workload, title, form, [stage.layers for stage in stages])


def _per_stage(document: ResultDocument, run: RunAtHand, workload: str, title: str, form: TraceFormat) -> str:
    """The plan of the pipeline with a design for every stage."""
    from phaze.explore.plans.replayed_plans import per_stage_plan

    played = per_stage_plan(document, run.request())
    if played is None or document.wham is None or document.wham.per_stage is None:
        raise InputError(
            f"{run.place} holds no pipeline with a design per stage; see dse run --designs per-stage"
        )
    stages = document.wham.per_stage.stages
    layers, designs = [stage.layers for stage in stages], [stage.id for stage in stages]
    return _drawn(played, workload, title, form, layers, designs)


def _drawn(
    played: ReplayedPlan,
    workload: str,
    title: str,
    form: TraceFormat,
    layers: Sequence[Sequence[str]],
    designs: Sequence[str] = (),
) -> str:
    from phaze.report.trace.chrome_trace import written
    from phaze.report.trace.iteration_svg import draw_iteration, iteration_picture
    from phaze.report.trace.iteration_trace import plan_trace

    if form is TraceFormat.SVG:
        return draw_iteration(iteration_picture(played), title)
    return written(plan_trace(played, title, workload, layers, designs))


def packed(text: str, target: Path) -> str | bytes:
    """The text, compressed where the name of the file ends in .gz."""
    import gzip

    return gzip.compress(text.encode(), mtime=0) if target.suffix == ".gz" else text
