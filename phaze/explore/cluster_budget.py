"""How many accelerators, and which, under a power budget for the whole cluster.

The number of devices comes from a grid: powers of two and three times them, up to 65536. With N devices each
may draw 1 / N of the budget. A number whose bound is no better than the best known is not searched.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from phaze.errors import InfeasibleError, InputError, OutOfTimeError, Shortfall
from phaze.explore.candidates import Candidates
from phaze.explore.cluster_report import ClusterChoice, ClusterReport
from phaze.explore.document import Certificate, ResultDocument
from phaze.explore.evaluator import Evaluator
from phaze.explore.exploration import Answer, Exploration
from phaze.explore.portfolio.member import roofline
from phaze.explore.portfolio.screen import Screen
from phaze.explore.progress import Clock, Progress
from phaze.explore.request import ClusterBudget, ExploreRequest, Objective

MOST_DEVICES = 65536


class Status(StrEnum):
    """What became of one number of devices."""

    SEARCHED = "searched"
    BOUNDED = "bounded"  # it cannot be better than the best
    INFEASIBLE = "infeasible"  # the workload fits no architecture
    OPEN = "open"  # time was over


def grid(most: int) -> tuple[int, ...]:
    """Powers of two and three times them, up to `most`, ascending."""
    powers = [2**k for k in range(most.bit_length())]
    return tuple(sorted(n for n in {*powers, *(3 * p for p in powers)} if n <= most))


def with_devices(request: ExploreRequest, budget: ClusterBudget, devices: int) -> ExploreRequest:
    """The request for that many devices, each with its share of the budget."""
    each = budget.power_w / budget.overhead / devices
    own = request.budgets.power_w
    budgets = replace(request.budgets, power_w=each if own is None else min(own, each))
    return replace(request, task=replace(request.task, devices=devices), budgets=budgets, cluster=None)


def explore_cluster(
    request: ExploreRequest, budget: ClusterBudget, progress: Progress, clock: Clock
) -> Answer:
    """The best number of devices and the best design for it, with one certificate over both.

    Raises InputError where the question makes no sense for a cluster, InfeasibleError where not even one device
    keeps the budget or the workload fits nowhere, OutOfTimeError where nothing was found in time.
    """
    if request.others or request.objective is not Objective.THROUGHPUT:
        raise InputError("a budget for the cluster takes one --workload and --objective throughput")
    return _ClusterSearch(request, budget, progress, clock).answer()


@dataclass
class _Choice:
    """One number of devices while the search goes on; `bound` in samples/s."""

    request: ExploreRequest
    bound: float
    within: int
    status: Status = Status.OPEN
    document: ResultDocument | None = None

    @property
    def devices(self) -> int:
        return self.request.task.devices

    def report(self) -> ClusterChoice:
        best = self.document.best if self.document else None
        return ClusterChoice(
            devices=self.devices,
            power_per_device_w=self.request.budgets.power_w or 0.0,
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
        settings = len(task.microbatches) * len(task.widths) * len(task.recomputes)
        size, within = candidates.size * settings, self.within * settings
        by = {Status.OPEN: "open", Status.INFEASIBLE: "memory"}.get(self.status, "number of devices")
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


@dataclass
class _ClusterSearch:
    request: ExploreRequest
    budget: ClusterBudget
    progress: Progress
    clock: Clock
    best: Answer | None = None
    value: float = 0.0
    choices: list[_Choice] = field(default_factory=list)

    def answer(self) -> Answer:
        """Numbers of devices in the order of what they promise; of equally good ones the first found wins."""
        self._count()
        for choice in sorted(self.choices, key=lambda c: (-c.bound, c.devices)):
            if self.clock.over:
                break
            self._settle(choice)
        if self.best is None:
            raise self._nothing()
        return Answer(self._document(self.best.document), self.best.designs)

    def _count(self) -> None:
        """Every number of devices for which some architecture keeps the budget, with its roofline bound."""
        for done, devices in enumerate(numbers := grid(MOST_DEVICES)):
            self.progress.update("counting devices", done, len(numbers), f"{devices} devices")
            request, best, within = with_devices(self.request, self.budget, devices), 0.0, 0
            for block in Candidates(request.space, request.budgets).blocks():
                if len(block):
                    best = max(best, float(roofline(Evaluator(request.task, block.table)).max()))
                    within += len(block)
            if not within:
                break  # more devices leave less for each
            self.choices.append(_Choice(request, best, within))

    def _settle(self, choice: _Choice) -> None:
        """Search a number of devices unless bounds say that nothing there is better than the best."""
        if choice.bound > self.value:
            choice.bound = self._hope(choice.request)
        if choice.bound <= self.value:
            choice.status = Status.BOUNDED if choice.bound > 0 else Status.INFEASIBLE
            return
        try:
            answer = Exploration(choice.request, self.progress, self.clock).answer()
        except OutOfTimeError:
            return
        except InfeasibleError:
            choice.status, choice.bound = Status.INFEASIBLE, 0.0
            return
        certificate = answer.document.certificate
        choice.status, choice.bound, choice.document = (
            Status.SEARCHED,
            certificate.upper_bound,
            answer.document,
        )
        if certificate.objective_value > self.value:
            self.best, self.value = answer, certificate.objective_value

    def _hope(self, request: ExploreRequest) -> float:
        """A throughput that no architecture exceeds; those below the best known are not looked at closely."""

        def matters(hoped: NDArray[np.float64], tdp_w: NDArray[np.float64]) -> NDArray[np.bool_]:
            return np.asarray((hoped[0] > self.value) & (hoped[0] > 0) & (tdp_w > 0))

        candidates = Candidates(request.space, request.budgets)
        evaluator = Evaluator(request.task, candidates.table(range(1)))
        screen = Screen(candidates, [evaluator], np.array([np.inf]), self.clock, self.progress)
        return float(screen.run(matters).hoped.max(initial=self.value))

    def _document(self, document: ResultDocument) -> ResultDocument:
        """The winner's document with the certificate and the account of all numbers of devices."""
        own = [choice.certificate() for choice in self.choices]
        fallen: dict[str, int] = {}
        for part in own:
            for name, count in part.pruned_by.items():
                fallen[name] = fallen.get(name, 0) + count
        upper = max([self.value, *(choice.bound for choice in self.choices)])
        devices = [choice.devices for choice in self.choices]
        certificate = document.certificate.model_copy(
            update={
                "optimal": upper <= self.value,
                "upper_bound": upper,
                "gap": (upper - self.value) / self.value,
                "scope": [
                    *document.certificate.scope,
                    f"number of devices among {', '.join(map(str, devices))}",
                ],
                "space_size": sum(part.space_size for part in own),
                "over_budget": sum(part.over_budget for part in own),
                "pruned": sum(part.pruned for part in own),
                "evaluated": sum(part.evaluated for part in own),
                "pruned_by": fallen,
            }
        )
        return document.model_copy(update={"certificate": certificate, "cluster": self._report(document)})

    def _report(self, document: ResultDocument) -> ClusterReport:
        devices = next(iter(document.best.workloads.values())).devices
        return ClusterReport(
            power_budget_w=self.budget.power_w,
            overhead=self.budget.overhead,
            devices=devices,
            power_w=devices * document.best.tdp_w * self.budget.overhead,
            choices=[choice.report() for choice in self.choices],
        )

    def _nothing(self) -> InfeasibleError | OutOfTimeError:
        if self.clock.over:
            return OutOfTimeError("the time limit passed before any number of devices was searched")
        if self.choices:
            first, last = self.choices[0].devices, self.choices[-1].devices
            return InfeasibleError(
                f"{self.request.task.workload.name} fits on none of {first} to {last} devices within "
                f"{self.budget.power_w:g} W; a larger budget or larger HBM stacks (--space) would help"
            )
        free = Candidates(self.request.space, replace(self.request.budgets, dvfs=False))
        least = min((float(b.tdp_w.min()) for b in free.blocks() if len(b)), default=np.inf)
        short = Shortfall(
            "power of the cluster",
            self.budget.power_w,
            least * self.budget.overhead,
            "W",
            ("a larger --cluster-power",),
        )
        name = self.request.space.name
        return InfeasibleError(f"no architecture of space {name} keeps the budget of the cluster", (short,))
