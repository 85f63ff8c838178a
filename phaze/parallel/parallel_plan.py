"""A parallel plan: all decisions on how one model's training is spread over a cluster, and whether it can be run."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import IntEnum, StrEnum
from operator import attrgetter
from typing import Any

from phaze.errors import InputError
from phaze.parallel.chunk_division import Grain
from phaze.parallel.cluster import Cluster, Recompute
from phaze.parallel.pipelines.pipeline_schedule import Schedule, refusal
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.workload import Mode


class Zero(IntEnum):
    """ZeRO stage: state that data-parallel ranks divide instead of keeping copies (arXiv 1910.02054; 3 is FSDP)."""

    NONE = 0
    OPTIMIZER = 1
    GRADIENTS = 2
    WEIGHTS = 3


class Offload(StrEnum):
    """State that lies in the memory of the host instead of the device's."""

    WEIGHTS = "weights"
    ACTIVATIONS = "activations"  # what backward needs of forward
    OPTIMIZER = "optimizer"  # gradients and states; the host steps them


class RankOrder(StrEnum):
    """Rank order: the groups that are neighbours, from the inside out; those inside have the faster tiers."""

    DATA_INNER = "tensor-context-data-pipeline"  # Megatron-LM's default
    PIPELINE_INNER = "tensor-context-pipeline-data"


NOTHING, BLOCK, EACH = "none", "block", "each-layer"
"""What of a block runs again, beside single layers by their names: none of it, all as one, or layer by layer."""


@dataclass(frozen=True, slots=True)
class LayerRun:
    """Blocks that follow one another and are run alike.

    `again`: `none` of each, the whole `block` from its input, `each-layer` from its own input, or one layer alone by
    its name inside the block (`mlp` of `block7.mlp`). `sharded`: whether replicas divide their weights and gradients,
    too, as under ZeRO 3, beside others whose optimizer states alone they divide (ZeRO 1).
    """

    blocks: int
    again: str
    sharded: bool = False


@dataclass(frozen=True, slots=True)
class ParallelPlan:
    """Degrees, schedule, and what is recomputed and divided.

    Groups of layers are of one `grain`: blocks, or single layers, so that a stage may end inside a block.
    `data_parallel`: replicas of the model; an expert group lies among them. `chunks`: parts of the model on each
    device, one after the other in the pipeline (interleaving). `stages`: groups of layers in each of the
    `pipeline_parallel x chunks` parts, in model order; empty, as even as can be. `recomputed`: groups of layers in
    each part that full recompute applies to, one number for all parts or one each; None, all. `kept`, `offloaded`:
    operators whose results it spares, on the device or in the memory of the host (there, too, the `input` of a
    group). `shard_group`: ranks that ZeRO divides over (hybrid sharding); None, all replicas. `reshards`: whether
    weights are dropped after forward and gathered again (ZeRO 3). `offload`: what lies in the host's memory.
    `layers`: what of every repeated group full recompute applies to, in model order, `recomputed` being the groups of
    every part of which something runs again; empty, all of these groups. `branches`: whether parts that need nothing of
    one another run side by side: stages are a graph, each on a device of its own. `layer_order`: places of its layers
    in the order in which they are cut, so that a stage may hold parts of several branches; empty, the graph's own.
    """

    microbatch: int
    data_parallel: int = 1
    pipeline_parallel: int = 1
    sharding: Sharding = field(default_factory=Sharding)
    schedule: Schedule = Schedule.ONE_F_ONE_B
    chunks: int = 1
    recompute: Recompute = Recompute.NONE
    recomputed: int | tuple[int, ...] | None = None
    kept: frozenset[str] = frozenset()
    offloaded: frozenset[str] = frozenset()
    zero: Zero = Zero.NONE
    shard_group: int | None = None
    reshards: bool = True
    order: RankOrder = RankOrder.DATA_INNER
    offload: frozenset[Offload] = frozenset()
    stages: tuple[int, ...] = ()
    grain: Grain = Grain.BLOCK
    layers: tuple[LayerRun, ...] = ()
    branches: bool = False
    layer_order: tuple[int, ...] = ()

    @property
    def stays_whole(self) -> bool:
        """Whether weights that ranks divide are gathered once per iteration, for all microbatches of a pipeline."""
        return self.zero is Zero.WEIGHTS and not self.reshards and self.pipeline_parallel > 1

    @property
    def shards_layers(self) -> bool:
        """Whether replicas divide the weights of some blocks alone."""
        return any(run.sharded for run in self.layers)

    @property
    def width(self) -> int:
        """Devices of one stage of one replica."""
        return self.sharding.tensor * self.sharding.context

    @property
    def devices(self) -> int:
        """Devices that hold a part of the model."""
        return self.width * self.pipeline_parallel * self.data_parallel

    @property
    def parts(self) -> int:
        """Chunks of the model, all devices of a pipeline together."""
        return self.pipeline_parallel * self.chunks

    @property
    def joins_ends(self) -> bool:
        """Whether the first and the last chunk lie on the same device."""
        return self.pipeline_parallel == 1 or self.schedule.joins_ends

    @property
    def replicas(self) -> int:
        """Devices with the same weights, but for those of experts: data and context ranks."""
        return self.data_parallel * self.sharding.context

    @property
    def expert_replicas(self) -> int:
        """Devices with the same experts."""
        return self.expert_ranks // self.sharding.expert

    @property
    def expert_ranks(self) -> int:
        """Devices of a stage that experts are divided among, and their replicas."""
        return self.replicas * (self.sharding.tensor if self.sharding.folded else 1)

    @property
    def expert_stride(self) -> int:
        """Device numbers between neighbours of those with the same experts."""
        stride = self.data_stride // self.width if self.sharding.folded else self.replica_stride
        return stride * self.sharding.expert

    @property
    def replica_stride(self) -> int:
        """Device numbers between neighbours of those with the same weights.

        Context ranks are neighbours, and so are replicas unless pipelines lie between them: all then count as far
        apart as these.
        """
        far = self.data_parallel > 1 and self.data_stride > self.width
        return self.data_stride if far else self.sharding.tensor

    @property
    def data_stride(self) -> int:
        """Device numbers between neighbours of a data-parallel group."""
        return self.width * (1 if self.order is RankOrder.DATA_INNER else self.pipeline_parallel)

    @property
    def pipeline_stride(self) -> int:
        """Device numbers between neighbours of a pipeline."""
        return self.width * (self.data_parallel if self.order is RankOrder.DATA_INNER else 1)


