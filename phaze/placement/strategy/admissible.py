"""Whether a strategy can be run on a cluster at all."""

from __future__ import annotations

from phaze.errors import InputError
from phaze.placement.cluster import Cluster, Recompute
from phaze.placement.pipelines.schedule import Schedule, refusal
from phaze.placement.strategy.strategy import Strategy, Zero
from phaze.workload.workload import Mode


def check(strategy: Strategy, cluster: Cluster, microbatches: int) -> None:
    """Raise InputError that says what does not go together."""
    s = strategy
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
    if (why := refusal(s.schedule, s.pipeline_parallel, microbatches, s.chunks)) is not None:
        raise InputError(why)


def check_mode(strategy: Strategy, mode: Mode) -> None:
    """Raise InputError for backward passes, and what there is for their sake, in inference, or for none in training."""
    s, trains = strategy, mode is Mode.TRAINING
    if s.schedule.forward_only is trains or (mode is Mode.DECODE) is not (s.schedule is Schedule.CACHED):
        raise InputError(f"schedule {s.schedule} is not for {mode}")
    if not trains and (s.recompute is not Recompute.NONE or s.zero is not Zero.NONE or s.offload):
        raise InputError(
            f"{mode} runs forward alone: nothing is recomputed, divided by ZeRO or left to hosts"
        )
