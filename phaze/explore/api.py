"""What the product does: explore a space, evaluate one architecture."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from phaze.errors import OutOfTimeError
from phaze.explore.combinations import check, resolved
from phaze.explore.designs import DesignBuilder
from phaze.explore.document import Certificate, Design, FrontierPoint, ResultDocument
from phaze.explore.exploration import Answer, Exploration
from phaze.explore.manifest import describe_task, manifest, scope
from phaze.explore.means import ALONE, Means
from phaze.explore.measured import check_measured
from phaze.explore.progress import Clock, Part, Progress, Silent
from phaze.explore.request import ExploreRequest, Objective, Task
from phaze.explore.training_run import training_run
from phaze.hardware.architecture import Architecture

if TYPE_CHECKING:
    from phaze.explore.robustness.document import Robustness

__all__ = ["Answer", "evaluate", "evaluate_document", "explore"]

ROBUST_S = 15.0  # least time to look for near-optimal designs, beyond the time limit if need be


def explore(
    request: ExploreRequest,
    progress: Progress | None = None,
    clock: Clock | None = None,
    means: Means = ALONE,
) -> Answer:
    """The best architecture of a space under budgets, with a certificate and the whole frontier.

    Several workloads: the best common design. A budget for the cluster: the best number of devices, too. A space
    whose stages may differ: a design for every stage, beside the best one for all. `means` save time only.

    Raises InputError where parts of the request contradict each other, InfeasibleError where nothing keeps the
    budgets or fits in memory, OutOfTimeError where the time limit passes before anything is known.
    """
    request = resolved(request)
    check(request)
    for task in request.tasks:
        check_measured(task, request.space)
    report, timer = progress or Silent(), clock or Clock(request.time_limit_s)
    answer = _searched(request, report, timer, means)
    document = answer.document
    update: dict[str, Any] = {}
    if request.length is not None:
        update["training_run"] = training_run(request.length, request.task, document.best)
    if request.robust:
        update["robustness"] = _robustness(request, document, report, timer)
    return replace(answer, document=document.model_copy(update=update)) if update else answer


def _robustness(
    request: ExploreRequest, document: ResultDocument, report: Progress, timer: Clock
) -> Robustness | None:
    """How far the answer holds, in the time that is left; None where that was not enough."""
    from phaze.explore.robustness.robust import robust

    clock = Part(max(timer.left(), ROBUST_S), whole=timer)
    try:
        return robust(request, document.certificate.objective_value, clock=clock, progress=report)
    except OutOfTimeError:
        return None  # the answer stands without it


def _searched(request: ExploreRequest, report: Progress, timer: Clock, means: Means) -> Answer:
    # What a request does not ask for is not loaded.
    if request.cluster is not None:
        from phaze.explore.cluster_budget import explore_cluster

        return explore_cluster(request, request.cluster, report, timer, means)
    if request.strategy is not None:
        from phaze.explore.strategic import explore_by_strategy

        return explore_by_strategy(request, request.strategy, report, timer, means)
    if request.others:
        from phaze.explore.portfolio.answer import explore_portfolio

        return explore_portfolio(request, report, timer, means)
    if request.lean:
        from phaze.explore.lean_search import LeanExploration

        return LeanExploration(request, report, timer, means).answer()
    if request.over_axes:
        from phaze.explore.any_axes import AxesExploration

        return AxesExploration(request, report, timer, means).answer()
    return Exploration(request, report, timer, means).answer()


def evaluate(task: Task, architecture: Architecture, *, tdp_margin: float = 1.0) -> Design:
    """One architecture under its best placement (or within the degrees the task fixes).

    Raises InfeasibleError where the workload does not fit.
    """
    return DesignBuilder(task, tdp_margin).best(architecture)


def evaluate_document(task: Task, architecture: Architecture, *, tdp_margin: float = 1.0) -> ResultDocument:
    """The same as a result document: a space of one architecture, whose points are its placements."""
    started, clock = datetime.now(UTC), Clock(float("inf"))
    builder = DesignBuilder(task, tdp_margin)
    design, points = builder.best_of(architecture)
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
        frontier=[only_point(design, task)],
        next_best=[],
        comparison=[],
        manifest=manifest(started, clock.elapsed_s, seed=0),
    )


def only_point(design: Design, task: Task) -> FrontierPoint:
    """A design as the point of a frontier."""
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
