"""Find the best plan, or work out one that is fixed."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf, isfinite

from phaze.errors import InfeasibleError, Shortfall
from phaze.explore.documents.plan_document import (
    PlanCertificate,
    PlanDocument,
    PlanGoodput,
    PlanResult,
)
from phaze.explore.documents.result_manifest import describe_task, manifest, plans_scope
from phaze.explore.evaluation.flops_utilisation import counted_flops_per_s, flops_utilisation
from phaze.explore.evaluation.memory_shortfall import why_unfit
from phaze.explore.evaluation.planned_iteration import PlannedIteration, estimator_of
from phaze.explore.request.explore_request import Task
from phaze.explore.request.search_progress import Clock
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.parallel.failures.goodput import FailingCluster
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.plan_search.best_first_search import EvaluatedPlan, best_plans
from phaze.parallel.training.iteration_estimate import Estimator

_NEXT = 4  # plans told beside the best
_DAY_S = 86_400.0


def find_best_plan(
    task: Task, architecture: Architecture, failing: FailingCluster | None = None
) -> PlanDocument:
    """The fastest plan of a training workload on one architecture that fits into its memory, and the next ones.

    Of a cluster that fails, those of the best goodput. Raises InputError where choices contradict the model, the
    cluster or one another, InfeasibleError where no plan fits or none gets anything done.
    """
    started, clock = datetime.now(UTC), Clock(float("inf"))
    table, framework, space = to_table([architecture]), task.framework, task.plan_space
    estimator = estimator_of(task, table)
    capacity = framework.usable_bytes(float(hbm_capacity_bytes(table)[0]))
    slowdown = failing.slowdown if failing else _none
    answer = best_plans(estimator, space, capacity, 1 + _NEXT, slowdown)
    if not answer.best:
        if failing and failing.slowdown(ParallelPlan(1)) == inf:
            raise _never_done(failing)
        raise why_unfit(task, table, f"{task.devices} x {architecture.name}", space, answer)
    peak = float(counted_flops_per_s(table, task.workload.recipe)[0])
    best, *others = (_result(found, task, peak, estimator, failing) for found in answer.best)
    counts, recipe = answer.account, task.workload.recipe
    return PlanDocument(
        request=describe_task(task)
        | {"architecture": architecture.name}
        | {"recipe": recipe.value if recipe else None}
        | ({"failures": failing.record.name, "on_failure": failing.policy.value} if failing else {}),
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
                *([f"goodput under {failing.record.name}, {failing.policy.value}"] if failing else []),
            ],
        ),
        manifest=manifest(started, clock.elapsed_s, seed=0),
    )


def _none(_: ParallelPlan) -> float:
    """Nothing fails."""
    return 1.0


def _never_done(failing: FailingCluster) -> InfeasibleError:
    """Why no plan ever gets anything done."""
    found = failing.goodput(ParallelPlan(1))
    levers = ("faster restarts", "faster checkpoints", "devices that fail less often")
    short = Shortfall(
        "time between failures",
        found.mtbf_s,
        found.checkpoint_s + failing.record.restart_s,
        "s",
        levers,
        True,
    )
    return InfeasibleError(
        f"under {failing.record.name} nothing gets done: even one device fails every {found.mtbf_s:.3g} s, and a "
        f"restart with a checkpoint takes {found.checkpoint_s + failing.record.restart_s:.3g} s",
        (short,),
    )


def _result(
    found: EvaluatedPlan,
    task: Task,
    peak_flops_per_s: float,
    costs: Estimator,
    failing: FailingCluster | None,
) -> PlanResult:
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
        goodput=_goodput(failing, found.plan, samples) if failing else None,
    )


def _goodput(failing: FailingCluster, plan: ParallelPlan, samples_per_s: float) -> PlanGoodput:
    """What failures leave of a plan."""
    found, domains = failing.goodput(plan), failing.domains
    return PlanGoodput(
        goodput_samples_per_s=samples_per_s * found.share,
        share=found.share,
        interruptions_per_day=_DAY_S / found.mtbf_s,
        checkpoint_interval_s=found.time.interval_s if isfinite(found.time.interval_s) else None,
        checkpoint_s=found.checkpoint_s,
        working_share=found.time.work,
        checkpoint_share=found.time.checkpoint,
        lost_share=found.time.lost,
        restart_share=found.time.restart,
        planned_share=found.time.planned,
        replicas_kept=found.replicas_kept,
        domain_devices=domains.size,
        whole_domains=domains.whole,
        devices_out=domains.devices_out,
        spare_devices=found.spare_devices,
    )
