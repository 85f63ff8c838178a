"""The placements of a result document, played again."""

from __future__ import annotations

from phaze.explore.candidates import Candidates
from phaze.explore.cluster_choice import with_devices
from phaze.explore.document import ResultDocument, Stage
from phaze.explore.planning.again import PlayedPlan, play_record
from phaze.explore.request import ExploreRequest
from phaze.explore.wham.report import PerStage, WhamReport
from phaze.hardware.architecture import Architecture
from phaze.placement.cluster import Recompute
from phaze.report.replay.replay import Degrees, Replay
from phaze.report.replay.replay import replay as play


def asked_of_devices(document: ResultDocument, request: ExploreRequest) -> ExploreRequest:
    """The request at the number of devices of the answer, where that was free."""
    if request.cluster is None:
        return request
    devices = next(iter(document.best.workloads.values())).devices
    return with_devices(request, request.cluster, devices)


def replays(document: ResultDocument, request: ExploreRequest) -> dict[str, Replay]:
    """The winner's placement of every workload that has no plan of a space; `request` is what the document answers.

    Raises InputError where this version of the model says something else of it than the document.
    """
    found = {}
    winner = Architecture(name=document.best.id, fields=document.best.architecture)
    for task in asked_of_devices(document, request).tasks:
        told = document.best.workloads[task.workload.name].placement
        if told.plan is not None:
            continue
        degrees = Degrees(
            told.data_parallel,
            told.tensor_parallel,
            told.microbatch_size,
            Recompute(told.recompute),
            told.recipe,
        )
        found[task.workload.name] = play(
            task, degrees, told.stages, [winner] * len(told.stages), proven=document.certificate.optimal
        )
    return found


def played_plans(document: ResultDocument, request: ExploreRequest) -> dict[str, PlayedPlan]:
    """The winner's plans of a space of plans, by workload; none where placements are not of one.

    Raises InputError where this version of the model says something else of them than the document.
    """
    winner = Architecture(name=document.best.id, fields=document.best.architecture)
    found = {}
    for task in asked_of_devices(document, request).tasks:
        told = document.best.workloads[task.workload.name]
        if (plan := told.placement.plan) is not None:
            found[task.workload.name] = play_record(
                task, winner, plan, told.iteration_time_s, told.placement.recipe
            )
    return found


def per_stage_replay(document: ResultDocument, request: ExploreRequest) -> Replay | None:
    """The pipeline with a design for every stage, where the run looked for one and its designs can be told."""
    if document.wham is None or document.wham.per_stage is None:
        return None
    told = document.wham.per_stage
    designs = _designs(document.wham, told, Candidates(request.space, request.budgets))
    if designs is None:
        return None
    stages = [
        Stage(
            layers=stage.layers,
            devices=told.tensor_parallel,
            load_s=stage.load_s,
            memory_bytes=stage.memory_bytes,
        )
        for stage in told.stages
    ]
    degrees = Degrees(
        told.data_parallel, told.tensor_parallel, told.microbatch_size, Recompute(told.recompute)
    )
    return play(request.task, degrees, stages, designs, proven=True)


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
