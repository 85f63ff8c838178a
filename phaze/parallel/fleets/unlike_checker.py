"""Independent check of a pipeline across pools: every figure held against recounts of ordinary plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isclose

import numpy as np

from phaze.parallel.fleets.unlike_pipeline import StagePlace, UnlikePipeline
from phaze.parallel.pipelines.chunk_times import Chunks
from phaze.parallel.recount.plan_checker import PlanError
from phaze.parallel.recount.recounted_times import Recount
from phaze.parallel.recount.timeline_checker import TimelineError, check_timeline
from phaze.tolerances import SAME


def check_unlike(pipeline: UnlikePipeline, capacity_bytes: Mapping[str, float]) -> None:
    """Verify a pipeline and its iteration; `capacity_bytes`: memory that plans may fill, by pool.

    Pools have the devices, blocks are covered once, passes take their time and come after what they need, links have
    time to send and are paid, and what follows is the longest of all stages. Raises PlanError that says what is wrong.
    """
    check = _Check(pipeline, capacity_bytes)
    check.devices()
    check.stages()
    check.seconds()
    check.memory()
    check.money()


@dataclass(frozen=True)
class _Check:
    pipeline: UnlikePipeline
    capacity_bytes: Mapping[str, float]

    @cached_property
    def each(self) -> list[Recount]:
        """Recount of every place as if all stages were there."""
        return [_recount(place) for place in self.pipeline.places]

    def devices(self) -> None:
        """Pools have as many as are taken of them, and all samples are run."""
        p, taken = self.pipeline, dict[str, int]()
        for place in p.places:
            here = place.plan.sharding.tensor * place.plan.data_parallel
            taken[place.pool.name] = taken.get(place.pool.name, 0) + here
        for pool in p.fleet.pools:
            used = taken.get(pool.name, 0)
            _require(used <= pool.devices, f"{used} devices of {pool.devices} in {pool.name}")
        samples = p.plan.microbatch * p.plan.data_parallel
        batch, count = p.places[0].estimator.cluster.global_batch, p.iteration.microbatches
        _require((count - 1) * samples < batch <= count * samples, f"{count} x {samples} samples for {batch}")

    def stages(self) -> None:
        """Plans of places agree in all but their widths, and cover the blocks once."""
        count = len(self.pipeline.places)
        same = {
            (p.microbatch, p.data_parallel, p.pipeline_parallel, p.stages, p.zero, p.recomputed)
            for p in (place.plan for place in self.pipeline.places)
        }
        _require(len(same) == 1, f"stages of {len(same)} plans")
        plan, division = self.pipeline.plan, self.each[0].division
        sizes = [sum(division.body[first : last + 1]) for first, last in division.chunks]
        _require(sizes == list(plan.stages) and len(sizes) == count, f"blocks {sizes}, not {plan.stages}")

    def seconds(self) -> None:
        """The iteration is the timeline, or what links have to send, and what follows."""
        p, passes = self.pipeline, [one.passes[stage] for stage, one in enumerate(self.each)]
        forward = np.array([f.pass_s for f, _, _ in passes])
        turned = np.array([a.pass_s + b.pass_s for _, a, b in passes])
        weight = np.minimum([b.weight_s for _, _, b in passes], turned)
        blocking = not p.places[0].estimator.framework.hides_transfers
        chunks = Chunks(forward, turned - weight, weight, np.array(self._transfers_s()), blocking)
        ran = p.timeline
        try:
            check_timeline(ran, p.plan.schedule, p.iteration.microbatches, len(p.places), chunks)
        except TimelineError as error:
            raise PlanError(str(error)) from error
        late = max(self._sync_s(stage) for stage in range(len(p.places)))
        own = p.places[0].estimator.framework.iteration_s
        whole = max(ran.makespan_s, self._sending_s()) + late + own
        stated = p.iteration.iteration_s
        _require(isclose(stated, whole, rel_tol=SAME), f"iteration: {stated}, counted again {whole}")
        parts = p.iteration.time.total_s
        _require(isclose(parts, stated, rel_tol=SAME), f"parts sum to {parts} of {stated}")

    def memory(self) -> None:
        """Every stage holds what is counted again, and no more than its pool has."""
        for stage, (place, stated) in enumerate(zip(self.pipeline.places, self.pipeline.memory, strict=True)):
            found = sum(self.each[stage].memory(stage, self.pipeline.timeline.orders[stage]).values())
            same = isclose(stated.total_bytes, found, rel_tol=SAME)
            _require(same, f"memory of stage {stage}: {stated.total_bytes}, counted again {found}")
            room = self.capacity_bytes[place.pool.name]
            _require(found <= room * (1 + SAME), f"stage {stage} needs {found} bytes of {room}")

    def money(self) -> None:
        """What goes between zones is paid by the byte: to and fro at every boundary, and between the ends."""
        p, count = self.pipeline, self.pipeline.iteration.microbatches
        sent = [*((zones, count * size) for zones, size in self._sent()), self._tie()]
        found = 2 * sum(size * p.fleet.links[zones].egress_usd for zones, size in sent if len(zones) > 1)
        _require(
            isclose(p.egress_usd, found, rel_tol=SAME), f"egress: {p.egress_usd} USD, counted again {found}"
        )

    def _sent(self) -> list[tuple[frozenset[str], float]]:
        """Zones and bytes of one microbatch of all replicas at every boundary."""
        p, one = self.pipeline, self.each[0]
        found = []
        for a, b, (first, _) in zip(p.places, p.places[1:], one.division.chunks[1:], strict=False):
            layer = one.division.groups[first][0] - 1
            size = one.layer_costs.chain.layers[one.layer_costs.chain.index[layer]].output_bytes
            found.append((frozenset({a.pool.zone, b.pool.zone}), size * a.plan.data_parallel))
        return found

    def _transfers_s(self) -> list[float]:
        found = []
        for way, (zones, sent) in enumerate(self._sent()):
            if len(zones) > 1:
                link = self.pipeline.fleet.links[zones]
                found.append(link.latency_s + sent / link.bytes_per_s)
            else:
                found.append(max(self.each[end].transfers_s[way] for end in (way, way + 1)))
        return found

    def _sending_s(self) -> float:
        """Seconds in which the path between two zones has sent everything, one way."""
        total: dict[frozenset[str], float] = {}
        for zones, sent in self._sent():
            if len(zones) > 1:
                total[zones] = total.get(zones, 0.0) + sent * self.pipeline.iteration.microbatches
        return max(
            (size / self.pipeline.fleet.links[zones].bytes_per_s for zones, size in total.items()),
            default=0.0,
        )

    def _sync_s(self, stage: int) -> float:
        """What a stage does after the last microbatch; both ends of tied parameters wait for one another."""
        found, ends = self.each[stage].gradient_sync(stage).total_s, (0, len(self.each) - 1)
        if stage not in ends:
            return found
        own = [self.each[end].tied_s(end) for end in ends]
        return found - self.each[stage].tied_s(stage) + max(*own, self._tie_link_s())

    def _tie_link_s(self) -> float:
        zones, sent = self._tie()
        if len(zones) < 2 or not sent:
            return 0.0
        link = self.pipeline.fleet.links[zones]
        return link.latency_s + sent / link.bytes_per_s

    def _tie(self) -> tuple[frozenset[str], float]:
        """Zones of the ends, and bytes of the gradients of what both have, of all replicas."""
        p, one = self.pipeline, self.each[0]
        zones = frozenset({p.places[0].pool.zone, p.places[-1].pool.zone})
        tied = sum(elements for _, elements in one.layers[one.layer_costs.chain.index[0]].tied)
        return zones, tied * p.plan.sharding.tensor * p.plan.data_parallel * one.wire_bytes[1]


def _recount(place: StagePlace) -> Recount:
    """Recount of the ordinary plan of a place."""
    e, s = place.estimator, place.plan
    link = float(e.table["link_bandwidth_bytes_per_s"][0])
    rest = e.cluster, e.framework.running(e.workload), e.workload.numerics, e.table
    return Recount(s, e.layer_costs(s), e.division(s), *rest, e.layouts.once(("counted again", link), dict))


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise PlanError(otherwise)
