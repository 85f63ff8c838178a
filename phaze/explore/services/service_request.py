"""The question for the chip of a service, and what an answer to it is worth."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np

from phaze.arrays import Floats
from phaze.cost.pass_energy import full_load_w, static_w
from phaze.errors import InputError
from phaze.explore.evaluation.design_candidates import Block
from phaze.explore.request.explore_request import Budgets
from phaze.hardware.economics.cluster_rates import cluster_rates
from phaze.hardware.spaces.design_space import DesignSpace
from phaze.parallel.serving import ServingSpace

MILLION = 1e6


class ServiceObjective(StrEnum):
    """Objective of a service; the direction is built in."""

    THROUGHPUT = "throughput"
    TOKENS_PER_S_PER_W = "tokens_per_s_per_w"
    COST_PER_MILLION_TOKENS = "cost_per_million_tokens"


@dataclass(frozen=True)
class ServiceRequest:
    """Architectures of `space` within `budgets`, each under every plan of `plans`, for the most of an objective.

    `plans`: the model, devices, network, load, targets and software; its architecture is the base of the space.
    `time_limit_s` and `gap` as of every search. `two_chips`: whether the best chip for prefill pools and the best one
    for decode pools are asked for, too. Raises InputError where the objective says nothing about the load, and for two
    chips where there cannot be two pools.
    """

    plans: ServingSpace
    space: DesignSpace
    budgets: Budgets
    objective: ServiceObjective = ServiceObjective.THROUGHPUT
    time_limit_s: float = 60.0
    gap: float = 0.0
    two_chips: bool = False

    def __post_init__(self) -> None:
        """Check the objective, and that two chips have pools."""
        if self.objective is ServiceObjective.THROUGHPUT and self.plans.traffic.rate_per_s is not None:
            raise InputError(
                "a rate fixes the throughput, which therefore cannot be the objective: ask for --objective "
                "cost_per_million_tokens or tokens_per_s_per_w, or leave out the rate"
            )
        if self.two_chips and not self.plans.apart:
            raise InputError(
                "--designs 2 is for separate pools, one chip for prefill and one for decode, which serve a saturated "
                "queue or a rate, not clients: leave out --no-disaggregate and concurrency"
            )
        if self.two_chips and self.plans.devices < 2:
            raise InputError("--designs 2 takes two devices at least, one for each kind of pool")


@dataclass
class Worth:
    """The objective of services on some architectures, as certificates tell it: more is better.

    Output tokens per second; these over the TDP of the devices in use; or a million output tokens per USD.
    """

    request: ServiceRequest
    block: Block
    _usd: dict[int, tuple[Floats, float]] = field(default_factory=dict)

    def of(
        self, rows: np.ndarray, devices: Floats, tokens_per_s: Floats, joules_per_token: Floats | float
    ) -> Floats:
        """Of services (N,) on the architectures at `rows` (N,), by devices in use, all tokens and joules of events.

        What flows in idle devices comes on top of these joules, which are at most those of full load.
        """
        if self.request.objective is ServiceObjective.THROUGHPUT:
            return tokens_per_s
        if self.request.objective is ServiceObjective.TOKENS_PER_S_PER_W:
            each: Floats = tokens_per_s / (devices * self.block.tdp_w[rows])
            return each
        found = np.zeros(len(rows))
        for count in np.unique(devices).tolist():
            at = np.flatnonzero((devices == count) & (tokens_per_s > 0))
            per_s, per_j = self._rates(int(count))
            spent = per_s[rows[at]] / tokens_per_s[at]
            joules = np.broadcast_to(joules_per_token, len(rows))[at]
            joules = np.minimum(joules, self._beyond_idle_w[rows[at]] * count / tokens_per_s[at])
            found[at] = 1 / (MILLION * (spent + per_j * joules))
        return found

    @cached_property
    def _beyond_idle_w(self) -> Floats:
        """Watts of events of a device at full load, (A,); infinite for chips that are not held to it."""
        return full_load_w(self.block.table) - static_w(self.block.table)

    def _rates(self, devices: int) -> tuple[Floats, float]:
        """USD per second of use on so many devices of each architecture, idle power included, and per joule."""
        if devices not in self._usd:
            table, economics = self.block.table, self.request.budgets.economics
            rates = cluster_rates(
                table, self.block.area_mm2, self.block.tdp_w, devices, self.request.plans.network, economics
            ).usd
            per_j = sum(rates.per_j.values())
            per_s = rates.total(1.0, 0.0) + per_j * devices * static_w(table)
            self._usd[devices] = per_s, per_j
        return self._usd[devices]
