"""All strategies of a space, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import inf

from phaze.parallel.chunk_division import Grain, blocks
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import Offload, ParallelPlan
from phaze.parallel.plan_batches.stage_cuts import block_flops, stage_cuts
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.training.iteration_estimate import Estimator


def every(e: Estimator, space: PlanSpace) -> Iterator[ParallelPlan]:
    """All strategies of a space, with every number of recomputed blocks in every chunk."""
    for shape in space.shapes(e.workload, e.cluster):
        for deep in space.pipelines(shape, e.cluster, blocks(e.layer_costs(shape).chain, shape.grain)):
            for cut in cuts(e, deep):
                for s in space.schedules_of(cut, e.microbatches(cut)):
                    for variant in space.variants(s):
                        yield from recomputing(e, variant)


def cuts(e: Estimator, deep: ParallelPlan) -> Iterator[ParallelPlan]:
    """Even stages, and those whose ends are lighter; of single layers such that cut a block in two."""
    found = [()]
    if deep.chunks == 1:
        whole = replace(deep, pipeline_parallel=1)
        flops = block_flops(e.chain(deep), e.division(whole))
        found += stage_cuts(flops, deep.pipeline_parallel, deep.grain)
    names = [name.split(".")[0] for name in e.chain(deep).names]
    for cut in (replace(deep, stages=some) for some in found):
        starts = e.division(cut).first_layers.tolist()[1:]
        if deep.grain is Grain.BLOCK or any(names[i] == names[i - 1] for i in starts):
            yield cut


def recomputing(e: Estimator, strategy: ParallelPlan) -> Iterator[ParallelPlan]:
    """With activations at hosts, as it is."""
    if strategy.recompute is not Recompute.FULL or Offload.ACTIVATIONS in strategy.offload:
        yield strategy
        return
    counts = [range(n + 1) for n in e.division(strategy).blocks.tolist()]
    for some in product(*counts):
        yield replace(strategy, recomputed=some)


def needs_and_times(e: Estimator, space: PlanSpace, capacity: float) -> list[tuple[float, float]]:
    """Bytes that the fullest device needs and seconds of an iteration, of every strategy that fits everywhere."""
    found = []
    for strategy in every(e, space):
        memory, room = e.memory(strategy), e.host_capacity_bytes(strategy)
        if all(part.total_bytes <= capacity and part.host_bytes <= room for part in memory):
            need = max(part.total_bytes for part in memory)
            found.append((need, e.iteration(strategy).iteration_s))
    return found


def fastest_s(known: list[tuple[float, float]], capacity: float) -> float:
    """Seconds of the fastest of some strategies that fits on devices, inf where none does."""
    return min((seconds for need, seconds in known if need <= capacity), default=inf)


def brute_force_s(e: Estimator, space: PlanSpace, capacity: float) -> float:
    """Seconds of the fastest strategy that fits on devices and in hosts, inf where none does."""
    return fastest_s(needs_and_times(e, space, capacity), capacity)
