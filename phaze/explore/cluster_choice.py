"""One number of devices under budgets for the whole cluster, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from phaze.explore.candidates import Candidates
from phaze.explore.cluster_report import ClusterChoice
from phaze.explore.document import Certificate, ResultDocument
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


@dataclass
class Choice:
    """One number of devices while the search goes on; `bound` in samples/s."""

    request: ExploreRequest
    bound: float
    within: int
    status: Status = Status.OPEN
    document: ResultDocument | None = None

    @property
    def devices(self) -> int:
        """The number."""
        return self.request.task.devices

    @property
    def floor(self) -> float:
        """The least throughput asked for, samples/s."""
        return floor_throughput(self.request, self.request.task)

    def report(self) -> ClusterChoice:
        """What a result says of it."""
        best = self.document.best if self.document else None
        return ClusterChoice(
            devices=self.devices,
            power_per_device_w=self.request.budgets.power_w,
            price_per_device_usd=self.request.budgets.price_usd,
            status=self.status.value,
            upper_bound_samples_per_s=self.bound,
            throughput_samples_per_s=self.document.certificate.objective_value if self.document else None,
            id=best.id if best else None,
        )

    def certificate(self) -> Certificate:
        """That of the search, or of the bound that made one unnecessary."""
        if self.document is not None:
            return self.document.certificate
        task, candidates = self.request.task, Candidates(self.request.space, self.request.budgets)
        settings = task.points_per_architecture
        size, within = candidates.size * settings, self.within * settings
        unfit = "floor" if self.floor > 0 else "memory"
        by = {Status.OPEN: "open", Status.INFEASIBLE: unfit}.get(self.status, "number of devices")
        return Certificate(
            optimal=False,
            objective="throughput",
            objective_value=0.0,
            upper_bound=self.bound,
            gap=0.0,
            scope=[],
            space_size=size,
            over_budget=size - within,
            pruned=within,
            evaluated=0,
            pruned_by={by: within},
            frontier_complete=False,
        )
