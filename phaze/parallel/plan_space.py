"""The plan space: every product of the choices that a model, a cluster and a framework leave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import isqrt
from typing import Any

from phaze.parallel.chunk_division import Grain, groups_of
from phaze.parallel.cluster import Cluster, Recompute
from phaze.parallel.framework import Framework
from phaze.parallel.parallel_plan import Offload, ParallelPlan, RankOrder, Zero, changed_plan
from phaze.parallel.pipelines.pipeline_schedule import TRAINING, Schedule, refusal
from phaze.parallel.plan_choices import UNLESS_ASKED, Cut, Dimension, Plans, RecomputeChoice
from phaze.workload.parallel_degrees import Shardable, Sharding
from phaze.workload.workload import Mode, Workload

MICROBATCHES = (1, 2, 4, 8, 16, 32)
LARGER_MICROBATCHES = (64, 128, 256, 512)  # in decode
TOKENS = 4096  # of a sample that need not be divided
CHUNKS = (1, 2, 3, 4, 6, 8, 12, 16)


@dataclass(frozen=True)
class PlanSpace:
    """Choices; a plan is one of each. None: every number that pays.

    Replicas are as many as there are devices for: where they are `ragged`, less those without which none has more
    microbatches; otherwise as many as have the same number of microbatches each. Where stages are `equal`, all parts of
    a pipeline have as many blocks. `pipelined_zeros`: what ranks divide beside pipelines, where that is less. `whole`:
    layers that a sharding keeps whole. Where `frugal`, full recompute is that of as few blocks as memory asks for,
    maybe none (with activations at hosts, of all or none); otherwise of all. Where it `balances`, stages of one chunk
    are also cut where the longest of them is shortest. `offloads`: what hosts keep. `grains`: what pipelines are cut
    into; what is in one part is of blocks. `by_layer`: where it is frugal, layers of blocks may also run again alone,
    those of every device that take least and make it fit. `branches`: whether parts that need nothing of one another
    may also run side by side.
    """

    microbatches: tuple[int, ...] = MICROBATCHES
    tensor: tuple[int, ...] = (1, 2, 4, 8)
    sequence: tuple[bool, ...] = (False, True)
    whole: tuple[frozenset[Shardable], ...] = (frozenset(),)
    context: tuple[int, ...] = (1,)
    expert: tuple[int, ...] = (1,)
    pipeline: tuple[int, ...] | None = None
    data: tuple[int, ...] | None = None
    chunks: tuple[int, ...] = CHUNKS
    schedules: tuple[Schedule, ...] = TRAINING
    recomputes: tuple[Recompute, ...] = (Recompute.FULL, Recompute.SELECTIVE)
    frugal: bool = True
    by_layer: bool = False
    balances: bool = True
    zeros: tuple[Zero, ...] = tuple(Zero)
    orders: tuple[RankOrder, ...] = tuple(RankOrder)
    offloads: tuple[frozenset[Offload], ...] = (frozenset(),)
    ragged: bool = True
    equal: bool = False
    grains: tuple[Grain, ...] = (Grain.BLOCK,)
    pipelined_zeros: tuple[Zero, ...] | None = None
    branches: bool = False

    def shapes(self, workload: Workload, cluster: Cluster) -> Iterator[ParallelPlan]:
        """Microbatch, sharding and recompute: what decides on layers and their times."""
        inside = product(
            self.grains, self.microbatches, self.tensor, self.sequence, self.context, self.expert
        )
        for grain, microbatch, tensor, sequence, context, expert in inside:
            divides = cluster.global_batch % microbatch == 0 and tensor * context <= cluster.devices
            if divides and (tensor > 1 or sequence == self.sequence[0]):
                plain = Sharding(tensor, sequence and tensor > 1, context, expert)
                for sharding, recompute in product(self._shardings(plain), self.recomputes):
                    none = 0 if self.frugal and recompute is Recompute.FULL else None
                    yield ParallelPlan(
                        microbatch, sharding=sharding, recompute=recompute, recomputed=none, grain=grain
                    )

    def _shardings(self, plain: Sharding) -> Iterator[Sharding]:
        """The sharding with layers that stay whole; some do only beside sequence parallelism."""
        for whole in self.whole:
            if plain.sequence or not whole:
                yield replace(plain, replicated=whole)

    def pipelines(self, shape: ParallelPlan, cluster: Cluster, most: int) -> Iterator[ParallelPlan]:
        """Stages, chunks and replicas; none without a block, none deeper than it takes for the largest part."""
        deepest = min(most, cluster.devices // shape.width)
        for stages, chunks in product(self.pipeline or range(1, deepest + 1), self.chunks):
            parts = stages * chunks
            if stages > deepest or parts > most or (stages == 1 and chunks > 1 and not self._swaps):
                continue
            if (self.equal and most % parts) or (stages == 1 and shape.grain is Grain.LAYER):
                continue
            for replicas in self._replicas(shape, stages, cluster):
                if replicas * shape.sharding.context % shape.sharding.expert == 0:
                    yield changed_plan(shape, pipeline_parallel=stages, chunks=chunks, data_parallel=replicas)

    @property
    def _swaps(self) -> bool:
        """Whether a single stage may pay to have several chunks: hosts keep state that comes once for each."""
        state = {Offload.WEIGHTS, Offload.OPTIMIZER}
        return Schedule.BREADTH_FIRST in self.schedules and any(state & some for some in self.offloads)

    def _replicas(self, shape: ParallelPlan, stages: int, cluster: Cluster) -> tuple[int, ...]:
        total = cluster.global_batch // shape.microbatch
        most = min(cluster.devices // (shape.width * stages), total)
        if self.data is not None:
            return tuple(d for d in self.data if d <= most and (self.ragged or total % d == 0))
        if not self.ragged:
            return _most_replicas(total, most, shape.sharding.context, shape.sharding.expert)
        return (-(-total // -(-total // most)),) if most else ()

    def runs(self, deep: ParallelPlan, microbatches: int) -> tuple[Schedule, ...]:
        """Schedules that run on so many stages, chunks and microbatches; one for a single stage.

        A single stage of several chunks is one that swaps them with its host.
        """
        alone = deep.pipeline_parallel == 1 and not self.schedules[0].forward_only
        one = Schedule.BREADTH_FIRST if deep.chunks > 1 else Schedule.ONE_F_ONE_B
        all_ = (one,) if alone else self.schedules
        return _running(all_, deep.pipeline_parallel, microbatches, deep.chunks)

    def schedules_of(self, deep: ParallelPlan, microbatches: int) -> Iterator[ParallelPlan]:
        """The plan under each of them."""
        for schedule in self.runs(deep, microbatches):
            yield changed_plan(deep, schedule=schedule)

    def choices(self, plan: ParallelPlan) -> tuple[tuple[Zero, ...], tuple[RankOrder, ...]]:
        """ZeRO stages and rank orders of a plan, where there is more than one to choose among."""
        s, zeros = plan, self.zeros
        if s.pipeline_parallel > 1 and self.pipelined_zeros is not None:
            zeros = self.pipelined_zeros
        zeros = zeros if s.replicas > 1 or s.sharding.replicated else zeros[:1]
        return zeros, self.orders if s.data_parallel > 1 and s.pipeline_parallel > 1 else self.orders[:1]

    def variants(self, plan: ParallelPlan) -> Iterator[ParallelPlan]:
        """The plan with each of these choices, and of what hosts keep."""
        for zero, order in product(*self.choices(plan)):
            yield from self.offloaded(changed_plan(plan, zero=zero, order=order))

    def offloaded(self, plan: ParallelPlan) -> Iterator[ParallelPlan]:
        """The plan with each choice of what hosts keep; with activations there, as few blocks may not be best."""
        for offload in self.offloads:
            one = plan if offload == plan.offload else replace(plan, offload=offload)
            if Offload.ACTIVATIONS in offload and one.recompute is Recompute.FULL and one.recomputed == 0:
                yield replace(one, recompute=Recompute.NONE, recomputed=None)
                yield replace(one, recomputed=None)
            else:
                yield one


@cache
def _running(
    schedules: tuple[Schedule, ...], stages: int, microbatches: int, chunks: int
) -> tuple[Schedule, ...]:
    """Those that run on so many stages, microbatches and chunks of each device."""
    return tuple(one for one in schedules if refusal(one, stages, microbatches, chunks) is None)


@cache
def _most_replicas(total: int, most: int, context: int, expert: int) -> tuple[int, ...]:
    """The largest number up to `most` that divides a number of microbatches and makes whole groups of experts."""
    return tuple(d for d in _divisors(total) if d * context % expert == 0 and d <= most)[-1:]


@cache
def _divisors(number: int) -> tuple[int, ...]:
    """All of them, ascending."""
    low = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*low, *(number // d for d in low)}))


EXPERT_GROUPS = 64  # at most

_FULL = {RecomputeChoice.NONE: Recompute.NONE, RecomputeChoice.ALL: Recompute.FULL}


def plan_space(workload: Workload, cluster: Cluster, framework: Framework, plans: Plans) -> PlanSpace:
    """Plans of a workload on a cluster: what `plans` has of what the framework runs, nothing of it fixed by a user.

    Where `plans` leaves numbers open, tensor parallelism stays inside a scale-up domain; experts are dealt among powers
    of two that divide their number, and samples of more than 4096 tokens are divided by powers of two. In inference
    they are those `forward_only`. Raises InputError where nothing is left.
    """
    some = plans.within(framework.name, framework.plans)
    beside = some.zero_in_pipelines and _common(some)
    if beside == ():
        some = some.model_copy(
            update={"divides": frozenset(Dimension) & (some.divides or set(Dimension)) - {Dimension.PIPELINE}}
        )
    space = PlanSpace(
        microbatches=some.microbatches,
        chunks=some.chunks,
        schedules=some.schedules or TRAINING,
        zeros=some.zero or tuple(Zero),
        pipelined_zeros=beside or None,
        orders=some.orders or tuple(RankOrder),
        whole=some.whole,
        offloads=some.offloads,
        ragged=bool(some.ragged),
        equal=some.stages is Cut.EQUAL,
        balances=some.stages is not Cut.EQUAL,
        grains=_grains(workload, some),
        branches=some.branches,
        **_degrees(workload, cluster, some),
        **_recomputes(workload, framework, some.recompute or UNLESS_ASKED),
    )
    return space if workload.mode is Mode.TRAINING else forward_only(space, workload.mode)


def selective_spares(workload: Workload, framework: Framework) -> bool:
    """Whether selective recompute keeps less than none does: flash attention has done its part already."""
    if workload.mode is not Mode.TRAINING:
        return False
    kept = framework.keeps_products
    chains = (workload.chain(1, 1, selective=on, keeps_products=kept) for on in (False, True))
    plain, spared = (sum(c.layers[i].saved_bytes for i in c.index) for c in chains)
    return spared < plain


def forward_only(space: PlanSpace, mode: Mode) -> PlanSpace:
    """The plans of a space in inference: forward passes of microbatches one after the other, nothing kept for others.

    In decode a sample has one token, which is not divided; microbatches may be larger.
    """
    found = replace(
        space,
        schedules=(Schedule.CACHED if mode is Mode.DECODE else Schedule.FORWARD,),
        chunks=(1,),
        recomputes=(Recompute.NONE,),
        frugal=False,
        by_layer=False,
        zeros=(Zero.NONE,),
        pipelined_zeros=None,
        branches=False,
        offloads=(frozenset(),),
    )
    if mode is not Mode.DECODE:
        return found
    larger = tuple(size for size in LARGER_MICROBATCHES if size > max(space.microbatches))
    sizes = (*space.microbatches, *larger)
    return replace(found, microbatches=sizes, sequence=(False,), whole=(frozenset(),), context=(1,))


def _common(plans: Plans) -> tuple[Zero, ...]:
    """ZeRO stages that plans with pipelines and plans without share."""
    return tuple(zero for zero in plans.zero_in_pipelines or () if plans.zero is None or zero in plans.zero)


def _degrees(workload: Workload, cluster: Cluster, plans: Plans) -> dict[str, Any]:
    """Numbers of devices that divide each dimension."""
    widths = workload.tensor_parallel_divisors(min(cluster.network.scale_up_devices, cluster.devices))
    groups = workload.expert_parallel_divisors(EXPERT_GROUPS)
    samples = max(1, (workload.sequence_length or 1) // TOKENS).bit_length()
    open_ = {
        Dimension.TENSOR: tuple(t for t in plans.tensor or widths if t in widths),
        Dimension.CONTEXT: plans.context or _powers(1 << samples - 1),
        Dimension.EXPERT: tuple(e for e in plans.expert or _powers(EXPERT_GROUPS) if e in groups),
        Dimension.PIPELINE: plans.pipeline,
    }
    found: dict[str, Any] = {kind.value: n if plans.divided(kind) else (1,) for kind, n in open_.items()}
    divides = plans.divided(Dimension.SEQUENCE) and workload.sequence_length is not None
    return found | {"sequence": (False, True) if divides else (False,)}


def _powers(most: int) -> tuple[int, ...]:
    """Powers of two up to one."""
    return tuple(1 << i for i in range(most.bit_length()))


def _grains(workload: Workload, plans: Plans) -> tuple[Grain, ...]:
    """Grains that pipelines may be cut into; single layers where blocks have several."""
    chain, anywhere = workload.chain(1, 1), plans.stages in (None, Cut.LAYERS)
    halves = (
        anywhere and plans.divided(Dimension.PIPELINE) and groups_of(chain) != groups_of(chain, Grain.LAYER)
    )
    return (Grain.BLOCK, Grain.LAYER) if halves else (Grain.BLOCK,)


def _recomputes(
    workload: Workload, framework: Framework, kinds: tuple[RecomputeChoice, ...]
) -> dict[str, Any]:
    """Which activations run again; selective recompute where it is another thing than none."""
    some = RecomputeChoice.SELECTIVE in kinds and selective_spares(workload, framework)
    selective = (Recompute.SELECTIVE,) if some else ()
    if not {RecomputeChoice.SOME, RecomputeChoice.LAYERS}.isdisjoint(kinds):
        by_layer = RecomputeChoice.LAYERS in kinds
        return {"recomputes": (Recompute.FULL, *selective), "frugal": True, "by_layer": by_layer}
    plain = tuple(_FULL[kind] for kind in kinds if kind in _FULL)
    return {"recomputes": (*plain, *selective) or (Recompute.NONE,), "frugal": False}
