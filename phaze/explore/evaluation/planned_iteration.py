"""Training plans on one architecture, worked out and checked, and the records that tell them in documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import fsum, inf, isclose
from typing import Any

import numpy as np

from phaze.arrays import Rows
from phaze.explore.documents.plan_record import (
    LayerRunRecord,
    PlanBreakdown,
    PlanKind,
    PlanMemory,
    StrategyRecord,
)
from phaze.explore.documents.result_document import Breakdown, Placement, Stage
from phaze.explore.evaluation.evaluator import Evaluator, FoundPlan
from phaze.explore.evaluation.task_costs import measured_links
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.parallel.chunk_division import Grain
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import LayerRun, Offload, ParallelPlan, RankOrder, Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.pipelines.stage_graph import StageGraph
from phaze.parallel.recount.plan_checker import PlanError, check_plan
from phaze.parallel.training.iteration import Iteration
from phaze.parallel.training.iteration_energy import Drivers
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.kind_times import KindTime, kind_times
from phaze.parallel.training.plan_layouts import PlanLayouts
from phaze.parallel.training.stage_edges import StageEdges
from phaze.scheduling.effort import KNOWN
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import SAME, SETTLED_STATES
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.parallel_degrees import Shardable, Sharding


def estimator_of(
    task: Task,
    table: ArchitectureTable,
    recipe: Recipe | None = None,
    laid_out: PlanLayouts | None = None,
    left_s: Callable[[], float] = lambda: inf,
) -> Estimator:
    """Plans of a task on the architectures of a table, linear layers in a recipe; `laid_out`: as of `Estimator`.

    `left_s`: seconds after which it raises OutOfTimeError.
    """
    task = measured_links(task, table)
    workload, said = task.workload_in(recipe), task.framework
    effort = SolveLimits(left_s, SETTLED_STATES)
    return Estimator(workload, table, task.cluster, said, task.rung, task.own, effort, laid_out)


def worked_out(
    evaluator: Evaluator, config: TrainingConfig, plans: Mapping[int, FoundPlan]
) -> Iterator[PlannedIteration]:
    """The plans that the evaluator found in a config at some rows of its table, their layers all at once.

    Raises PlanError as `PlannedIteration.found` does.
    """
    costs = estimator_at(evaluator, config, np.array(list(plans), dtype=np.intp))
    return map(PlannedIteration.found, costs.each(), plans.values())


def estimator_at(evaluator: Evaluator, config: TrainingConfig, rows: Rows) -> Estimator:
    """Plans of a config on the architectures at some rows of the evaluator's table.

    Layers are in the schedules that the evaluator knows, so that what is told is what was found, and takes no search.
    """
    table, layouts = evaluator.table.take(rows), evaluator.layouts(config)
    several = estimator_of(evaluator.task, table, config.recipe, layouts)
    return replace(several, scheduled=evaluator.scheduled(config, rows, KNOWN))


@dataclass(frozen=True)
class PlannedIteration:
    """A plan on one architecture and what it comes to; `iteration` is that of `costs`."""

    costs: Estimator
    strategy: ParallelPlan
    iteration: Iteration

    @classmethod
    def of(cls, costs: Estimator, strategy: ParallelPlan) -> PlannedIteration:
        """A plan worked out. Raises InputError where the cluster or the model do not allow it."""
        return cls(costs, strategy, costs.iteration(strategy))

    @classmethod
    def found(cls, costs: Estimator, found: FoundPlan) -> PlannedIteration:
        """A plan that a search found, in the schedules of layers that the search knows.

        Raises PlanError where it takes another time than the search says: a defect of one of the two.
        """
        planned = cls.of(costs, found.strategy)
        seconds = planned.iteration.iteration_s
        if not isclose(seconds, found.iteration_s, rel_tol=SAME):
            raise PlanError(
                f"{found.strategy} takes {seconds} s, not {found.iteration_s} s as the search says"
            )
        return planned

    def check(self, *, kinds: bool = True) -> None:
        """Hold every figure, or all but those by kind of operator, against a second count of it.

        Raises PlanError where they differ.
        """
        usable = self.costs.framework.usable_bytes(float(hbm_capacity_bytes(self.costs.table)[0]))
        check_plan(self.costs, self.strategy, self.iteration, self.kind_times if kinds else (), usable)

    @cached_property
    def kind_times(self) -> tuple[KindTime, ...]:
        """Computation by kind of operator."""
        return kind_times(self.costs, self.strategy)

    @cached_property
    def energy_j(self) -> float:
        """Joules of one iteration on all devices."""
        return self.costs.energy_j(self.strategy, self.iteration)

    # -- records ---------------------------------------------------------------------------------------------

    @property
    def record(self) -> StrategyRecord:
        """All choices of the plan."""
        return strategy_record(
            self.strategy, self.iteration.microbatches, self.costs.layouts.edges(self.strategy)
        )

    @property
    def time(self) -> PlanBreakdown:
        """Seconds by cause."""
        return PlanBreakdown(**asdict(self.iteration.time))

    @property
    def memory(self) -> PlanMemory:
        """Bytes on the fullest device."""
        worst = max(self.iteration.memory, key=lambda part: part.total_bytes)
        return PlanMemory(**asdict(worst), total_bytes=worst.total_bytes)

    @property
    def kinds(self) -> list[PlanKind]:
        """Computation by kind of operator."""
        return [PlanKind(**asdict(kind)) for kind in self.kind_times]

    def figures(self, recipe: Recipe | None = None) -> dict[str, Any]:
        """Fields of a `WorkloadResult` on the plan itself, by name; `recipe`: as in `placement`."""
        return {
            "iteration_time_s": self.iteration.iteration_s,
            "devices_used": self.strategy.devices,
            "energy_per_iteration_j": self.energy_j,
            "memory_bytes": self.iteration.memory_bytes,
            "host_memory_bytes": self.iteration.host_bytes,
            "placement": self.placement(recipe),
            "breakdown": self.breakdown(),
            "memory": self.memory,
            "kinds": self.kinds,
        }

    def placement(self, recipe: Recipe | None = None) -> Placement:
        """Degrees and stages; `recipe`: what the linear layers were put into by the search."""
        s = self.strategy
        return Placement(
            data_parallel=s.data_parallel,
            tensor_parallel=s.sharding.tensor,
            pipeline_parallel=s.pipeline_parallel,
            microbatch_size=s.microbatch,
            recompute=s.recompute.value,
            recipe=recipe,
            stages=self._stages(),
            plan=self.record,
        )

    def _stages(self) -> list[Stage]:
        s, costs = self.strategy, self.costs
        loads, division, names = costs.stage_times(s), costs.division(s), costs.chain(s).names
        each = zip(costs.placed(s), self.iteration.memory, strict=True)
        return [
            Stage(
                layers=[name for chunk in chunks for name in names[division.layers(chunk)]],
                devices=s.sharding.tensor * s.sharding.context,
                load_s=fsum((loads.forward.pass_s + loads.turned_s)[chunks]) / self._copies,
                memory_bytes=memory.total_bytes,
            )
            for chunks, memory in each
        ]

    @property
    def _copies(self) -> int:
        """Pipelines that share a device: each runs its part of the microbatches there."""
        return self.strategy.schedule.weight_copies

    def breakdown(self) -> Breakdown:
        """The five parts, and by cause."""
        t = self.iteration.time
        kernels_s = t.product_s + t.vector_s
        stall_s = min(fsum(kind.stall_s for kind in self.kind_times), kernels_s)
        buffer_s = min(fsum(kind.global_buffer_s for kind in self.kind_times), kernels_s - stall_s)
        exchanged_s = t.tensor_s + t.context_s + t.expert_s + t.transfer_s + t.gather_s + t.reduction_s
        return Breakdown(
            compute_s=kernels_s + t.recompute_s - stall_s - buffer_s,
            memory_s=stall_s,
            global_buffer_s=buffer_s,
            collective_s=exchanged_s,
            bubble_s=t.bubble_s,
            optimizer_s=t.optimizer_s,
            host_s=t.host_s + t.offload_s,
            parts=self.time,
        )


def energies_j(plans: Sequence[PlannedIteration]) -> list[float]:
    """Joules of one iteration on all devices of each plan: architectures with the same layers side by side."""
    each, alike = [one.costs.chain_energy(one.strategy) for one in plans], dict[int, list[int]]()
    for place, (energy, _) in enumerate(each):
        alike.setdefault(id(energy), []).append(place)
    joules = np.zeros(len(plans))
    for places in alike.values():
        some, (energy, _) = [plans[place] for place in places], each[places[0]]
        drivers = Drivers.join([one.costs.drivers(one.strategy, one.iteration.iteration_s) for one in some])
        joules[places] = energy.energy_j(np.array([each[place][1] for place in places]), drivers)
    return joules.tolist()


def strategy_record(
    strategy: ParallelPlan, microbatches: int, edges: StageEdges | None = None
) -> StrategyRecord:
    """All choices of a strategy as documents spell them; `microbatches` of each pipeline, `edges` of its stages."""
    s = strategy
    return StrategyRecord(
        data_parallel=s.data_parallel,
        tensor_parallel=s.sharding.tensor,
        pipeline_parallel=s.pipeline_parallel,
        context_parallel=s.sharding.context,
        expert_parallel=s.sharding.expert,
        sequence_parallel=s.sharding.sequence,
        whole_layers=sorted(s.sharding.replicated),
        microbatch_size=s.microbatch,
        microbatches=microbatches,
        schedule=s.schedule.value,
        chunks=s.chunks,
        recompute=s.recompute.value,
        recomputed_blocks=list(s.recomputed) if isinstance(s.recomputed, tuple) else None,
        layers=[LayerRunRecord(blocks=run.blocks, again=run.again, sharded=run.sharded) for run in s.layers]
        or None,
        zero_stage=int(s.zero),
        shard_group=s.shard_group,
        order=s.order.value,
        blocks=list(s.stages) or None,
        feeds=_feeds(edges.graph) if edges else None,
        layer_order=list(s.layer_order) or None,
        grain=s.grain.value,
        offload=[what.value for what in Offload if what in s.offload],
    )


def _feeds(graph: StageGraph) -> list[list[int]]:
    """Stages, from 1, that each stage feeds."""
    return [[graph.edges[way][1] + 1 for way in ways] for ways in graph.out_of]


def strategy_of(record: StrategyRecord) -> ParallelPlan:
    """The strategy that a record tells of."""
    return ParallelPlan(
        microbatch=record.microbatch_size,
        data_parallel=record.data_parallel,
        pipeline_parallel=record.pipeline_parallel,
        sharding=Sharding(
            record.tensor_parallel,
            record.sequence_parallel,
            record.context_parallel,
            record.expert_parallel,
            replicated=frozenset(map(Shardable, record.whole_layers)),
        ),
        schedule=Schedule(record.schedule),
        chunks=record.chunks,
        recompute=Recompute(record.recompute),
        recomputed=None if record.recomputed_blocks is None else tuple(record.recomputed_blocks),
        layers=tuple(LayerRun(run.blocks, run.again, run.sharded) for run in record.layers or ()),
        zero=Zero(record.zero_stage),
        shard_group=record.shard_group,
        order=RankOrder(record.order),
        stages=tuple(record.blocks or ()),
        branches=record.feeds is not None,
        layer_order=tuple(record.layer_order or ()),
        grain=Grain(record.grain),
        offload=frozenset(map(Offload, record.offload)),
    )
