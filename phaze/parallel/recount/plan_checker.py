"""Independent check of a plan before it is reported: every figure held against a second count from the definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import inf, isclose

import numpy as np

from phaze.parallel.chunk_division import Grain
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.pipelines.chunk_times import Chunks
from phaze.parallel.pipelines.pipeline_schedule import refusal
from phaze.parallel.pipelines.pipeline_timeline import Timeline
from phaze.parallel.pipelines.stage_graph import StageGraph
from phaze.parallel.recount.recounted_times import MixedRecount, Recount
from phaze.parallel.recount.timeline_checker import TimelineError, check_timeline
from phaze.parallel.training.iteration import Iteration, MemoryBreakdown, TimeBreakdown
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.kind_times import KindTime
from phaze.parallel.training.mixed_estimate import MixedEstimator
from phaze.tolerances import SAME
from phaze.workload.parallel_degrees import Parallel
from phaze.workload.work import LayerEdge, block_of


class PlanError(Exception):
    """A plan whose figures do not follow from the definitions: a defect of what made it."""


def check_plan(
    estimator: Estimator,
    plan: ParallelPlan,
    iteration: Iteration,
    kinds: Sequence[KindTime] = (),
    capacity_bytes: float | Sequence[float] = inf,
) -> None:
    """Verify a plan and all figures of its iteration; `kinds`: its computation by kind of operator, where stated.

    Degrees go together with the cluster and the model; chunks cover the model once, in order; every pass of the
    timeline has its time and comes after what it needs; the iteration is the timeline and what follows it; parts of
    time and of memory on every device are those counted again (`recount`), sum up and keep the capacity, which may be
    one for each device. Devices of different architectures are each counted on their own. It takes milliseconds, and
    as long as the simulation itself where there are very many microbatches: none is left out.
    Raises PlanError that says what is wrong.
    """
    check = _Check(estimator, plan, iteration, capacity_bytes)
    check.degrees()
    check.layers()
    check.chunks()
    check.timeline()
    check.seconds()
    check.parts()
    check.kinds(kinds)
    check.memory()


@dataclass(frozen=True)
class _Check:
    """The rules, one method each."""

    estimator: Estimator
    plan: ParallelPlan
    iteration: Iteration
    capacity_bytes: float | Sequence[float]

    @cached_property
    def recount(self) -> Recount | MixedRecount:
        """Recount of the whole plan."""
        e = self.estimator
        if not isinstance(e, MixedEstimator):
            return self._on(e)
        known = {row: self._on(e.on(device)) for device, row in enumerate(e.rows)}
        return MixedRecount([known[row] for row in e.rows])

    def _on(self, e: Estimator) -> Recount:
        """Recount on devices of one architecture."""
        s, link = self.plan, float(e.table["link_bandwidth_bytes_per_s"][0])
        rest = e.cluster, e.framework.running(e.workload), e.workload.numerics, e.table
        known: dict[tuple[object, ...], float] = e.layouts.once(("counted again", link), dict)
        return Recount(s, e.layer_costs(s), e.division(s), *rest, known, self._edges(e))

    def _edges(self, e: Estimator) -> tuple[LayerEdge, ...]:
        """Tensors between layers by their names in the chain, where branches run side by side."""
        if not self.plan.branches:
            return ()
        graph = e.workload.layer_graph(self.plan.microbatch, self.plan.sharding)
        at = {name: place for place, name in enumerate(e.chain(self.plan).names)}
        _require(len(at) == len(graph.order.names), "a layer stands twice")
        places = [at[name] for name in graph.order.names]
        found = [replace(way, source=places[way.source], target=places[way.target]) for way in graph.edges]
        _require(all(way.source < way.target for way in found), "a layer stands ahead of one that it reads")
        return tuple(found)

    @cached_property
    def ran(self) -> Timeline:
        """When every pass runs, as reports show it."""
        return self.estimator.timeline(self.plan)

    def degrees(self) -> None:
        """Devices, samples and groups go together."""
        s, cluster, count = self.plan, self.estimator.cluster, self.iteration.microbatches
        devices = s.sharding.tensor * s.sharding.context * s.pipeline_parallel * s.data_parallel
        _require(devices <= cluster.devices, f"{devices} devices of {cluster.devices}")
        samples = s.microbatch * s.data_parallel
        enough = (count - 1) * samples < cluster.global_batch <= count * samples
        _require(enough, f"{count} microbatches of {samples} samples for a batch of {cluster.global_batch}")
        _require(cluster.global_batch % s.microbatch == 0, f"microbatches of {s.microbatch} leave a rest")
        _require(s.expert_ranks % s.sharding.expert == 0, "groups of experts do not divide the devices")
        _require(s.replicas % (s.shard_group or 1) == 0, "shard groups do not divide the replicas")
        why = refusal(s.schedule, s.pipeline_parallel, count, s.chunks)
        _require(why is None, str(why))

    def layers(self) -> None:
        """They are those of the degrees, and their arithmetic is that of the model."""
        s, chain, samples = self.plan, self.recount.layer_costs.chain, self.estimator.cluster.global_batch
        same = (chain.microbatch, chain.sharding) == (s.microbatch, s.sharding)
        _require(same, f"layers of {chain.sharding} for a plan of {s.sharding}")
        flops = sum(chain.layers[i].model_flops for i in chain.index)
        self._equal("model FLOPs", self.iteration.model_flops, flops * (samples / s.microbatch))

    def chunks(self) -> None:
        """Groups are single blocks or layers; they and the chunks cover the chain once, in order, as `stages` says."""
        s, division = self.plan, self.recount.division
        _covers(division.groups, len(self.recount.layer_costs.chain.index), "groups of layers")
        names = [
            name if s.grain is Grain.LAYER else block_of(name)
            for name in self.recount.layer_costs.chain.names
        ]
        whole = [names[a] == names[b] and names[b : b + 2] != [names[b]] * 2 for a, b in division.groups]
        _require(all(whole), f"groups {list(division.groups)} are not one {s.grain} each")
        _covers(division.chunks, len(division.groups), "chunks")
        parts = s.pipeline_parallel * s.chunks
        _require(len(division.chunks) == parts, f"{len(division.chunks)} chunks for {parts} parts")
        sizes = [sum(division.body[first : last + 1]) for first, last in division.chunks]
        _require(min(sizes) > 0, f"a chunk without a block: {sizes}")
        _require(not s.stages or sizes == list(s.stages), f"blocks {sizes}, not {list(s.stages)}")
        even = s.stages or max(sizes) - min(sizes) <= 1
        _require(bool(even), f"blocks {sizes} are not as even as can be")
        held = Counter(chunk for own in self.recount.devices for chunk in own)
        copies = s.schedule.weight_copies
        _require(held == dict.fromkeys(range(parts), copies), f"devices hold chunks {dict(held)}")

    def timeline(self) -> None:
        """Every pass takes its time and comes after what it needs, on its device."""
        s, passes = self.plan, self.recount.passes
        forward = np.array([f.pass_s for f, _, _ in passes])
        turned = np.array([a.pass_s + b.pass_s for _, a, b in passes])
        weight = np.minimum([b.weight_s for _, _, b in passes], turned)
        transfers = np.array(self.recount.transfers_s)
        blocking = not self.estimator.framework.hides_transfers
        ways = self.recount.ways if isinstance(self.recount, Recount) and s.branches else None
        graph = ways and StageGraph(len(passes), tuple(ways))
        chunks = Chunks(forward, turned - weight, weight, transfers, blocking, graph=graph or None)
        try:
            check_timeline(self.ran, s.schedule, self.iteration.microbatches, s.pipeline_parallel, chunks)
        except TimelineError as error:
            raise PlanError(str(error)) from error

    def seconds(self) -> None:
        """The iteration is the pipeline, the longest of what follows it on a device, and the host's own time."""
        sync = max(
            self.recount.gradient_sync(device).total_s for device in range(self.plan.pipeline_parallel)
        )
        whole = self.ran.makespan_s + sync + self.estimator.framework.iteration_s
        self._equal("iteration", self.iteration.iteration_s, whole)

    def parts(self) -> None:
        """Parts of time are those of a device that has most to do, sum to the iteration, and none is negative."""
        time, whole = self.iteration.time, self.iteration.iteration_s
        for name in _TIMES:
            _require(getattr(time, name) >= -SAME * whole, f"{name} is negative: {getattr(time, name)}")
        self._equal("sum of the parts", sum(getattr(time, n) for n in _TIMES if n != "hidden_s"), whole)
        work = [sum(map(self._work_s, own)) for own in self.recount.devices]
        busiest = [d for d, s in enumerate(work) if s >= max(work) * (1 - SAME)]
        wrong = [self._differing(self._parts(device)) for device in busiest]
        _require(not all(wrong), f"{wrong[0]}, counted again")

    def kinds(self, kinds: Sequence[KindTime]) -> None:
        """Kinds of operators sum to what is computed."""
        time = self.iteration.time
        if kinds:
            self._equal("kinds", sum(k.time_s for k in kinds), time.product_s + time.vector_s)
        for k in kinds:
            waits = k.stall_s + k.global_buffer_s
            _require(
                0 <= k.stall_s <= waits <= k.time_s * (1 + SAME), f"{k.kind} waits {waits} of {k.time_s} s"
            )

    def memory(self) -> None:
        """Every device holds what is counted again, and no more than there is."""
        stated, p = self.iteration.memory, self.plan.pipeline_parallel
        _require(len(stated) == p, f"memory of {len(stated)} devices")
        rooms = np.broadcast_to(self.capacity_bytes, p).tolist()
        for device, (memory, order, capacity) in enumerate(zip(stated, self.ran.orders, rooms, strict=True)):
            expected = self.recount.memory(device, order)
            slack = SAME * (sum(expected.values()) + 1.0)
            for name in _BYTES:
                found = getattr(memory, name)
                same = abs(found - expected[name]) <= slack
                _require(same, f"{name} of device {device}: {found}, counted again {expected[name]}")
            fits = memory.total_bytes <= capacity * (1 + SAME)
            _require(fits, f"device {device} needs {memory.total_bytes} bytes of {capacity}")
        room = self.estimator.host_capacity_bytes(self.plan)
        _require(self.iteration.host_bytes <= room * (1 + SAME), f"hosts of {room} bytes are too small")

    def _work_s(self, chunk: int) -> float:
        return float(sum(side.pass_s for side in self.recount.passes[chunk]))

    def _parts(self, device: int) -> dict[str, float]:
        """Parts of time on a device, but for the bubble, which is the rest."""
        e, recount, own = self.estimator, self.recount, self.recount.devices[device]
        runs = self.iteration.microbatches / self.plan.schedule.weight_copies
        sync, passes = recount.gradient_sync(device), [side for c in own for side in recount.passes[c]]
        first_last = [side for c in own for side in recount.passes[c][::2]]

        def spent(name: str, sides: Sequence[object] = first_last) -> float:
            return float(runs * sum(getattr(side, name) for side in sides))

        exposed = {p: runs * sum(side.exposed_s[p] for side in first_last) for p in Parallel}
        vector = spent("vector_s")
        return {
            "product_s": spent("kernels_s") - vector,
            "vector_s": vector,
            "recompute_s": runs * sum(recount.passes[c][1].device_s for c in own),
            "tensor_s": exposed[Parallel.TENSOR],
            "context_s": exposed[Parallel.CONTEXT],
            "expert_s": exposed[Parallel.EXPERT],
            "transfer_s": 0.0 if e.framework.hides_transfers else runs * self._received_s(device),
            "gather_s": spent("gathered_s") + sync.gather_s,
            "reduction_s": spent("reduced_s") + sync.reduction_s,
            "offload_s": spent("moved_s"),
            "optimizer_s": sync.optimizer_s,
            "host_s": spent("waited_s", passes) + e.framework.iteration_s,
            "hidden_s": spent("hidden_s", passes) + sync.hidden_s,
        }

    def _received_s(self, device: int) -> float:
        """Receipts of a microbatch by the chunks of a device, from those of others: forward, and any gradient."""
        recount, found = self.recount, 0.0
        if isinstance(recount, Recount) and self.plan.branches:
            each = zip(recount.ways, recount.transfers_s, strict=True)
            return sum(seconds for way, seconds in each for end in way if end == device)
        turns = not self.plan.schedule.forward_only
        apart = self.plan.schedule.weight_copies > 1
        for chunk in recount.devices[device]:
            for other, way in ((chunk - 1, chunk - 1), (chunk + 1, chunk))[: 1 + turns]:
                inside = other in recount.devices[device] and not apart
                if 0 <= other < len(recount.chunks) and not inside:
                    found += recount.transfers_s[way]
        return found

    def _differing(self, expected: dict[str, float]) -> str:
        """Differences between the stated parts of time and the counted ones, in words; None if there are none."""
        slack = SAME * self.iteration.iteration_s
        stated = {name: getattr(self.iteration.time, name) for name in expected}
        wrong = [n for n, seconds in expected.items() if not abs(stated[n] - seconds) <= slack]
        return ", ".join(f"{n} is {stated[n]} and {expected[n]}" for n in wrong)

    def _equal(self, what: str, stated: float, found: float) -> None:
        _require(isclose(stated, found, rel_tol=SAME), f"{what}: {stated}, counted again {found}")


_TIMES = [f.name for f in fields(TimeBreakdown)]
_BYTES = [f.name for f in fields(MemoryBreakdown)]


def _covers(spans: Sequence[tuple[int, int]], count: int, what: str) -> None:
    """First and last of each, inclusive: one after the other, from the first to the last of so many."""
    ends = [-1, *(last for _, last in spans)]
    follow = all(first == end + 1 <= last for end, (first, last) in zip(ends[:-1], spans, strict=True))
    _require(follow and ends[-1] == count - 1, f"{what} {list(spans)} do not cover {count} once, in order")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise PlanError(otherwise)
