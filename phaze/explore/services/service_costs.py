"""What bounds and exact plans of a service are made of on all architectures of a space: passes, rooms, products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.cost.cost_model import CostModel
from phaze.cost.hardware_factors import Factors
from phaze.cost.latency_bound import LowerTables
from phaze.cost.pass_energy import Events, product_events
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.services.service_request import ServiceRequest
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.parallel.serving.bounds.least_passes import GridSums, LeastPasses
from phaze.parallel.serving.replicas.chip_costs import Chips, without_attention
from phaze.scheduling.effort import SolveLimits


@dataclass(frozen=True)
class PassBound:
    """A bound of passes: its name, whether it is that of all depths at once, and what it tells architectures by.

    `tells`: numbers of what it knows of hardware, (A,); None: of all of it.
    """

    name: str
    passes: Callable[[GridSums, Chips, LowerTables, Rows], LeastPasses]
    coarse: bool
    tells: Callable[[Factors], Rows | None]


MEMORY = PassBound("memories", GridSums.coarsest, True, lambda of: of.memory_of)
COMBINED = PassBound("combinations", GridSums.coarse, True, lambda of: of.tensor_pairs[1])
SINGLE = PassBound("passes", GridSums.cheap, False, lambda of: None)
BOUNDS = MEMORY, COMBINED, SINGLE
"""Each closer and dearer than the one before."""


@dataclass(frozen=True)
class ServiceCosts:
    """Costs of the passes of a service on all architectures of a space within budgets, worked out once."""

    request: ServiceRequest

    @cached_property
    def candidates(self) -> Candidates:
        """The architectures of the space within budgets."""
        return Candidates(self.request.space, self.request.budgets)

    @cached_property
    def block(self) -> Block:
        """All of them. Raises InfeasibleError where there is none."""
        return self.candidates.all()

    @cached_property
    def sums(self) -> tuple[GridSums, ...]:
        """Sums that passes are made of, by grid of layers."""
        return tuple(map(GridSums, self.request.plans.grids))

    @cached_property
    def chips(self) -> Chips:
        """All architectures, costed together."""
        plans = self.request.plans
        return Chips(CostModel(self.block.table, plans.links, plans.options.rung), self.block.table)

    @cached_property
    def tables(self) -> list[LowerTables]:
        """Bounds of the sums per combination of hardware, by grid."""
        return [of.sums.tables(self.chips) for of in self.sums]

    @cached_property
    def token_products(self) -> Events:
        """Products of a token, attention and logits aside; no chip does less."""
        grid = self.request.plans.grids[0]
        found, chain = Events(), grid.token_chains[0]
        for at, layer in enumerate(chain.index):
            if not grid.samples[at]:
                found = found + product_events(without_attention(chain.layers[layer].forward))
        return found * float(grid.width)

    def least(
        self, bound: PassBound, grids: Sequence[int], rows: Rows, limits: SolveLimits
    ) -> tuple[LeastPasses, ...]:
        """What passes of some grids take at least on some architectures. LimitsOver once time is over."""
        found = []
        for at in grids:
            limits.look()
            found.append(bound.passes(self.sums[at], self.chips, self.tables[at], rows))
        return tuple(found)

    def tight(self, rows: Rows, grids: Sequence[int], limits: SolveLimits) -> tuple[LeastPasses, ...]:
        """What passes of some grids take at least, operator by operator. LimitsOver once time is over."""
        chips, least = self.costed(rows), []
        for at in grids:
            limits.look()
            least.append(self.sums[at].tight(chips))
        return tuple(least)

    def costed(self, rows: Rows) -> Chips:
        """Some architectures, to be costed together."""
        table, plans = self.block.table.take(rows), self.request.plans
        known = self.chips.model.on(table)
        return Chips(known or CostModel(table, plans.links, plans.options.rung), table)

    def room(self, rows: Rows) -> Floats:
        """Bytes of a device's memory that may be used, (A,)."""
        return hbm_capacity_bytes(self.block.table.take(rows)) * self.request.plans.options.memory_share

    def alike(self, bound: PassBound, rows: Rows) -> tuple[Rows, Rows]:
        """Architectures that stand for all that a bound does not tell from them, and which one for each."""
        which = bound.tells(self.chips.model.factors)
        if which is None:
            return rows, np.arange(len(rows))
        _, room = np.unique(self.room(rows), return_inverse=True)
        _, first, of = np.unique(
            which[rows] * (room.max(initial=0) + 1) + room, return_index=True, return_inverse=True
        )
        return rows[first], of
