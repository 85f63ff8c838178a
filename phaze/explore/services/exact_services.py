"""Plans of a service on architectures, way by way, exactly: what the steady state gives at every batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from phaze.arrays import Floats
from phaze.explore.services.service_request import Worth
from phaze.hardware.architecture import from_table
from phaze.hardware.spaces.design_space import architecture_id
from phaze.parallel.serving import Policy, ServingPlan, ServingSpace
from phaze.parallel.serving.bounds.service_bounds import Shape, Way
from phaze.parallel.serving.pools.disaggregated_pools import decoding_offers, paired, prefilling_offers
from phaze.parallel.serving.pools.one_pool import made_offers
from phaze.parallel.serving.replicas.chip_costs import Chip, Chips
from phaze.parallel.serving.replicas.model_replica import Replica
from phaze.parallel.serving.replicas.replica_offers import Offers, ServingChoice, chosen
from phaze.parallel.serving.serving_checker import check_serving_plan
from phaze.parallel.serving.serving_search import serving_plan


@dataclass(frozen=True)
class Service:
    """A way to serve on one candidate: its number, what it is worth, and the plan in the making."""

    number: int
    worth: float
    choice: ServingChoice
    space: ServingSpace

    @property
    def plan(self) -> ServingPlan:
        """The plan, checked. Raises PlanError where it contradicts itself."""
        plan = serving_plan(self.choice, self.space)
        check_serving_plan(plan, self.space.traffic, self.space.limits)
        return plan


@dataclass(frozen=True)
class ExactServices:
    """Services on one of some architectures that are costed together, at position `row` of them.

    `at`: its place among the architectures of `worth`; `varied`: hardware fields that tell it from others.
    """

    worth: Worth
    chips: Chips
    row: int
    at: int
    varied: tuple[str, ...]

    @cached_property
    def space(self) -> ServingSpace:
        """All plans on this architecture."""
        plans, table = self.worth.request.plans, self.chips.table
        chip = from_table(table, self.row, architecture_id(table, self.row, self.varied))
        known = Chip.of(self.chips, self.row)
        return replace(plans, architecture=chip, known_chip=known, known_model=plans.served)

    @cached_property
    def replicas(self) -> dict[Shape, Replica]:
        """Replicas by shape."""
        plans, options = self.worth.request.plans, self.space.options
        host = options.dispatch_s, options.engine.overheads
        # Which degrees there are says the model alone.
        return {
            Shape(grid.width, stages, grid.experts, grid.context_parallel): Replica(
                mine, self.space.links, stages, *host
            )
            for grid in plans.grids
            for mine in (replace(grid, chip=self.space.chip),)
            for stages in plans.depths(grid)
        }

    def best(self, way: Way) -> Service | None:
        """The batch, and the number of replicas, of a way that are worth most; None where nothing is kept."""
        made = self._together(way) if way.second is None else self._apart(way.first, way.second)
        if made is None:
            return None
        worth, choice = made
        return Service(int(self.worth.block.numbers[self.at]), worth, choice, self.space)

    def _together(self, way: Way) -> tuple[float, ServingChoice] | None:
        replica, load = self.replicas[way.first], self.space.traffic
        cycle = self.space.cycle(replica, way.chunk)
        offers = made_offers(self.space, cycle)
        kept = np.flatnonzero(offers.kept)
        if not len(kept):
            return None
        worth = self._worth_of(offers, kept)
        best = int(worth.argmax())
        policy = Policy.PREFILL_FIRST if way.chunk is None else Policy.CHUNKED
        tokens = way.chunk or load.longest_fresh
        choice = chosen(policy, replica, offers, int(kept[best]), tokens, load.rate_per_s)
        return float(worth[best]), choice

    def _worth_of(self, offers: Offers, kept: np.ndarray) -> Floats:
        count = offers.replicas[kept].astype(np.float64)
        tokens = count * offers.requests_per_s[kept] * self.space.traffic.output_tokens
        joules = offers.joules[kept] / self.space.traffic.output_tokens
        return self.worth.of(np.full(len(kept), self.at), count * offers.devices, tokens, joules)

    def _apart(self, first: Shape, second: Shape) -> tuple[float, ServingChoice] | None:
        sender = self.replicas[first], self.prompt_offers(first)
        receiver = self.replicas[second], self.token_offers(second)
        choice = paired(self.space, sender, receiver)
        if choice is None:
            return None
        outputs = self.space.traffic.output_tokens
        devices = float(sum(part.devices for part in choice.parts))
        joules = sum(float(part.offers.joules[part.at]) for part in choice.parts) / outputs
        each = np.array([devices]), np.array([choice.requests_per_s * outputs])
        return float(self.worth.of(np.array([self.at]), *each, joules)[0]), choice

    def prompt_offers(self, shape: Shape) -> Offers:
        """Offers of a replica shape to a prefill pool."""
        if shape not in self._prefill:
            self._prefill[shape] = prefilling_offers(self.space, self.replicas[shape])
        return self._prefill[shape]

    def token_offers(self, shape: Shape) -> Offers:
        """Offers of a replica shape to a decode pool."""
        if shape not in self._decode:
            self._decode[shape] = decoding_offers(self.space, self.replicas[shape])
        return self._decode[shape]

    @cached_property
    def _prefill(self) -> dict[Shape, Offers]:
        return {}

    @cached_property
    def _decode(self) -> dict[Shape, Offers]:
        return {}
