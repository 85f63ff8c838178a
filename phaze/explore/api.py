"""What the product does: explore a space, evaluate one architecture."""

from __future__ import annotations

from datetime import UTC, datetime

from phaze.explore.designs import DesignBuilder
from phaze.explore.document import Certificate, Design, FrontierPoint, ResultDocument
from phaze.explore.exploration import Answer, Exploration
from phaze.explore.manifest import describe_task, manifest, scope
from phaze.explore.progress import Clock, Progress, Silent
from phaze.explore.request import ExploreRequest, Objective, Task
from phaze.hardware.architecture import Architecture

__all__ = ["Answer", "evaluate", "evaluate_document", "explore"]

EVALUATE_S = 30.0  # time for exact schedules of one architecture; a second or two are the rule


def explore(request: ExploreRequest, progress: Progress | None = None, clock: Clock | None = None) -> Answer:
    """The best architecture of a space under budgets, with a certificate and the whole frontier.

    Raises InfeasibleError where nothing keeps the budgets or fits in memory, OutOfTimeError where the time limit
    passes before anything is known.
    """
    return Exploration(request, progress or Silent(), clock or Clock(request.time_limit_s)).answer()


def evaluate(task: Task, architecture: Architecture, *, tdp_margin: float = 1.0) -> Design:
    """One architecture under its best placement (or within the degrees the task fixes).

    Raises InfeasibleError where the workload does not fit.
    """
    return DesignBuilder(task, tdp_margin).best(architecture, Clock(EVALUATE_S).left)


def evaluate_document(task: Task, architecture: Architecture, *, tdp_margin: float = 1.0) -> ResultDocument:
    """The same as a result document: a space of one architecture, whose points are its placements."""
    started, clock = datetime.now(UTC), Clock(EVALUATE_S)
    builder = DesignBuilder(task, tdp_margin)
    design, points = builder.best_of(architecture, clock.left)
    result = design.workloads[task.workload.name]
    value = result.throughput_samples_per_s
    upper = task.cluster.global_batch / points.lower_s
    certificate = Certificate(
        optimal=upper <= value,
        objective=Objective.THROUGHPUT.value,
        objective_value=value,
        upper_bound=max(upper, value),
        gap=max(upper / value - 1.0, 0.0),
        scope=scope(task),
        space_size=points.total,
        over_budget=0,
        pruned=points.total - points.evaluated,
        evaluated=points.evaluated,
        pruned_by={"path": points.total - points.evaluated},
        frontier_complete=upper <= value,
    )
    return ResultDocument(
        request=describe_task(task) | {"architecture": architecture.name},
        best=design,
        certificate=certificate,
        frontier=[_only_point(design, task)],
        next_best=[],
        comparison=[],
        manifest=manifest(started, clock.elapsed_s, seed=0),
    )


def _only_point(design: Design, task: Task) -> FrontierPoint:
    result = design.workloads[task.workload.name]
    return FrontierPoint(
        id=design.id,
        throughput_samples_per_s=result.throughput_samples_per_s,
        tdp_w=design.tdp_w,
        area_mm2=design.area_mm2,
        energy_per_sample_j=result.energy_per_iteration_j / result.global_batch,
        memory_bytes=result.memory_bytes,
        mfu=result.mfu,
        architecture=design.architecture,
    )
