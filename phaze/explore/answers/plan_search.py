"""Find the best plan, or work out one that is fixed."""

from __future__ import annotations

from datetime import UTC, datetime

from phaze.explore.documents.plan_document import PlanCertificate, PlanDocument, PlanResult
from phaze.explore.documents.result_manifest import describe_task, manifest, plans_scope
from phaze.explore.evaluation.flops_utilisation import counted_flops_per_s, flops_utilisation
from phaze.explore.evaluation.memory_shortfall import why_unfit
from phaze.explore.evaluation.planned_iteration import PlannedIteration, estimator_of
from phaze.explore.request.explore_request import Task
from phaze.explore.request.search_progress import Clock
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.parallel.plan_search.best_first_search import EvaluatedPlan, best_plans
from phaze.parallel.training.iteration_estimate import Estimator

_NEXT = 4  # plans told beside the best


def find_best_plan(task: Task, architecture: Architecture) -> PlanDocument:
    """The fastest plan of a training workload on one architecture that fits into its memory, and the next ones.

    Raises InputError where choices contradict the model, the cluster or one another, InfeasibleError where no plan
    fits.
    """
    started, clock = datetime.now(UTC), Clock(float("inf"))
    table, framework, space = to_table([architecture]), task.framework, task.plan_space
    estimator = estimator_of(task, table)
    capacity = framework.usable_bytes(float(hbm_capacity_bytes(table)[0]))
    answer = best_plans(estimator, space, capacity, 1 + _NEXT)
    if not answer.best:
        raise why_unfit(task, table, f"{task.devices} x {architecture.name}", space, answer)
    peak = float(counted_flops_per_s(table, task.workload.recipe)[0])
    best, *others = (_result(found, task, peak, estimator) for found in answer.best)
    counts, recipe = answer.account, task.workload.recipe
    return PlanDocument(
        request=describe_task(task)
        | {"architecture": architecture.name}
        | {"recipe": recipe.value if recipe else None},
        best=best,
        next_best=others,
        certificate=PlanCertificate(
            optimal=True,
            space_size=counts.total,
            out_of_memory=counts.out_of_memory,
            pruned=counts.pruned,
            evaluated=counts.evaluated,
            scope=[
                f"rung {task.rung.value}",
                f"network {task.network.name}",
                *plans_scope(task),
                *([f"recipe {recipe.value}"] if recipe else []),
            ],
        ),
        manifest=manifest(started, clock.elapsed_s, seed=0),
    )


def _result(found: EvaluatedPlan, task: Task, peak_flops_per_s: float, costs: Estimator) -> PlanResult:
    """Record of a plan in a document, after the checker has passed it. Raises PlanError where it does not."""
    planned, i = PlannedIteration(costs, found.plan, found.iteration), found.iteration
    planned.check()
    samples = task.cluster.global_batch / i.iteration_s
    tokens = task.workload.sequence_length
    return PlanResult(
        strategy=planned.record,
        iteration_time_s=i.iteration_s,
        throughput_samples_per_s=samples,
        throughput_tokens_per_s=samples * tokens if tokens else None,
        mfu=flops_utilisation(i.model_flops, i.iteration_s, task.devices, peak_flops_per_s),
        devices_used=found.plan.devices,
        energy_per_iteration_j=planned.energy_j,
        memory_bytes=i.memory_bytes,
        host_memory_bytes=i.host_bytes,
        memory=planned.memory,
        breakdown=planned.time,
        kinds=planned.kinds,
    )
