"""Which strategies are looked at: every product of the choices that a model, a cluster and a user allow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from phaze.placement.cluster import Cluster, Recompute
from phaze.placement.pipelines.schedule import Schedule, refusal
from phaze.placement.strategy.strategy import Offload, Order, Strategy, Zero
from phaze.workload.degrees import Shardable, Sharding
from phaze.workload.workload import Attention, Workload

MICROBATCHES = (1, 2, 4, 8, 16, 32)
TOKENS = 4096  # of a sample that need not be divided
CHUNKS = (1, 2, 3, 4, 6, 8, 12, 16)


@dataclass(frozen=True)
class PlanSpace:
    """Choices; a strategy is one of each. None: every number that pays.

    Replicas are as many as there are devices for, less those without which each has no more microbatches. `whole`:
    layers that a sharding keeps whole. Where `frugal`, full recompute is that of as few blocks as memory asks for,
    maybe none (with activations at hosts, of all or none); otherwise of all. Where it `balances`, stages of one chunk
    are also cut where the longest of them is shortest. `offloads`: what hosts keep.
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
    schedules: tuple[Schedule, ...] = tuple(Schedule)
    recomputes: tuple[Recompute, ...] = (Recompute.FULL, Recompute.SELECTIVE)
    frugal: bool = True
    balances: bool = True
    zeros: tuple[Zero, ...] = tuple(Zero)
    orders: tuple[Order, ...] = tuple(Order)
    offloads: tuple[frozenset[Offload], ...] = (frozenset(),)

    def shapes(self, workload: Workload, cluster: Cluster) -> Iterator[Strategy]:
        """Microbatch, sharding and recompute: what decides on layers and their times."""
        inside = product(self.microbatches, self.tensor, self.sequence, self.context, self.expert)
        for microbatch, tensor, sequence, context, expert in inside:
            divides = cluster.global_batch % microbatch == 0 and tensor * context <= cluster.devices
            if divides and (tensor > 1 or sequence == self.sequence[0]):
                plain = Sharding(tensor, sequence and tensor > 1, context, expert)
                for sharding, recompute in product(self._shardings(plain), self.recomputes):
                    none = 0 if self.frugal and recompute is Recompute.FULL else None
                    yield Strategy(microbatch, sharding=sharding, recompute=recompute, recomputed=none)

    def _shardings(self, plain: Sharding) -> Iterator[Sharding]:
        """The sharding with layers that stay whole; some do only beside sequence parallelism."""
        for whole in self.whole:
            if plain.sequence or not whole:
                yield replace(plain, whole=whole)

    def pipelines(self, shape: Strategy, cluster: Cluster, most: int) -> Iterator[Strategy]:
        """Stages, chunks and replicas; none without a block, none deeper than it takes for the largest part."""
        deepest = min(most, cluster.devices // shape.width)
        for stages, chunks in product(self.pipeline or range(1, deepest + 1), self.chunks):
            parts = stages * chunks
            if stages > deepest or parts > most or (stages == 1 and chunks > 1):
                continue
            if self.pipeline is None and parts > 1 and -(-most // parts) == -(-most // (parts - 1)):
                continue
            for replicas in self._replicas(shape, stages, cluster):
                if replicas * shape.sharding.context % shape.sharding.expert == 0:
                    yield replace(shape, pipeline_parallel=stages, chunks=chunks, data_parallel=replicas)

    def _replicas(self, shape: Strategy, stages: int, cluster: Cluster) -> tuple[int, ...]:
        total = cluster.global_batch // shape.microbatch
        most = min(cluster.devices // (shape.width * stages), total)
        if self.data is not None:
            return tuple(d for d in self.data if d <= most)
        return (-(-total // -(-total // most)),) if most else ()

    def runs(self, deep: Strategy, microbatches: int) -> tuple[Schedule, ...]:
        """Schedules that run on so many stages, chunks and microbatches; one for a single stage."""
        if deep.pipeline_parallel == 1:
            return (Schedule.ONE_F_ONE_B,)
        shape = deep.pipeline_parallel, microbatches, deep.chunks
        return tuple(schedule for schedule in self.schedules if refusal(schedule, *shape) is None)

    def schedules_of(self, deep: Strategy, microbatches: int) -> Iterator[Strategy]:
        """The strategy under each of them."""
        for schedule in self.runs(deep, microbatches):
            yield replace(deep, schedule=schedule)

    def choices(self, strategy: Strategy) -> tuple[tuple[Zero, ...], tuple[Order, ...]]:
        """What ranks divide and which are neighbours, where there is more than one to do so."""
        s = strategy
        zeros = self.zeros if s.replicas > 1 or s.sharding.whole else self.zeros[:1]
        return zeros, self.orders if s.data_parallel > 1 and s.pipeline_parallel > 1 else self.orders[:1]

    def variants(self, strategy: Strategy) -> Iterator[Strategy]:
        """The strategy with each of these choices, and of what hosts keep."""
        for zero, order in product(*self.choices(strategy)):
            yield from self.offloaded(replace(strategy, zero=zero, order=order))

    def offloaded(self, strategy: Strategy) -> Iterator[Strategy]:
        """The strategy with each choice of what hosts keep; with activations there, as few blocks may not be best."""
        for offload in self.offloads:
            one = strategy if offload == strategy.offload else replace(strategy, offload=offload)
            if Offload.ACTIVATIONS in offload and one.recompute is Recompute.FULL and one.recomputed == 0:
                yield replace(one, recompute=Recompute.NONE, recomputed=None)
                yield replace(one, recomputed=None)
            else:
                yield one


def plan_space(workload: Workload, cluster: Cluster, experts: int, attention: Attention) -> PlanSpace:
    """What a workload with so many experts (0: none) on a cluster allows, nothing of it fixed by a user.

    Tensor parallelism stays inside a scale-up domain; experts are divided by powers of two, and so are samples of more
    than 4096 tokens.
    """
    widths = workload.tensor_parallel_widths(min(cluster.network.scale_up_devices, cluster.devices))
    selective = (Recompute.SELECTIVE,) if attention is Attention.UNFUSED else ()
    return PlanSpace(
        tensor=widths,
        sequence=(False, True) if workload.sequence_length is not None else (False,),
        context=tuple(1 << i for i in range(max(1, (workload.sequence_length or 1) // TOKENS).bit_length())),
        expert=tuple(1 << i for i in range(experts.bit_length()) if experts % (1 << i) == 0) or (1,),
        recomputes=(Recompute.FULL, *selective),
    )
