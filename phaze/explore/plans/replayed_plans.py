"""The plans of a result document, played again."""

from __future__ import annotations

from phaze.explore.answers.cluster_exploration import with_devices
from phaze.explore.documents.result_document import ResultDocument
from phaze.explore.documents.strategy_report import PerStage, WhamReport
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.plans.plan_replay import replay_mixed, replay_record
from phaze.explore.request.explore_request import ExploreRequest
from phaze.hardware.architecture import Architecture
from phaze.parallel.timeline.replayed_plan import ReplayedPlan


def request_on_devices(document: ResultDocument, request: ExploreRequest) -> ExploreRequest:
    """The request at the number of devices of the answer, where that was free."""
    if request.cluster is None:
        return request
    devices = next(iter(document.best.workloads.values())).devices
    return with_devices(request, request.cluster, devices)


def replayed_plans(document: ResultDocument, request: ExploreRequest) -> dict[str, ReplayedPlan]:
    """The winner's plans, by workload; none of documents from before there were plans.

    Raises InputError where this version of the model says something else of them than the document.
    """
    winner = Architecture(name=document.best.id, fields=document.best.architecture)
    found = {}
    for task in request_on_devices(document, request).tasks:
        told = document.best.workloads[task.workload.name]
        if (plan := told.placement.plan) is not None:
            found[task.workload.name] = replay_record(
                task, winner, plan, told.iteration_time_s, told.placement.recipe
            )
    return found


def per_stage_plan(document: ResultDocument, request: ExploreRequest) -> ReplayedPlan | None:
    """The pipeline with a design for every stage, played; None where the run looked for none.

    Nor is there one where its designs are not all recorded, or the run was made before such pipelines had plans. Raises
    InputError where this version of the model says something else of it than the document.
    """
    told = None if document.wham is None else document.wham.per_stage
    if document.wham is None or told is None or told.plan is None:
        return None
    designs = _designs(document.wham, told, Candidates(request.space, request.budgets))
    if designs is None:
        return None
    return replay_mixed(request.task, designs, told.plan, told.iteration_time_s, told.recipe)


def _designs(report: WhamReport, told: PerStage, candidates: Candidates) -> list[Architecture] | None:
    """The architecture of every stage; None where the report does not hold the number of one."""
    numbers = {
        design.id: design.number
        for workload in report.workloads
        for setting in workload.searched
        for stage in setting.stages
        for design in stage.designs
    }
    if report.one is not None:
        numbers[report.one.id] = report.one.number
    if any(stage.id not in numbers for stage in told.stages):
        return None
    return [candidates.architecture(numbers[stage.id]) for stage in told.stages]
