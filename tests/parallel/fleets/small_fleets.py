"""Fleets of two small pools, the search on them, and every pipeline across both by brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

from phaze.explore.plans.fleet_planning import FleetObjective, FleetPlanning
from phaze.hardware.architecture import load_architecture
from phaze.hardware.cluster_network import two_tiers
from phaze.parallel.cluster import Recompute
from phaze.parallel.fleets.fleet_file import Fleet, Pool
from phaze.parallel.fleets.unlike_pipeline import StagePlace, UnlikePipeline
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.workload.parallel_degrees import Sharding

TIED_BYTES = 8000 * 512 * 2
"""Gradients of the embedding of the small decoder, which both ends of a pipeline have, in bf16."""
NETWORK = two_tiers(2, 200e9, 1e-6, 25e9, 5e-6)


def fleet_of(devices=(2, 2), link=None, prices=(3.6, 1.8)):
    chips = ("a100", "v100")
    zones = ("here", "there") if link else ("here", "here")
    pools = tuple(
        Pool(chip, load_architecture(chip), n, NETWORK, zone, price)
        for chip, n, zone, price in zip(chips, devices, zones, prices, strict=True)
    )
    return Fleet("two", pools, {frozenset(zones): link} if link else {})


def search_of(fleet, task, objective=FleetObjective.THROUGHPUT, **more):
    planning = FleetPlanning(fleet, task, objective)
    return planning, replace(planning.search(), **more)


def every_pipeline(search):
    """Every cut, pool and width, all blocks or none recomputed where memory asks for it; worked out one by one."""
    first = search.members[0]
    for common in search.commons():
        blocks = sum(first.estimator.division(ParallelPlan(common.microbatch)).body)
        choices = [(m, t) for m in search.members for t in m.space.tensor if t <= m.pool.devices]
        for cuts in product((False, True), repeat=blocks - 1):
            starts = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), blocks]
            sizes = tuple(b - a for a, b in pairwise(starts))
            for chosen in product(choices, repeat=len(sizes)):
                yield from pipelines_of(search, common, sizes, chosen)


def pipelines_of(search, common, sizes, chosen):
    used = {m.pool.name: 0 for m in search.members}
    for member, tensor in chosen:
        used[member.pool.name] += tensor * common.replicas
    if any(used[m.pool.name] > m.pool.devices for m in search.members) or 0 in used.values():
        return
    places = tuple(
        StagePlace(
            member.pool,
            member.estimator,
            ParallelPlan(
                common.microbatch,
                common.replicas,
                len(sizes),
                Sharding(tensor, tensor > 1),
                recompute=Recompute.NONE,
                zero=common.zero,
                stages=sizes,
            ),
        )
        for member, tensor in chosen
    )
    pipeline = UnlikePipeline(search.fleet, places)
    if all(
        memory.total_bytes <= member.capacity_bytes
        for memory, (member, _) in zip(pipeline.memory, chosen, strict=True)
    ):
        yield pipeline
