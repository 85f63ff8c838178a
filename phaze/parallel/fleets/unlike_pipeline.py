"""A pipeline whose stages lie on pools of unlike devices: the estimate, each stage on its own pool and tensor width.

Passes, memory and what follows the last microbatch are those of an ordinary plan that has the width of a stage on the
chip and the network of its pool, taken at that stage. Between two stages the slower end says how long a transfer takes,
and between zones their link, which all replicas share.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from phaze.arrays import Floats
from phaze.parallel.fleets.fleet_file import Fleet, Pool, ZoneLink
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.pipelines.chunk_times import Chunks
from phaze.parallel.pipelines.pipeline_simulation import pipeline_s, simulate
from phaze.parallel.pipelines.pipeline_timeline import Timeline
from phaze.parallel.training.device_breakdown import breakdown, busiest
from phaze.parallel.training.exchanges.gradient_sync import GradientSyncs
from phaze.parallel.training.iteration import Iteration, MemoryBreakdown
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.mixed_estimate import picked
from phaze.parallel.training.stage_times import StageTimes, boundary_bytes

WAYS = 2
"""A tensor goes forward over a boundary and its gradient back."""


@dataclass(frozen=True)
class StagePlace:
    """Where a stage lies: a pool, and the ordinary plan on it that has the stage's tensor width.

    `estimator`: of such plans on the pool.
    """

    pool: Pool
    estimator: Estimator
    plan: ParallelPlan

    @property
    def devices(self) -> int:
        """Devices that the stage takes of its pool, all replicas together."""
        return self.plan.width * self.plan.data_parallel


@dataclass(frozen=True)
class UnlikePipeline:
    """Replicas of a pipeline of one chunk per stage, all alike, in a fleet; `places` in the order of stages.

    Plans of the places agree in all but the tensor width.
    """

    fleet: Fleet
    places: tuple[StagePlace, ...]

    @property
    def plan(self) -> ParallelPlan:
        """The plan of the first stage: what the others share."""
        return self.places[0].plan

    @property
    def microbatches(self) -> int:
        """Microbatches of a pipeline."""
        return self.places[0].estimator.microbatches(self.plan)

    @property
    def devices(self) -> int:
        """Devices in use."""
        return sum(place.devices for place in self.places)

    @cached_property
    def used(self) -> dict[str, int]:
        """Devices in use by pool."""
        found = {pool.name: 0 for pool in self.fleet.pools}
        for place in self.places:
            found[place.pool.name] += place.devices
        return found

    @cached_property
    def links(self) -> list[ZoneLink | None]:
        """The link behind each stage but the last; None inside a zone."""
        ends = zip(self.places, self.places[1:], strict=False)
        return [self.fleet.link(one.pool, other.pool) for one, other in ends]

    @cached_property
    def crossing_bytes(self) -> Floats:
        """Bytes of one microbatch of all replicas over each boundary, one way, (p - 1,)."""
        first = self.places[0]
        cuts = boundary_bytes(first.estimator.chain(first.plan), first.estimator.division(first.plan))
        return cuts * first.plan.data_parallel

    @cached_property
    def stage_times(self) -> StageTimes:
        """Seconds of one microbatch in every stage, on its pool."""
        each = [place.estimator.stage_times(place.plan) for place in self.places]
        at = np.arange(len(each))
        sides = ([getattr(one, name) for one in each] for name in ("forward", "recomputation", "backward"))
        forward, recomputation, backward = (picked(some, at, at) for some in sides)
        ways = np.array([one.transfer_s for one in each])
        way = at[:-1]
        own = np.maximum(ways[way, way], ways[way + 1, way])
        links = zip(self.links, own.tolist(), self.crossing_bytes.tolist(), strict=True)
        transfers = [own_s if link is None else link.transfer_s(sent) for link, own_s, sent in links]
        return StageTimes(forward, recomputation, backward, np.array(transfers))

    @cached_property
    def gradient_sync(self) -> GradientSyncs:
        """What every stage does after the last microbatch, (1, p); a sum of both ends ends for both at once."""
        each, at = [p.estimator.gradient_sync(p.plan) for p in self.places], np.arange(len(self.places))
        found = {
            f.name: np.array([getattr(one, f.name)[0] for one in each])[at, at][None]
            for f in fields(GradientSyncs)
        }
        ends = [0, len(at) - 1]
        tied = float(self.places[0].estimator.device_parameters(self.plan).tied[0])
        if tied:
            own_s = [self._tie_s(self.places[end], tied) for end in ends]
            found["reduction_s"][0, ends] += max(*own_s, self._tie_link_s()) - np.array(own_s)
        return GradientSyncs(**found)

    def _tie_s(self, place: StagePlace, tied: float) -> float:
        rates = place.estimator.rates
        return float(place.estimator.exchanges(place.plan).tie_s(tied * rates.reduced_bytes)[0, 0])

    def _tie_link_s(self) -> float:
        """Seconds in which the ends of all replicas swap the gradients of what both have, each way at once."""
        link = self._tie_link
        return 0.0 if link is None else link.transfer_s(self._tied_bytes)

    @property
    def _tie_link(self) -> ZoneLink | None:
        """The link between the first stage and the last."""
        return self.fleet.link(self.places[0].pool, self.places[-1].pool)

    @cached_property
    def _tied_bytes(self) -> float:
        """Gradients of the parameters that the first and the last stage both have, of all replicas."""
        one = self.places[0]
        tied = float(one.estimator.device_parameters(one.plan).tied[0])
        return tied * one.plan.width * one.plan.data_parallel * one.estimator.rates.reduced_bytes

    @cached_property
    def chunks(self) -> Chunks:
        """Chunk times of a pipeline."""
        found = self.stage_times
        weight = np.minimum(found.backward.weight_s, found.turned_s)
        blocking = not self.places[0].estimator.framework.hides_transfers
        return Chunks(found.forward.pass_s, found.turned_s - weight, weight, found.transfer_s, blocking)

    @property
    def timeline(self) -> Timeline:
        """When every pass runs."""
        return simulate(self.plan.schedule, self.microbatches, len(self.places), self.chunks)

    @cached_property
    def busy_s(self) -> float:
        """Seconds of the pipeline, and no less than a link between zones has to send."""
        run = pipeline_s(self.plan.schedule, self.microbatches, len(self.places), self.chunks)
        return max(run, self.links_s)

    @property
    def links_s(self) -> float:
        """Seconds in which the busiest path between zones has sent, each way, what all boundaries on it send."""
        spent: dict[int, float] = {}
        for link, sent in zip(self.links, self.crossing_bytes.tolist(), strict=True):
            if link is not None:
                spent[id(link)] = spent.get(id(link), 0.0) + self.microbatches * sent / link.bytes_per_s
        return max(spent.values(), default=0.0)

    @cached_property
    def memory(self) -> tuple[MemoryBreakdown, ...]:
        """Bytes on a device of every stage."""
        return tuple(p.estimator.memory(p.plan)[stage] for stage, p in enumerate(self.places))

    @cached_property
    def iteration(self) -> Iteration:
        """Time and memory of an iteration."""
        first, found, sync = self.places[0], self.stage_times, self.gradient_sync
        framework, each = first.estimator.framework, [[stage] for stage in range(len(self.places))]
        iteration_s = self.busy_s + sync.longest_s + framework.iteration_s
        device = busiest(found, each)
        samples = first.estimator.cluster.global_batch
        return Iteration(
            iteration_s=iteration_s,
            time=breakdown(
                found,
                each[device],
                self.plan,
                self.microbatches,
                sync.of_device(device),
                iteration_s,
                framework,
            ),
            memory=self.memory,
            microbatches=self.microbatches,
            model_flops=first.estimator.layer_costs(self.plan).chain.model_flops
            * (samples // self.plan.microbatch),
        )

    @property
    def egress_usd(self) -> float:
        """Money for what leaves a zone in an iteration: activations one way, their gradients the other.

        Gradients of parameters that both ends have go both ways, once.
        """
        paid = zip(self.links, self.crossing_bytes.tolist(), strict=True)
        passed = float(sum(self.microbatches * sent * link.egress_usd for link, sent in paid if link))
        tie = self._tie_link
        return WAYS * (passed + (self._tied_bytes * tie.egress_usd if tie else 0.0))
