"""One number of devices under budgets for the whole cluster, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np

from phaze.explore.candidates import Candidates
from phaze.explore.certified.outcome import Outcome
from phaze.explore.certified.relevance import ROUNDING
from phaze.explore.cluster_report import ClusterChoice
from phaze.explore.evaluator import Evaluator
from phaze.explore.goal import floor_throughput
from phaze.explore.request import ClusterBudget, ExploreRequest

MOST_DEVICES = 65536


class Status(StrEnum):
    """What became of one number of devices."""

    SEARCHED = "searched"
    BOUNDED = "bounded"  # it cannot be better than the best
    INFEASIBLE = "infeasible"  # the workload fits no architecture, or none is fast enough
    OPEN = "open"  # time was over


def grid(most: int) -> tuple[int, ...]:
    """Powers of two and three times them, up to `most`, ascending."""
    powers = [2**k for k in range(most.bit_length())]
    return tuple(sorted(n for n in {*powers, *(3 * p for p in powers)} if n <= most))


def with_devices(request: ExploreRequest, budget: ClusterBudget, devices: int) -> ExploreRequest:
    """The request for that many devices, each with its share of the budgets."""
    own = request.budgets
    power_w = None if budget.power_w is None else budget.power_w / budget.overhead / devices
    price_usd = None if budget.cost_usd is None else budget.cost_usd / devices
    budgets = replace(
        own, power_w=_tighter(own.power_w, power_w), price_usd=_tighter(own.price_usd, price_usd)
    )
    return replace(request, task=replace(request.task, devices=devices), budgets=budgets, cluster=None)


def _tighter(one: float | None, other: float | None) -> float | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)


@dataclass(frozen=True)
class Counts:
    """Points of a space: how many, over budget, evaluated, and where the others fell."""

    size: int
    over_budget: int
    evaluated: int
    pruned_by: Mapping[str, int]


@dataclass
class Choice:
    """One number of devices while the search goes on; `bound` in samples/s.

    `within`: architectures that keep the budgets; `fastest`: the numbers of those with the highest peak, one of each
    recipe. `refined`: whether the bound knows of plans. `value` and `best`: samples/s of the best design that was
    found, and its name; `searched`: what became of the points where they were searched.
    """

    request: ExploreRequest
    bound: float
    within: int
    fastest: tuple[int, ...]
    refined: bool = False
    status: Status = Status.OPEN
    value: float | None = None
    best: str | None = None
    searched: Counts | None = None

    @property
    def devices(self) -> int:
        """The number."""
        return self.request.task.devices

    @cached_property
    def floor(self) -> float:
        """The least throughput asked for, samples/s."""
        return floor_throughput(self.request, self.request.task)

    @property
    def candidates(self) -> Candidates:
        """The architectures to choose from."""
        return Candidates(self.request.space, self.request.budgets)

    def refine(self, like: Evaluator) -> None:
        """Bound it by the least work of any plan, at the peaks of the fastest; `like`: of the same layers."""
        evaluator = like.of(self.request.task).on(self.candidates.table(np.array(self.fastest)))
        least_s = min(float(evaluator.roofline_s(setting).min()) for setting in evaluator.settings)
        hoped = self.request.task.cluster.global_batch / least_s * (1 + ROUNDING)
        self.bound, self.refined = min(self.bound, hoped), True

    def report(self) -> ClusterChoice:
        """What a result says of it."""
        return ClusterChoice(
            devices=self.devices,
            power_per_device_w=self.request.budgets.power_w,
            price_per_device_usd=self.request.budgets.price_usd,
            status=self.status.value,
            upper_bound_samples_per_s=self.bound,
            throughput_samples_per_s=self.value,
            id=self.best,
        )

    @property
    def counts(self) -> Counts:
        """What became of its points: in the search, or by the bound that made one unnecessary."""
        if self.searched is not None:
            return self.searched
        settings = self.request.task.points_per_architecture
        size, within = self.candidates.size * settings, self.within * settings
        unfit = "floor" if self.floor > 0 else "memory"
        fate = {Status.OPEN: "open", Status.INFEASIBLE: unfit}.get(self.status, "number of devices")
        return Counts(size, size - within, 0, {fate: within})

    def counted(self, outcome: Outcome) -> Counts:
        """What became of its points in a search."""
        size = self.candidates.size * outcome.settings
        over = size - outcome.in_budget * outcome.settings
        return Counts(size, over, len(outcome.evaluated), outcome.pruned_by)
