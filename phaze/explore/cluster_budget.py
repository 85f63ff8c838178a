"""How many accelerators, and which, under a budget of power or money for the whole cluster.

The number of devices comes from a grid: powers of two and three times them, up to 65536. With N devices each
may draw, and cost, 1 / N of the budget. A number whose bound is no better than the best known is not searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phaze.errors import InfeasibleError, InputError, OutOfTimeError, Shortfall
from phaze.explore.candidates import Candidates
from phaze.explore.cluster_choice import MOST_DEVICES, Choice, Status, grid, with_devices
from phaze.explore.cluster_report import ClusterChoice, ClusterReport
from phaze.explore.document import ResultDocument
from phaze.explore.evaluator import Evaluator
from phaze.explore.exploration import Answer, Exploration
from phaze.explore.means import ALONE, Means
from phaze.explore.portfolio.member import roofline
from phaze.explore.portfolio.screen import Screen
from phaze.explore.progress import Clock, Progress
from phaze.explore.request import ClusterBudget, ExploreRequest, Objective
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.budgets import Limit
from phaze.hardware.price import price_usd


def explore_cluster(
    request: ExploreRequest, budget: ClusterBudget, progress: Progress, clock: Clock, means: Means = ALONE
) -> Answer:
    """The best number of devices and the best design for it, with one certificate over both.

    Raises InputError where the question makes no sense for a cluster, InfeasibleError where not even one device
    keeps the budget or the workload fits nowhere, OutOfTimeError where nothing was found in time.
    """
    if request.others or request.objective is not Objective.THROUGHPUT:
        raise InputError("a budget for the cluster takes one --workload and --objective throughput")
    return _ClusterSearch(request, budget, progress, clock, means).answer()


def devices_scope(devices: Sequence[int]) -> str:
    """The numbers of devices that a certificate speaks of."""
    return f"number of devices among {', '.join(map(str, devices))}"


def cluster_report(
    budget: ClusterBudget, document: ResultDocument, choices: Sequence[ClusterChoice]
) -> ClusterReport:
    """What the cluster of a document's best design draws and costs, beside every number of devices."""
    best = document.best
    devices = next(iter(best.workloads.values())).devices
    chip = to_table([Architecture(name=best.id, fields=best.architecture)])
    return ClusterReport(
        power_budget_w=budget.power_w,
        cost_budget_usd=budget.cost_usd,
        overhead=budget.overhead,
        devices=devices,
        power_w=devices * best.tdp_w * budget.overhead,
        cost_usd=devices * float(price_usd(chip)[0]),
        choices=list(choices),
    )


@dataclass
class _ClusterSearch:
    request: ExploreRequest
    budget: ClusterBudget
    progress: Progress
    clock: Clock
    means: Means
    best: Answer | None = None
    value: float = 0.0
    choices: list[Choice] = field(default_factory=list)

    def answer(self) -> Answer:
        """Numbers of devices in the order of what they promise; of equally good ones the fewest win."""
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
            self.choices.append(Choice(request, best, within))

    def _settle(self, choice: Choice) -> None:
        """Search a number of devices unless bounds say that nothing there is better than the best."""
        if choice.bound > self.value:
            choice.bound = self._hope(choice.request)
        if choice.bound < choice.floor:
            choice.status, choice.bound = Status.INFEASIBLE, 0.0
            return
        if choice.bound < self.value or (choice.bound == self.value and not self._fewer(choice)):
            choice.status = Status.BOUNDED if choice.bound > 0 else Status.INFEASIBLE
            return
        exploration = Exploration(choice.request, self.progress, self.clock, self.means)
        if self.best is not None and not self._beaten(choice, exploration):
            return
        try:
            answer = exploration.answer()
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
        value = certificate.objective_value
        if value > self.value or (value == self.value and self._fewer(choice)):
            self.best, self.value = answer, value

    def _beaten(self, choice: Choice, exploration: Exploration) -> bool:
        """Whether a number of devices beats the best known: its fastest design alone is looked for, no frontier."""
        least = self.value if self._fewer(choice) else float(np.nextafter(self.value, np.inf))
        found = exploration.fastest(max(least, choice.floor))
        if any(throughput >= least for throughput in found.evaluated.values()):
            return True
        if found.finished:
            choice.status, choice.bound = Status.BOUNDED, min(choice.bound, self.value)
        else:
            choice.bound = min(choice.bound, max(self.value, float(found.undecided[1].max())))
        return False

    def _fewer(self, choice: Choice) -> bool:
        """Whether a number of devices is below that of the best known."""
        if self.best is None:
            return False
        return choice.devices < next(iter(self.best.document.best.workloads.values())).devices

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
                "scope": [*document.certificate.scope, devices_scope(devices)],
                "space_size": sum(part.space_size for part in own),
                "over_budget": sum(part.over_budget for part in own),
                "pruned": sum(part.pruned for part in own),
                "evaluated": sum(part.evaluated for part in own),
                "pruned_by": fallen,
            }
        )
        return document.model_copy(update={"certificate": certificate, "cluster": self._report(document)})

    def _report(self, document: ResultDocument) -> ClusterReport:
        return cluster_report(self.budget, document, [choice.report() for choice in self.choices])

    # -- no answer ------------------------------------------------------------------------------------------

    def _nothing(self) -> InfeasibleError | OutOfTimeError:
        if self.clock.over:
            return OutOfTimeError("the time limit passed before any number of devices was searched")
        if not self.choices:
            return self._too_small_for_one()
        first, last = self.choices[0], self.choices[-1]
        fits = "is fast enough" if last.floor > 0 else "fits"
        return InfeasibleError(
            f"{self.request.task.workload.name} {fits} on none of {first.devices} to {last.devices} devices within "
            f"{self._budgets()}; a larger budget or larger HBM stacks (--space) would help"
        )

    def _budgets(self) -> str:
        power, cost = self.budget.power_w, self.budget.cost_usd
        given = [f"{power:g} W" if power is not None else "", f"{cost:g} USD" if cost is not None else ""]
        return " and ".join(filter(None, given))

    def _too_small_for_one(self) -> InfeasibleError:
        """What a single device would need, in terms of the budgets of the cluster where these fall short."""
        one = with_devices(self.request, self.budget, 1)
        short = Candidates(one.space, one.budgets).none_left().shortfalls
        return InfeasibleError(
            f"no architecture of space {self.request.space.name} keeps the budget of the cluster",
            tuple(map(self._of_cluster, short)),
        )

    def _of_cluster(self, short: Shortfall) -> Shortfall:
        """The shortfall of one device as that of the cluster, unless another budget is what it misses."""
        own, budget = self.request.budgets, self.budget
        if short.what == Limit.POWER and budget.power_w is not None and short.limit != own.power_w:
            needed = short.demand * budget.overhead
            return Shortfall(
                "power of the cluster", budget.power_w, needed, "W", ("a larger --cluster-power",)
            )
        if short.what == Limit.PRICE and budget.cost_usd is not None:
            return Shortfall(
                "cost of the cluster", budget.cost_usd, short.demand, "USD", ("a larger --cluster-cost",)
            )
        return short
