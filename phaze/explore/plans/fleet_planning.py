"""The best plan of a training in a fleet: on one of its pools, or stage by stage across them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from math import inf

from phaze.errors import InfeasibleError, InputError
from phaze.explore.documents.fleet_document import (
    FleetCertificate,
    FleetDocument,
    FleetPipeline,
    FleetPlan,
    FleetStage,
)
from phaze.explore.documents.plan_document import PlanDocument
from phaze.explore.documents.plan_record import PlanBreakdown
from phaze.explore.documents.result_manifest import describe_task, manifest, plans_scope
from phaze.explore.evaluation.flops_utilisation import counted_flops_per_s
from phaze.explore.evaluation.planned_iteration import estimator_of
from phaze.explore.plans.plan_search import find_best_plan
from phaze.explore.request.explore_request import Task
from phaze.explore.request.search_progress import Clock
from phaze.hardware.architecture import to_table
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.hardware.silicon.package_power import tdp_w
from phaze.parallel.fleets.fleet_file import Fleet, Pool
from phaze.parallel.fleets.fleet_search import FleetFound, FleetSearch, FleetTally
from phaze.parallel.fleets.stage_options import Member
from phaze.parallel.fleets.unlike_checker import check_unlike
from phaze.parallel.fleets.unlike_pipeline import UnlikePipeline
from phaze.tolerances import SAME

_HOUR_S = 3600.0


class FleetObjective(StrEnum):
    """Objective in a fleet; all are minimised but throughput."""

    THROUGHPUT = "throughput"
    COST = "cost_per_sample"
    ENERGY = "energy_per_sample"  # of devices in use at their TDP


@dataclass(frozen=True)
class FleetPlanning:
    """A question: a task without its devices, on a fleet, for an objective."""

    fleet: Fleet
    task: Task
    objective: FleetObjective

    def answer(self) -> FleetDocument:
        """The best plan in the fleet, checked.

        Raises InputError where prices are missing or choices make no sense, InfeasibleError where nothing fits.
        """
        started, clock = datetime.now(UTC), Clock(inf)
        self._check_prices()
        alone, unfit = self._alone()
        found, tally = self._across(min((self._value(plan) for plan in alone), default=inf))
        plans = [*alone, *([self._told(found.pipeline)] if found.pipeline else [])]
        if not plans:
            raise _nothing_fits(self, unfit)
        best, *others = sorted(plans, key=self._value)
        value = self._value(best)
        bound = min(found.bound, value)
        return FleetDocument(
            request=describe_task(self.task)
            | {"fleet": self.fleet.name, "objective": self.objective.value, "devices": self.fleet.devices},
            best=best,
            others=others,
            unfit=unfit,
            certificate=FleetCertificate(
                optimal=bound >= value * (1 - SAME),
                objective=self.objective.value,
                value=value,
                lower_bound=bound,
                gap=max(value / bound - 1, 0.0),
                programs_solved=tally.solved,
                pipelines_worked_out=tally.looked_at,
                scope=self._scope(),
            ),
            manifest=manifest(started, clock.elapsed_s, seed=0),
        )

    def _scope(self) -> list[str]:
        across = "across pools: 1F1B, one chunk a stage, replicas alike, tensor widths and recompute by stage"
        return [f"rung {self.task.rung.value}", *plans_scope(self.task), "one pool: every plan", across]

    def _check_prices(self) -> None:
        missing = [pool.name for pool in self.fleet.pools if pool.price_usd is None]
        if self.objective is FleetObjective.COST and missing:
            raise InputError(
                f"--objective {self.objective} needs a price of every pool; {missing[0]} has none"
            )

    # -- one pool ----------------------------------------------------------------------------------------------

    @cached_property
    def batch(self) -> int:
        """Samples of an iteration."""
        return self.task.global_batch or self.task.workload.global_batch(self.fleet.devices)

    def _on(self, pool: Pool, devices: int) -> Task:
        """The task on so many devices of a pool."""
        return replace(self.task, devices=devices, network=pool.network, global_batch=self.batch)

    def _alone(self) -> tuple[list[FleetPlan], dict[str, str]]:
        """The best ordinary plan of every pool; where rates count, of some numbers of its devices."""
        found, unfit = list[FleetPlan](), dict[str, str]()
        for pool in self.fleet.pools:
            plans = list(self._of_pool(pool, unfit))
            found += [min(plans, key=self._value)] if plans else []
        return found, unfit

    def _of_pool(self, pool: Pool, unfit: dict[str, str]) -> Iterator[FleetPlan]:
        for devices in self._numbers(pool):
            try:
                document = find_best_plan(self._on(pool, devices), pool.chip)
            except (InfeasibleError, InputError) as error:  # also degrees that so few devices do not have
                if devices == pool.devices:
                    unfit[pool.name] = str(error)
                return
            yield self._ordinary(pool, document)

    def _numbers(self, pool: Pool) -> list[int]:
        halves = [pool.devices >> n for n in range(pool.devices.bit_length())]
        return halves[:1] if self.objective is FleetObjective.THROUGHPUT else halves

    def _ordinary(self, pool: Pool, document: PlanDocument) -> FleetPlan:
        best = document.best
        flops = best.mfu * best.iteration_time_s * self._peak(pool) * document.request["devices"]
        used = {one.name: best.devices_used * (one == pool) for one in self.fleet.pools}
        return FleetPlan(**self._figures(used, best.iteration_time_s, flops, 0.0), plan=best)

    # -- across pools ------------------------------------------------------------------------------------------

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """Pools with their estimators."""
        return tuple(map(self._member, self.fleet.pools))

    def _member(self, pool: Pool) -> Member:
        task, table = self._on(pool, pool.devices), to_table([pool.chip])
        usable = task.framework.usable_bytes(float(hbm_capacity_bytes(table)[0]))
        return Member(pool, estimator_of(task, table), task.plan_space, usable, self._rate(pool))

    def _rate(self, pool: Pool) -> float:
        """What a device in use is worth for each second."""
        if self.objective is FleetObjective.ENERGY:
            return self._tdp_w(pool)
        return (pool.price_usd or 0.0) / _HOUR_S if self.objective is FleetObjective.COST else 1.0

    @staticmethod
    def _tdp_w(pool: Pool) -> float:
        return float(tdp_w(to_table([pool.chip]))[0])

    def _peak(self, pool: Pool) -> float:
        return float(counted_flops_per_s(to_table([pool.chip]), self.task.workload.recipe)[0])

    def _across(self, below: float) -> tuple[FleetFound, FleetTally]:
        """The best pipeline across pools that is better than what is known; none in a fleet of one pool."""
        if len(self.fleet.pools) < 2:
            return FleetFound(None, below, below), FleetTally()
        search = self.search(below)
        found = search.best()
        if found.pipeline is not None:
            check_unlike(found.pipeline, {m.pool.name: m.capacity_bytes for m in self.members})
        return found, search.tally

    def search(self, below: float = inf) -> FleetSearch:
        """The search for pipelines across pools whose value is less than `below`."""
        rated, paid = self.objective is not FleetObjective.THROUGHPUT, self.objective is FleetObjective.COST
        return FleetSearch(self.fleet, self.members, rated, paid, below)

    def _told(self, pipeline: UnlikePipeline) -> FleetPlan:
        found, plan = pipeline.iteration, pipeline.plan
        loads = pipeline.stage_times.forward.pass_s + pipeline.stage_times.turned_s
        figures = self._figures(pipeline.used, found.iteration_s, found.model_flops, pipeline.egress_usd)
        stages = [
            FleetStage(
                pool=place.pool.name,
                chip=place.pool.chip.name,
                zone=place.pool.zone,
                devices=place.devices,
                tensor_parallel=place.plan.sharding.tensor,
                blocks=place.plan.stages[stage],
                recomputed_blocks=_recomputed(pipeline, stage),
                load_s=float(loads[stage]),
                memory_bytes=found.memory[stage].total_bytes,
            )
            for stage, place in enumerate(pipeline.places)
        ]
        return FleetPlan(
            **figures,
            pipeline=FleetPipeline(
                data_parallel=plan.data_parallel,
                microbatch_size=plan.microbatch,
                microbatches=found.microbatches,
                zero_stage=plan.zero.value,
                stages=stages,
                breakdown=PlanBreakdown(**asdict(found.time)),
                links_s=pipeline.links_s,
            ),
        )

    # -- figures -----------------------------------------------------------------------------------------------

    def _figures(
        self, used: dict[str, int], seconds: float, flops: float, egress_usd: float
    ) -> dict[str, object]:
        pools = [(pool, used[pool.name]) for pool in self.fleet.pools]
        prices = [pool.price_usd for pool, n in pools if n]
        priced = None not in prices
        hourly = sum((pool.price_usd or 0.0) * n for pool, n in pools)
        cost = hourly / _HOUR_S * seconds + egress_usd if priced else None
        samples, tokens = self.batch / seconds, self.task.workload.sequence_length
        peak = sum(self._peak(pool) * pool.devices for pool in self.fleet.pools)
        return {
            "pools": used,
            "iteration_time_s": seconds,
            "throughput_samples_per_s": samples,
            "throughput_tokens_per_s": samples * tokens if tokens else None,
            "mfu": flops / (seconds * peak),
            "cost_per_iteration_usd": cost,
            "cost_per_sample_usd": None if cost is None else cost / self.batch,
            "egress_usd": egress_usd,
            "energy_at_tdp_per_sample_j": sum(self._tdp_w(pool) * n for pool, n in pools) / samples,
        }

    def _value(self, plan: FleetPlan) -> float:
        if self.objective is FleetObjective.COST:
            return inf if plan.cost_per_iteration_usd is None else plan.cost_per_iteration_usd
        if self.objective is FleetObjective.ENERGY:
            return plan.energy_at_tdp_per_sample_j * self.batch
        return plan.iteration_time_s


def _recomputed(pipeline: UnlikePipeline, stage: int) -> int:
    """Blocks of a stage that recompute."""
    place = pipeline.places[stage]
    counts = place.plan.recomputed
    if isinstance(counts, tuple):
        return counts[stage]
    return place.plan.stages[stage] if place.plan.recompute.value == "full" else 0


def _nothing_fits(asked: FleetPlanning, unfit: dict[str, str]) -> InfeasibleError:
    """Why the fleet cannot hold the model."""
    name = asked.task.workload.name
    reasons = "; ".join(f"{pool} alone: {why}" for pool, why in unfit.items())
    across = ", and no pipeline across its pools fits" if len(asked.fleet.pools) > 1 else ""
    return InfeasibleError(f"fleet {asked.fleet.name} cannot hold {name}{across}: {reasons}")
