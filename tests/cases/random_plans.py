"""Random plans of small models under any software, each of which can run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import isnan
from random import Random

from strategy_cases import estimator, framework, small_gpt

from phaze.errors import InputError
from phaze.parallel.chunk_division import Grain, blocks
from phaze.parallel.cluster import Recompute
from phaze.parallel.framework import Framework, TensorOverlap, load_framework
from phaze.parallel.parallel_plan import Offload, ParallelPlan, RankOrder, Zero, check_admissible
from phaze.parallel.pipelines.pipeline_schedule import TRAINING
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.workload.parallel_degrees import Shardable, Sharding
from phaze.workload.workload import Workload

LAUNCHES = {"dispatch_s": 2e-5, "dispatch_backward_s": 3e-5, "microbatch_s": 1e-4, "iteration_s": 1e-3}
HIDES = {
    "hides_gathers": True,
    "hides_reduction": True,
    "hides_transfers": True,
    "hides_offload": True,
    "hides_context": 0.5,
    "hides_experts": 0.7,
    "tensor_overlap": TensorOverlap.CHUNKED,
    "interference": 0.2,
}
SAID: dict[str, dict[str, object]] = {
    "ideal": {},
    "hides": HIDES,
    "launches": LAUNCHES,
    "launches beside": LAUNCHES | HIDES | {"gathers": 3, "gather_rank_s": 1e-6},
    "waits": LAUNCHES | {"waits": True, "hides_transfers": True, "scatters_transfers": False},
    "blocking": LAUNCHES | {"blocking": True, "reduces_every_microbatch": False, "gathered_bytes": 4.0},
    "memory": {"fragmentation": 0.1, "score_copies": 2.0, "reserved_bytes": 1e9, "weight_bytes": 4.0},
    "compiled": {"prunes_recompute": True, "score_passes": 2.0, "hides_reduction": True, "stretch": 1.2},
    "early": {"stops_early": True, "hides_gathers": True, "tensor_overlap": TensorOverlap.WEIGHT_GRADIENT},
    "experts": {"expert_passes": 2.0, "expert_room": 1.2, "merges_copies": True, "hides_offload": True},
}
PACKAGED = ("megatron-lm-2021", "megatron-bridge-2025", "torchtitan-2024-eager", "deepspeed-zero3-2021")


@cache
def software(name: str) -> Framework:
    """One of `SAID`, or a packaged one."""
    return framework(**SAID[name]) if name in SAID else load_framework(name)


@cache
def model(name: str) -> Workload:
    """Small models: even and uneven numbers of blocks, tied tables, experts."""
    return {
        "dense": lambda: small_gpt(8),
        "uneven": lambda: small_gpt(7),
        "tied": lambda: small_gpt(8, tied=True),
        "experts": lambda: small_gpt(8, experts=4),
    }[name]()


MODELS = ("dense", "uneven", "tied", "experts")


@cache
def costs(of: str, under: str, chip: str = "a100") -> Estimator:
    """A model on 32 chips under some software."""
    return estimator(32, 64, chip, software(under), workload=model(of))


def plans(
    seed: int, count: int, chips: tuple[str, ...] = ("a100",)
) -> Iterator[tuple[Estimator, ParallelPlan]]:
    """So many random plans that can run, each with what works it out."""
    random, found = Random(seed), 0
    while found < count:
        names = [*SAID, *PACKAGED]
        e = costs(random.choice(MODELS), random.choice(names), random.choice(chips))
        strategy = _strategy(random, e)
        if _runs(e, strategy):
            found += 1
            yield e, strategy


def _strategy(random: Random, e: Estimator) -> ParallelPlan:
    schedule = random.choice(TRAINING)
    stages = random.choice((1, 2, 2, 4, 4))
    chunks = schedule.chunks_per_device or 2
    recompute = random.choice(tuple(Recompute))
    grain = random.choice((Grain.BLOCK, Grain.BLOCK, Grain.LAYER))
    sizes = _sizes(random, e, stages * chunks, grain) if random.random() < 0.3 else ()
    again, hosts = None, not isnan(float(e.table["host_bandwidth_bytes_per_s"][0]))
    away = random.choice((0, 0, 1, 2)) if hosts else 0
    if recompute is Recompute.FULL and random.random() < 0.5:
        again = tuple(random.randrange(3) for _ in range(stages * chunks))
    return ParallelPlan(
        microbatch=random.choice((1, 2)),
        data_parallel=random.choice((1, 2, 4)),
        pipeline_parallel=stages,
        sharding=_sharding(random),
        schedule=schedule,
        chunks=chunks,
        recompute=recompute,
        recomputed=again,
        zero=random.choice(tuple(Zero)),
        reshards=random.random() < 0.8,
        order=random.choice(tuple(RankOrder)),
        offload=frozenset(random.choice(tuple(Offload)) for _ in range(away)),
        stages=sizes,
        grain=grain,
    )


def _sharding(random: Random) -> Sharding:
    tensor, sequence = random.choice((1, 2, 4)), random.random() < 0.5
    whole = frozenset({Shardable.MLP}) if tensor > 1 and sequence and random.random() < 0.3 else frozenset()
    return Sharding(
        tensor, sequence and tensor > 1, random.choice((1, 1, 2)), random.choice((1, 2)), replicated=whole
    )


def _sizes(random: Random, e: Estimator, parts: int, grain: Grain) -> tuple[int, ...]:
    """Blocks, or layers, of every part, at least one each."""
    total = blocks(e.layer_costs(ParallelPlan(1)).chain, grain)
    if parts > total:
        return ()
    cuts = sorted(random.sample(range(1, total), parts - 1))
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True))


def _runs(e: Estimator, s: ParallelPlan) -> bool:
    """Whether it can: devices, microbatches, blocks and experts go together."""
    moe = any(layer.expert_parameters for layer in e.workload.chain(1, 1).layers)
    if (s.sharding.expert > 1 and not moe) or (s.sharding.replicated and moe):
        return False
    try:
        check_admissible(s, e.cluster, e.microbatches(s))
        e.division(s)
    except InputError:
        return False
    return True
