"""Find the best plan, or work out one that is fixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from typing import Any

from phaze.errors import InfeasibleError, InputError, Shortfall
from phaze.explore.api import measured_links
from phaze.explore.formats import counted_flops_per_s
from phaze.explore.manifest import describe_task, manifest
from phaze.explore.planning.document import (
    PlanBreakdown,
    PlanCertificate,
    PlanDocument,
    PlanKind,
    PlanMemory,
    PlanResult,
    StrategyRecord,
)
from phaze.explore.progress import Clock
from phaze.explore.request import Task
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.derived import hbm_capacity_bytes
from phaze.placement.pipelines.schedule import MOST_PASSES
from phaze.placement.strategy.checker import check_plan
from phaze.placement.strategy.choices import Plans, load_plans
from phaze.placement.strategy.estimate import Estimator
from phaze.placement.strategy.framework import Framework, load_framework
from phaze.placement.strategy.kinds import kind_times
from phaze.placement.strategy.search.search import Evaluated, PlanAnswer, best_plans
from phaze.placement.strategy.search.space import PlanSpace, plan_space
from phaze.placement.strategy.strategy import Offload
from phaze.workload.degrees import Shardable
from phaze.workload.workload import Mode

_NEXT = 4  # plans told beside the best


@dataclass(frozen=True)
class PlanRequest:
    """A workload on a cluster under a framework; `held`: choices of the space (`PlanSpace` fields) that are fixed.

    `plans`: the space of plans they are choices of.
    """

    task: Task
    framework: Framework = field(default_factory=load_framework)
    plans: Plans = field(default_factory=load_plans)
    held: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


def plan(request: PlanRequest, architecture: Architecture) -> PlanDocument:
    """The fastest plan of a training workload on one architecture that fits into its memory, and the next ones.

    Raises InputError where choices contradict the model, the cluster or one another, InfeasibleError where no plan
    fits.
    """
    started, clock = datetime.now(UTC), Clock(float("inf"))
    task = measured_links(request.task, architecture)
    if task.workload.mode is not Mode.TRAINING:
        raise InputError(f"a plan of strategies is for training, not for {task.workload.mode}")
    table = to_table([architecture])
    estimator = Estimator(task.workload, table, task.cluster, request.framework, task.rung, task.own)
    space = space_of(request, task)
    capacity = request.framework.usable_bytes(float(hbm_capacity_bytes(table)[0]))
    answer = best_plans(estimator, space, capacity, 1 + _NEXT)
    if not answer.best:
        raise _unfit(task, architecture, capacity, space, answer, request.framework)
    peak = float(counted_flops_per_s(table, task.workload.recipe)[0]) * task.devices
    best, *others = (_result(found, task, peak, capacity, estimator) for found in answer.best)
    counts = answer.account
    return PlanDocument(
        request=describe_task(task)
        | {"architecture": architecture.name, "framework": request.framework.name}
        | {"plans": request.plans.name, "held": _told(request)}
        | {"recipe": recipe.value if (recipe := task.workload.recipe) else None},
        best=best,
        next_best=others,
        certificate=PlanCertificate(
            optimal=True,
            space_size=counts.total,
            out_of_memory=counts.out_of_memory,
            pruned=counts.pruned,
            evaluated=counts.evaluated,
            scope=_scope(request, space),
        ),
        manifest=manifest(started, clock.elapsed_s, seed=0),
    )


def space_of(request: PlanRequest, task: Task) -> PlanSpace:
    """All plans of the task, some choices held. Raises InputError for one that the model does not allow."""
    _check_held(request, task)
    space = plan_space(task.workload, task.cluster, request.framework, request.plans)
    held: dict[str, Any] = {"frugal": space.frugal and "recomputes" not in request.held, **request.held}
    if "whole" in held:
        sorts = frozenset(layer.shardable for layer in task.workload.chain(1, 1).layers if layer.shardable)
        held["whole"] = _among(sorts, held["whole"], task.workload.name)
    found = replace(space, **held | {"offloads": _offloads(request)} | _zeros(space, request.held))
    if all(found.whole) and (max(found.tensor) == 1 or True not in found.sequence):
        raise InputError("--whole needs sequence parallelism over two or more tensor-parallel devices")
    return found


def _check_held(request: PlanRequest, task: Task) -> None:
    """Raise InputError for what is held and the framework, the space of plans or the model does not have."""
    for what, choices in (("framework", request.framework.plans), ("space of plans", request.plans)):
        if (why := choices.refusal(request.held)) is not None:
            name = request.framework.name if what == "framework" else request.plans.name
            raise InputError(f"{what} {name} has no {why}")
    admissible = task.workload.tensor_parallel_divisors(task.devices)
    for width in request.held.get("tensor", ()):
        if width not in admissible:
            possible = ", ".join(map(str, admissible))
            raise InputError(
                f"tensor-parallel width {width} is not possible for {task.workload.name}; possible: {possible}"
            )


def _zeros(space: PlanSpace, held: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """What ranks divide beside pipelines of what is held; no pipelines where that is nothing."""
    if space.pipelined_zeros is None or "zeros" not in held:
        return {}
    left = tuple(zero for zero in held["zeros"] if zero in space.pipelined_zeros)
    return {"pipelined_zeros": left} if left else {"pipelined_zeros": None, "pipeline": (1,)}


def _among(
    sorts: Set[Shardable], asked: Sequence[frozenset[Shardable]], name: str
) -> tuple[frozenset[Shardable], ...]:
    """Of sets of layers that stay whole, those of layers that a model has; InputError where that is none."""
    found = tuple(some for some in asked if some <= sorts)
    if not found:
        missing = ", ".join(sorted(frozenset().union(*asked) - sorts))
        there = ", ".join(sorted(sorts)) or "none"
        raise InputError(f"--whole: {name} has no layers of sort {missing} to keep whole; there are: {there}")
    return found


def _offloads(request: PlanRequest) -> tuple[frozenset[Offload], ...]:
    """What hosts may keep. Raises InputError for one choice that the framework does not have."""
    asked, framework = request.held.get("offloads", (frozenset(),)), request.framework
    if found := tuple(one for one in asked if framework.can_offload(one)):
        return found
    ways = "; ".join(map(str, map(_word, framework.offloads or ()))) or "nothing"
    raise InputError(
        f"framework {framework.name} does not offload {_word(asked[0])}; it does offload: {ways}"
    )


def _told(request: PlanRequest) -> dict[str, Any]:
    return {name: [_word(value) for value in values] for name, values in request.held.items()}


def _word(value: object) -> object:
    """A choice as documents spell it."""
    if isinstance(value, frozenset):
        return "+".join(sorted(value)) or "none"
    return getattr(value, "value", value)


_RAGGED = "ragged degrees, too: replicas may have unequal numbers of microbatches"


def _scope(request: PlanRequest, space: PlanSpace) -> list[str]:
    activations = any(Offload.ACTIVATIONS in offload for offload in space.offloads)
    long = request.task.cluster.global_batch * len(request.task.workload.chain(1, 1).index) > MOST_PASSES
    return [
        f"rung {request.task.rung.value}",
        f"framework {request.framework.name}",
        f"plans {request.plans.name}",
        f"{request.framework.usable_memory:.0%} of a device's memory",
        f"network {request.task.network.name}",
        f"tensor-parallel widths {', '.join(map(str, space.tensor))}",
        _RAGGED if space.ragged else "as many replicas as devices, batch and experts can be divided among",
        "stages of equally many blocks"
        if space.equal
        else "stages of whole blocks, as equal in number as can be or with fewer beside embedding and head",
        *(
            ["full recompute of the first blocks of each device, as few as memory asks for"]
            if space.frugal
            else []
        ),
        *([f"recipe {recipe.value}"] if (recipe := request.task.workload.recipe) else []),
        *(["with activations at the host, recompute of all blocks or none"] if activations else []),
        *([f"at most {MOST_PASSES:,} microbatches times parts of a pipeline"] if long else []),
    ]


def _unfit(
    task: Task,
    architecture: Architecture,
    capacity: float,
    space: PlanSpace,
    answer: PlanAnswer,
    framework: Framework,
) -> InfeasibleError | InputError:
    """Why there is no plan."""
    plans, least = answer.account.total, answer.least_memory_bytes
    if not plans:
        return InputError(
            f"{task.workload.name} on {task.devices} devices: no plan has the degrees, batch and schedule asked for"
            + _narrow(task, space)
        )
    if answer.least_host_bytes < inf:
        host = float(architecture.value("host_memory_capacity_bytes") or 0.0)
        levers: tuple[str, ...] = ("more devices", "more memory per host", "ZeRO, or less offloaded")
        short = Shortfall("memory of one device's host", host, answer.least_host_bytes, "bytes", levers)
    elif least <= capacity:
        return InfeasibleError(
            f"{task.workload.name} on {task.devices} x {architecture.name}: the chip has no links to fill devices with"
        )
    else:
        levers = (
            "more devices",
            "more memory per device",
            "ZeRO, recompute or smaller microbatches, where held",
            *(
                ["a framework that divides more than replicas"]
                if framework.plans.divides == frozenset()
                else []
            ),
        )
        unused = architecture.value("host_bandwidth_bytes_per_s") is not None and not any(space.offloads)
        short = Shortfall(
            f"memory of one device ({framework.usable_memory:.0%} of it can be used)",
            capacity,
            least,
            "bytes",
            (*levers, "--offload any, which uses the memory of hosts") if unused else levers,
        )
    return InfeasibleError(
        f"{task.workload.name} does not fit on {task.devices} x {architecture.name} in any of {plans:,} plans",
        (short,),
    )


def _narrow(task: Task, space: PlanSpace) -> str:
    """What a space of plans asks of degrees beyond that, if anything."""
    asked = (
        []
        if space.ragged
        else [f"data x microbatch dividing the global batch of {task.cluster.global_batch:,}"]
    )
    asked += ["equally many blocks in every stage"] if space.equal else []
    told = f", with {' and '.join(asked)} (ragged degrees: --plans any)" if asked else ""
    if task.cluster.global_batch > MOST_PASSES:
        told += f"; microbatches times parts of a pipeline are at most {MOST_PASSES:,}"
    return told


def _result(
    found: Evaluated, task: Task, peak_flops_per_s: float, capacity_bytes: float, costs: Estimator
) -> PlanResult:
    """What a document tells of a plan, which has passed the checker. Raises PlanError where it does not."""
    s, i = found.strategy, found.iteration
    kinds = kind_times(costs, s)
    check_plan(costs, s, i, kinds, capacity_bytes)
    samples = task.cluster.global_batch / i.iteration_s
    tokens = task.workload.sequence_length
    worst = max(i.memory, key=lambda part: part.total_bytes)
    return PlanResult(
        strategy=StrategyRecord(
            data_parallel=s.data_parallel,
            tensor_parallel=s.sharding.tensor,
            pipeline_parallel=s.pipeline_parallel,
            context_parallel=s.sharding.context,
            expert_parallel=s.sharding.expert,
            sequence_parallel=s.sharding.sequence,
            whole_layers=sorted(s.sharding.whole),
            microbatch_size=s.microbatch,
            microbatches=i.microbatches,
            schedule=s.schedule.value,
            chunks=s.chunks,
            recompute=s.recompute.value,
            recomputed_blocks=list(s.recomputed) if isinstance(s.recomputed, tuple) else None,
            zero_stage=int(s.zero),
            shard_group=s.shard_group,
            order=s.order.value,
            blocks=list(s.stages) or None,
            offload=[what.value for what in Offload if what in s.offload],
        ),
        iteration_time_s=i.iteration_s,
        throughput_samples_per_s=samples,
        throughput_tokens_per_s=samples * tokens if tokens else None,
        mfu=i.model_flops / i.iteration_s / peak_flops_per_s,
        devices_used=s.devices,
        energy_per_iteration_j=costs.energy_j(s, i),
        memory_bytes=i.memory_bytes,
        host_memory_bytes=i.host_bytes,
        memory=PlanMemory(**asdict(worst), total_bytes=worst.total_bytes),
        breakdown=PlanBreakdown(**asdict(i.time)),
        kinds=[PlanKind(**asdict(kind)) for kind in kinds],
    )