_PLACES = {one.name: place for place, one in enumerate(fields(ParallelPlan))}
_VALUES = attrgetter(*_PLACES)


def changed_plan(plan: ParallelPlan, **changes: Any) -> ParallelPlan:  # noqa: ANN401 - of any field
    """The plan with other values of some fields: `dataclasses.replace` for those who do so 100 000 times."""
    values = list(_VALUES(plan))
    for name, value in changes.items():
        values[_PLACES[name]] = value
    return ParallelPlan(*values)


def check_admissible(plan: ParallelPlan, cluster: Cluster, microbatches: int) -> None:
    """Raise InputError that says what does not go together."""
    s = plan
    total, rest = divmod(cluster.global_batch, s.microbatch)
    if rest:
        raise InputError(
            f"microbatches of {s.microbatch} do not divide a global batch of {cluster.global_batch}"
        )
    if s.data_parallel > total:
        raise InputError(f"{s.data_parallel} replicas for {total} microbatches")
    if s.devices > cluster.devices:
        raise InputError(f"the strategy takes {s.devices} devices of {cluster.devices}")
    if s.expert_ranks % s.sharding.expert:
        raise InputError(f"{s.sharding.expert} groups of experts do not divide {s.expert_ranks} devices")
    if s.shard_group is not None and s.replicas % s.shard_group:
        raise InputError(f"groups of {s.shard_group} do not divide {s.replicas} replicas")
    if s.layer_order and not s.branches:
        raise InputError("layers have another order than the model's where branches run side by side only")
    if s.branches:
        _check_branches(s)
    if s.shards_layers and (s.zero is not Zero.OPTIMIZER or not s.reshards):
        raise InputError(
            "weights of some blocks alone are divided under ZeRO 1, and gathered again in backward"
        )
    if (why := refusal(s.schedule, s.pipeline_parallel, microbatches, s.chunks)) is not None:
        raise InputError(why)


def _check_branches(plan: ParallelPlan) -> None:
    """Raise InputError for what no graph of stages runs."""
    if plan.schedule is not Schedule.ONE_F_ONE_B or plan.chunks > 1 or plan.pipeline_parallel == 1:
        raise InputError("branches run side by side on several stages of one part each, under 1f1b")
    if plan.offload or plan.offloaded or plan.layers:
        raise InputError(
            "where branches run side by side nothing is left to hosts, and blocks recompute whole"
        )
    if plan.layer_order and plan.grain is not Grain.LAYER:
        raise InputError("layers in an order of their own are cut one by one, not in blocks")


def check_mode(plan: ParallelPlan, mode: Mode) -> None:
    """Raise InputError for backward passes, and what there is for their sake, in inference, or for none in training."""
    s, trains = plan, mode is Mode.TRAINING
    if s.schedule.forward_only is trains or (mode is Mode.DECODE) is not (s.schedule is Schedule.CACHED):
        raise InputError(f"schedule {s.schedule} is not for {mode}")
    if not trains and (s.recompute is not Recompute.NONE or s.zero is not Zero.NONE or s.offload):
        raise InputError(
            f"{mode} runs forward alone: nothing is recomputed, divided by ZeRO or left to hosts"
        )
