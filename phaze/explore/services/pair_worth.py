"""What two chips of one service are worth: one for prefill pools, one for decode pools.

With T requests per second, a request takes d / T device seconds of a pool of d devices, so that watts and dollars of a
request are a sum over the pools. Of a pool whose replicas of s devices serve r requests per second each they are at
least s / r device seconds, however many replicas there are and whatever the other pool is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.cost.pass_energy import dynamic_j, full_load_w, static_w
from phaze.explore.services.service_costs import ServiceCosts
from phaze.explore.services.service_request import MILLION, ServiceObjective, ServiceRequest
from phaze.hardware.economics.cluster_rates import Rates, cluster_rates
from phaze.parallel.serving.bounds.service_bounds import Shape
from phaze.parallel.serving.replicas.replica_offers import ServingChoice
from phaze.parallel.serving.serving_plan import Role
from phaze.tolerances import BOUND_ROUNDING


@dataclass
class PairWorth:
    """The objective of pairs of chips, as certificates tell it: more is better.

    Output tokens per second; these over the TDP of all devices in use; or a million output tokens per USD. `costs`: of
    the architectures, which are told by their places among them.
    """

    costs: ServiceCosts
    _rates: dict[tuple[int, int], Rates] = field(default_factory=dict)

    @property
    def request(self) -> ServiceRequest:
        """The question."""
        return self.costs.request

    @property
    def of_all(self) -> bool:
        """Whether all devices together count, and not what a token takes of them."""
        return self.request.objective is ServiceObjective.THROUGHPUT

    @property
    def _in_money(self) -> bool:
        return self.request.objective is ServiceObjective.COST_PER_MILLION_TOKENS

    @property
    def _outputs(self) -> float:
        return float(self.request.plans.traffic.output_tokens)

    def of(self, choice: ServingChoice, chips: tuple[int, int]) -> float:
        """Of a plan whose pools have these chips."""
        tokens = choice.requests_per_s * self._outputs
        if self.of_all:
            return tokens
        if not self._in_money:
            watts = (
                part.devices * float(self.costs.block.tdp_w[at])
                for part, at in zip(choice.parts, chips, strict=True)
            )
            return tokens / sum(watts)
        seconds, usd = MILLION / tokens, 0.0
        devices = sum(part.devices for part in choice.parts)
        for part, joules, at in zip(choice.parts, choice.request_j, chips, strict=True):
            rates, own_s = self._of_cluster(at, devices), seconds * part.devices / devices
            usd += float(rates.total(own_s, MILLION * joules / self._outputs)[0])
        return 1 / usd

    def _of_cluster(self, at: int, devices: int) -> Rates:
        """Money of a cluster of so many devices, were all of one chip."""
        if (at, devices) not in self._rates:
            self._rates[at, devices] = self._cluster(np.array([at]), devices)
        return self._rates[at, devices]

    def _cluster(self, rows: Rows, devices: int) -> Rates:
        block, network = self.costs.block, self.request.plans.network
        table, economics = block.table.take(rows), self.request.budgets.economics
        return cluster_rates(table, block.area_mm2[rows], block.tdp_w[rows], devices, network, economics).usd

    # -- what a pool takes at least --------------------------------------------------------------------------

    def device_price(self, shape: Shape, rows: Rows) -> Floats:
        """Watts, or USD a second with idle power, of a device in a pool of replicas of a shape at least, (A,).

        In larger clusters a device's share of the network costs no less.
        """
        if self.of_all:
            return np.ones(len(rows))
        if not self._in_money:
            return self.costs.block.tdp_w[rows]
        devices = shape.devices * shape.together + 1  # at least one of the other pool is there, too
        rates = self._cluster(rows, devices)
        idle_w = static_w(self.costs.block.table.take(rows))
        found: Floats = rates.total(1.0, 0.0) / devices + sum(rates.per_j.values()) * idle_w
        return found

    def energy_price(self, rows: Rows, joules: Floats | float, device_s: Floats) -> Floats:
        """USD of the events of a request in a pool, of so many joules and device seconds, at most full load, (A,)."""
        if not self._in_money:
            return np.zeros(np.broadcast_shapes(np.shape(joules), device_s.shape))
        beyond_w = self._beyond_idle_w[rows]
        # A pool that nothing holds to full load, or that serves nothing, takes what it takes.
        with np.errstate(invalid="ignore"):
            most = np.nan_to_num(beyond_w * device_s, nan=np.inf, posinf=np.inf)
        found: Floats = self._usd_per_j * np.minimum(joules, most)
        return found

    def least_joules(self, role: Role, rows: Rows) -> Floats:
        """Joules of the products of a request in a pool, (A,); no chip and no plan takes less."""
        if not self._in_money:
            return np.zeros(len(rows))
        load = self.request.plans.traffic
        tokens = load.fresh_tokens if role is Role.PREFILL else load.later_tokens
        events = self.costs.token_products * float(tokens)
        found: Floats = np.broadcast_to(dynamic_j(events, self.costs.block.table.take(rows)), len(rows))
        return found * (1 - BOUND_ROUNDING)

    def per_request(self, prices: Floats) -> Floats:
        """What services are worth whose requests take so many watt seconds, or USD, each."""
        scale = self._outputs / MILLION if self._in_money else self._outputs
        with np.errstate(divide="ignore"):
            found: Floats = scale / prices
        return found

    def of_requests(self, requests_per_s: Floats) -> Floats:
        """What services of so many requests per second are worth, where all devices together count."""
        return requests_per_s * self._outputs

    @cached_property
    def _beyond_idle_w(self) -> Floats:
        table = self.costs.block.table
        found: Floats = full_load_w(table) - static_w(table)
        return found

    @cached_property
    def _usd_per_j(self) -> float:
        return float(sum(self._cluster(np.zeros(1, dtype=np.intp), 1).per_j.values()))
