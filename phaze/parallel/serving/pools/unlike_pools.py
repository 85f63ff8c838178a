"""Prefill and decode on two kinds of device, or at clocks that a cap on power leaves.

Splitwise (Patel et al., ISCA'24): prompts are bound by arithmetic and tokens by memory, so that other chips may make
the tokens, or the same ones under a cap on power, with little loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from phaze.arrays import Flags, Floats
from phaze.cost.cost_model import CostModel
from phaze.cost.pass_energy import full_load_w, static_w
from phaze.errors import InfeasibleError, Shortfall
from phaze.hardware.architecture import to_table
from phaze.parallel.serving.pools.disaggregated_pools import Offered, decode_offers, paired, prefill_offers
from phaze.parallel.serving.replicas.chip_costs import Chip, Chips
from phaze.parallel.serving.replicas.model_replica import Replica
from phaze.parallel.serving.replicas.replica_offers import Offers, ServingChoice
from phaze.parallel.serving.serving_plan import Binding, Role
from phaze.parallel.serving.serving_refusal import refusal
from phaze.parallel.serving.serving_space import ServingSpace, clock_hz

CLOCKS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Of a chip's own clock, which are looked at under a cap on power."""


@dataclass(frozen=True)
class UnlikePools:
    """All pairs of pools of a space whose chips are told apart (`ServingSpace.pool_chips`).

    Of a capped pool every clock is looked at, and of each clock every replica shape at every batch at which a device
    draws no more than the cap while it works. Exact over these: what serves most, on the fewest devices.
    """

    space: ServingSpace

    def best(self) -> ServingChoice:
        """The best pair, of equals that of fewest joules. InfeasibleError where no pair keeps all limits."""
        found = [
            choice
            for (mine, prompts), (other, tokens) in product(self._prompts, self._tokens)
            for choice in _pairs(mine, other, prompts, tokens)
        ]
        if not found:
            raise self._refusal()
        return min(found, key=lambda choice: (*choice.rank, sum(choice.request_j)))

    @cached_property
    def _prompts(self) -> list[tuple[ServingSpace, list[Offered]]]:
        return [(space, self._offers(space, Role.PREFILL)) for space in self.clocks(Role.PREFILL)]

    @cached_property
    def _tokens(self) -> list[tuple[ServingSpace, list[Offered]]]:
        return [(space, self._offers(space, Role.DECODE)) for space in self.clocks(Role.DECODE)]

    def clocks(self, role: Role) -> list[ServingSpace]:
        """The space of a pool's chip at every clock that is looked at, costed side by side."""
        space, shares = self.space, CLOCKS if self._cap_w(role) < math.inf else CLOCKS[:1]
        own_hz = clock_hz(space.chip_of(role))
        each = [space.pool_alone(role, share * own_hz) for share in shares]
        table = to_table([one.architecture for one in each])
        among = Chips(CostModel(table, each[0].links, space.options.rung), table)
        return [replace(one, known_chip=Chip.of(among, row)) for row, one in enumerate(each)]

    def _offers(self, space: ServingSpace, role: Role) -> list[Offered]:
        """Offers of a pool at some clock, with those told that draw more than its cap."""
        offers = prefill_offers(space) if role is Role.PREFILL else decode_offers(space)
        return [(of, self._capped(of, some, role)) for of, some in offers]

    def _capped(self, replica: Replica, offers: Offers, role: Role) -> Offers:
        over = working_w(replica, offers, role) > self._cap_w(role)
        return replace(offers, broken={**offers.broken, Binding.POWER: over})

    def _cap_w(self, role: Role) -> float:
        chips = self.space.pool_chips
        return math.inf if chips is None else chips.cap_w(role)

    def _refusal(self) -> InfeasibleError:
        """What falls short: of the first pool of which nothing keeps all limits, or of both together."""
        for role, pools in ((Role.PREFILL, self._prompts), (Role.DECODE, self._tokens)):
            every = [offered for _, some in pools for offered in some]
            if any(offers.kept.any() for _, offers in every):
                continue
            held = [(replica, offers, self._power_alone(replica, offers)) for replica, offers in every]
            least = min(
                (float(working_w(r, o, role)[only].min()) for r, o, only in held if only.any()),
                default=math.nan,
            )
            if math.isnan(least):
                return refusal(pools[0][0], [offers for _, offers in every])
            levers = ("a higher cap", "a chip that draws less", "relax a target")
            short = Shortfall(f"power of a {role} device", self._cap_w(role), least, "W", levers)
            return InfeasibleError(f"{self.space.workload} cannot be served under the cap on power", (short,))
        return refusal(
            self.space, [offers for _, some in (*self._prompts, *self._tokens) for _, offers in some]
        )

    def _power_alone(self, replica: Replica, offers: Offers) -> Flags:
        """Which offers break no limit but that on power, and leave a device to the other pool."""
        others = [flags for limit, flags in offers.broken.items() if limit is not Binding.POWER]
        taken = np.maximum(offers.replicas, replica.together) * replica.devices
        found: Flags = ~np.any(others, axis=0) & (taken < self.space.devices)
        return found


def working_w(replica: Replica, offers: Offers, role: Role) -> Floats:
    """Watts that a device of a replica draws while it works, mean over its devices, (N,); at most full load.

    Of a prefill replica while prompts go through it, of a decode replica while any sequence is in its batch.
    """
    if role is Role.PREFILL:
        first_s = offers.ttft_s - offers.waiting_s - replica.overheads.request_s
        busy_per_s = offers.batch * replica.stages / first_s
    else:
        busy_per_s = offers.requests_per_s / np.minimum(offers.batch, 1.0)
    return drawn_w(replica, offers.joules * busy_per_s)


def drawn_w(replica: Replica, dynamic_w: Floats) -> Floats:
    """Watts of a device of a replica whose events take so many, (N,), what always flows included."""
    table = replica.grid.chip.table
    found: Floats = np.minimum(static_w(table) + dynamic_w / replica.devices, full_load_w(table))
    return found


def handing_over(mine: ServingSpace, other: ServingSpace) -> ServingSpace:
    """Of the spaces of two chips that with the slower links, at whose pace caches go from one to the other."""
    return max((mine, other), key=lambda space: space.transfer_s(1, 1))


def _pairs(
    mine: ServingSpace, other: ServingSpace, prompts: list[Offered], tokens: list[Offered]
) -> Iterator[ServingChoice]:
    """Splits of the devices between the replica shapes of two chips."""
    slower = handing_over(mine, other)
    for first, second in product(prompts, tokens):
        choice = paired(slower, first, second)
        if choice is not None:
            yield choice
