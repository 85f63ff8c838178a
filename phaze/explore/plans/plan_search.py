"""Find the best plan, or work out one that is fixed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from math import inf, isfinite

from phaze.errors import InfeasibleError, InputError, Shortfall
from phaze.explore.documents.plan_document import (
    PlanCertificate,
    PlanConvergence,
    PlanDocument,
    PlanGoodput,
    PlanResult,
)
from phaze.explore.documents.result_manifest import describe_task, manifest, plans_scope
from phaze.explore.evaluation.flops_utilisation import counted_flops_per_s, flops_utilisation
from phaze.explore.evaluation.memory_shortfall import LeastNeeds, why_unfit
from phaze.explore.evaluation.planned_iteration import PlannedIteration, estimator_of
from phaze.explore.request.explore_request import Task
from phaze.explore.request.search_progress import Clock
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.parallel.failures.goodput import FailingCluster
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.plan_search.plan_answer import EvaluatedPlan, PlanAnswer, PlanBreakdown
from phaze.parallel.statistical_efficiency import BatchChoice
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.tolerances import BOUND_ROUNDING

_NEXT = 4  # plans told beside the best
_DAY_S = 86_400.0


def find_best_plan(
    task: Task,
    architecture: Architecture,
    failing: FailingCluster | None = None,
    choice: BatchChoice | None = None,
) -> PlanDocument:
    """The fastest plan of a training workload on one architecture that fits into its memory, and the next ones.

    Of a cluster that fails, and by a noise scale, those of the best goodput, batches to choose from included. Raises
    InputError where choices contradict the model, the cluster or one another, InfeasibleError where no plan fits or
    none gets anything done.
    """
    started, clock = datetime.now(UTC), Clock(float("inf"))
    table = to_table([architecture])
    capacity = task.framework.usable_bytes(float(hbm_capacity_bytes(table)[0]))
    batches = choice.batches if choice else ()
    each = [_Batch(one, estimator_of(one, table), failing, choice) for one in _with_batches(task, batches)]
    found, counts, answers = _searched(each, capacity)
    if not found:
        if failing and failing.slowdown(ParallelPlan(1)) == inf:
            raise _never_done(failing)
        raise _none_fits(each, answers, table, architecture.name)
    peak = float(counted_flops_per_s(table, task.workload.recipe)[0])
    best, *others = (_result(one, of, peak) for of, one in found)
    recipe = task.workload.recipe
    return PlanDocument(
        request=describe_task(found[0][0].task)
        | {"architecture": architecture.name}
        | {"recipe": recipe.value if recipe else None}
        | ({"failures": failing.record.name, "on_failure": failing.policy.value} if failing else {})
        | ({"noise_scale_samples": choice.noise.samples, "batches": [*batches]} if choice else {}),
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
                *([f"goodput by a noise scale of {choice.noise.samples:g} samples"] if choice else []),
                *([f"global batches {', '.join(map(str, batches))}"] if batches else []),
            ],
        ),
        manifest=manifest(started, clock.elapsed_s, seed=0),
    )


def told_plan(task: Task, architecture: Architecture, plan: ParallelPlan) -> PlanDocument | None:
    """A document of one plan, without others beside it; None where it does not fit into memory.

    Raises InputError where the cluster or the model do not allow it.
    """
    started, clock = datetime.now(UTC), Clock(float("inf"))
    table = to_table([architecture])
    of = _Batch(task, estimator_of(task, table), None, None)
    found = EvaluatedPlan(plan, of.costs.iteration(plan))
    if found.iteration.memory_bytes > task.framework.usable_bytes(float(hbm_capacity_bytes(table)[0])):
        return None
    recipe = task.workload.recipe
    return PlanDocument(
        request=describe_task(task)
        | {"architecture": architecture.name}
        | {"recipe": recipe.value if recipe else None},
        best=_result(found, of, float(counted_flops_per_s(table, recipe)[0])),
        next_best=[],
        certificate=PlanCertificate(
            optimal=True,
            space_size=1,
            out_of_memory=0,
            pruned=0,
            evaluated=1,
            scope=[f"rung {task.rung.value}", f"network {task.network.name}", "the one plan that is told"],
        ),
        manifest=manifest(started, clock.elapsed_s, seed=0),
    )


@dataclass(frozen=True)
class _Batch:
    """A task with one global batch, what plans of it come to, and what its samples are worth."""

    task: Task
    costs: Estimator
    failures: FailingCluster | None
    choice: BatchChoice | None

    @property
    def samples(self) -> int:
        """Samples of an iteration."""
        return self.task.cluster.global_batch

    @property
    def efficiency(self) -> float:
        """Progress of a sample, over that of one in the smallest batches."""
        return self.choice.noise.efficiency(self.samples) if self.choice else 1.0

    @cached_property
    def failing(self) -> FailingCluster | None:
        """The cluster that works on this batch, as it fails."""
        return self.failures.on(self.task.cluster) if self.failures else None

    def slowdown(self, plan: ParallelPlan) -> float:
        """Seconds for each second of iterations."""
        return self.failing.slowdown(plan) if self.failing else 1.0

    def progress_s(self, one: EvaluatedPlan) -> float:
        """Seconds for the progress of one sample."""
        slowed_s = one.iteration.iteration_s * self.slowdown(one.plan)
        return slowed_s / (self.samples * self.efficiency)


_Found = list[tuple[_Batch, EvaluatedPlan]]


def _with_batches(task: Task, batches: tuple[int, ...]) -> Iterator[Task]:
    """The task with each batch to choose from, or as it is."""
    yield from (replace(task, global_batch=batch) for batch in batches) if batches else (task,)


def _searched(each: list[_Batch], capacity_bytes: float) -> tuple[_Found, PlanBreakdown, list[PlanAnswer]]:
    """The plans of the most progress per second, best first, the account of all, and the answer for each batch.

    Exact over all batches: a plan of one is left out only if it cannot beat as many that others have.
    """
    found: _Found = []
    answers, top = [], 1 + _NEXT
    for one in each:
        worst_s = found[-1][0].progress_s(found[-1][1]) if len(found) == top else inf
        beat_s = worst_s * one.samples * one.efficiency * (1 + BOUND_ROUNDING)
        answer = best_plans(one.costs, one.task.plan_space, capacity_bytes, top, one.slowdown, beat_s)
        found += [(one, plan) for plan in answer.best]
        found = sorted(found, key=lambda pair: pair[0].progress_s(pair[1]))[:top]
        answers.append(answer)
    counts = [answer.account for answer in answers]
    account = PlanBreakdown(
        sum(c.out_of_memory for c in counts), sum(c.pruned for c in counts), sum(c.evaluated for c in counts)
    )
    return found, account, answers


def _none_fits(
    each: list[_Batch], answers: list[PlanAnswer], table: ArchitectureTable, name: str
) -> InfeasibleError | InputError:
    """Why no batch has a plan that fits: told of the first that has plans at all."""
    at = next((n for n, answer in enumerate(answers) if answer.account.total), 0)
    task = each[at].task
    return why_unfit(task, table, f"{task.devices} x {name}", task.plan_space, LeastNeeds.of(answers[at]))


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


def _result(found: EvaluatedPlan, of: _Batch, peak_flops_per_s: float) -> PlanResult:
    """Record of a plan in a document, after the checker has passed it. Raises PlanError where it does not."""
    planned, i, task = PlannedIteration(of.costs, found.plan, found.iteration), found.iteration, of.task
    planned.check()
    samples = of.samples / i.iteration_s
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
        host_link_bytes=i.host_link_bytes,
        memory=planned.memory,
        breakdown=planned.time,
        kinds=planned.kinds,
        goodput=_goodput(of.failing, found.plan, samples) if of.failing else None,
        convergence=_convergence(of, of.choice, 1 / of.progress_s(found)) if of.choice else None,
    )


def _convergence(of: _Batch, choice: BatchChoice, goodput_samples_per_s: float) -> PlanConvergence:
    """What the samples of a batch are worth."""
    return PlanConvergence(
        global_batch=of.samples,
        noise_scale_samples=choice.noise.samples,
        efficiency=of.efficiency,
        goodput_samples_per_s=goodput_samples_per_s,
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
