"""A plan of a document worked out again: when every pass runs, and what every device holds."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.errors import InputError
from phaze.explore.api import measured_links
from phaze.explore.planning.document import PlanDocument, StrategyRecord
from phaze.explore.planning.plan import PlanRequest
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.derived import hbm_capacity_bytes
from phaze.placement.cluster import Recompute
from phaze.placement.pipelines.schedule import Schedule
from phaze.placement.pipelines.timeline import Timeline
from phaze.placement.strategy.estimate import Estimator
from phaze.placement.strategy.iteration import Iteration
from phaze.placement.strategy.strategy import Offload, Order, Strategy, Zero
from phaze.workload.degrees import Shardable, Sharding

_SAME = 1e-6  # relative; what a document and its plan worked out again may differ by


@dataclass(frozen=True)
class PlayedPlan:
    """`timeline`: passes of one pipeline; `iteration`: its time, the memory of every device; capacity of one, bytes."""

    timeline: Timeline
    iteration: Iteration
    capacity_bytes: float


def play(document: PlanDocument, request: PlanRequest, architecture: Architecture) -> PlayedPlan:
    """The best plan of a document, played. Raises InputError where it comes to another time than the document says."""
    task = measured_links(request.task, architecture)
    table = to_table([architecture])
    estimator = Estimator(task.workload, table, task.cluster, request.framework, task.rung, task.own)
    strategy = strategy_of(document.best.strategy)
    iteration = estimator.iteration(strategy)
    told_s = document.best.iteration_time_s
    if abs(iteration.iteration_s / told_s - 1.0) > _SAME:
        raise InputError(
            f"{task.workload.name} on {architecture.name} comes to {iteration.iteration_s:.6g} s with this plan, "
            f"not to {told_s:.6g} s: the model, the workload or the chip is another one than in the document"
        )
    return PlayedPlan(estimator.timeline(strategy), iteration, float(hbm_capacity_bytes(table)[0]))


def strategy_of(record: StrategyRecord) -> Strategy:
    """The strategy that a record tells of."""
    return Strategy(
        microbatch=record.microbatch_size,
        data_parallel=record.data_parallel,
        pipeline_parallel=record.pipeline_parallel,
        sharding=Sharding(
            record.tensor_parallel,
            record.sequence_parallel,
            record.context_parallel,
            record.expert_parallel,
            whole=frozenset(map(Shardable, record.whole_layers)),
        ),
        schedule=Schedule(record.schedule),
        chunks=record.chunks,
        recompute=Recompute(record.recompute),
        recomputed=None if record.recomputed_blocks is None else tuple(record.recomputed_blocks),
        zero=Zero(record.zero_stage),
        shard_group=record.shard_group,
        order=Order(record.order),
        stages=tuple(record.blocks or ()),
        offload=frozenset(map(Offload, record.offload)),
    )
