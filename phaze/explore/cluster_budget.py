"""How many accelerators, and which, under a budget of power or money for the whole cluster.

The number of devices comes from a grid: powers of two and three times them, up to 65536. With N devices each
may draw, and cost, 1 / N of the budget. Numbers are bounded by the roofline of their architectures, then, those that
promise most, by the least work of their plans; then the fastest design of such a number is looked for. A number whose
bound is no better than the best known is not searched. Last comes the frontier of the best one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from phaze.errors import InfeasibleError, InputError, OutOfTimeError, Shortfall
from phaze.explore.candidates import Candidates
from phaze.explore.certified.outcome import Outcome
from phaze.explore.certified.relevance import ROUNDING
from phaze.explore.cluster_choice import Choice, Counts, Status, with_devices
from phaze.explore.cluster_count import choices
from phaze.explore.cluster_report import ClusterChoice, ClusterReport
from phaze.explore.document import ResultDocument
from phaze.explore.evaluator import Evaluator
from phaze.explore.exploration import Answer, Exploration
from phaze.explore.means import ALONE, Means
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


@dataclass(frozen=True)
class Found:
    """The best number of devices that is known, and its search."""

    choice: Choice
    exploration: Exploration
    outcome: Outcome


@dataclass
class _ClusterSearch:
    request: ExploreRequest
    budget: ClusterBudget
    progress: Progress
    clock: Clock
    means: Means
    best: Found | None = None
    like: Evaluator | None = None
    choices: list[Choice] = field(default_factory=list)

    def answer(self) -> Answer:
        """Numbers of devices in the order of what they promise; of equally good ones the fewest win."""
        self.choices = choices(self.request, self.budget, self.progress)
        while (choice := self._next()) is not None and not self.clock.over:
            self._look(choice)
        if self.best is None:
            raise self._nothing()
        found = self.best
        answer = found.exploration.around(found.outcome)
        told = answer.document.certificate
        found.choice.value, found.choice.bound = told.objective_value, told.upper_bound
        found.choice.searched = Counts(told.space_size, told.over_budget, told.evaluated, told.pruned_by)
        return Answer(self._document(answer.document), answer.designs)

    @property
    def value(self) -> float:
        """Samples/s of the best design that is known, 0 without one."""
        return self.best.choice.value or 0.0 if self.best else 0.0

    def _next(self) -> Choice | None:
        """The number of devices that promises most of those that may be better than the best; others are settled."""
        waiting = [choice for choice in self.choices if choice.status is Status.OPEN]
        for choice in waiting:
            if choice.bound < max(choice.floor, np.nextafter(0.0, 1.0)):
                choice.status, choice.bound = Status.INFEASIBLE, 0.0
            elif choice.bound < self._least(choice):
                choice.status = Status.BOUNDED
        left = [choice for choice in waiting if choice.status is Status.OPEN]
        return min(left, key=lambda choice: (-choice.bound, choice.devices), default=None)

    def _least(self, choice: Choice) -> float:
        """Samples/s from which on a number of devices is better than the best known, or as good with fewer."""
        fewer = self.best is None or choice.devices < self.best.choice.devices
        return max(choice.floor, self.value if fewer else float(np.nextafter(self.value, np.inf)))

    def _look(self, choice: Choice) -> None:
        """Bound a number of devices by its plans or, where it is, look for its fastest design, no frontier."""
        exploration = Exploration(choice.request, self.progress, self.clock, self.means, self.like)
        if not self.request.budgets.dvfs:
            self.like = self.like or exploration.evaluator
        if choice.refined:
            self._search(choice, exploration)
        else:
            choice.refine(exploration.evaluator)

    def _search(self, choice: Choice, exploration: Exploration) -> None:
        least = self._least(choice)
        outcome = exploration.fastest(least)
        reached = {value: number for (number, _), value in outcome.evaluated.items() if value >= least}
        hoped = float(outcome.undecided[1].max(initial=0.0))
        if reached:
            choice.value = max(reached)
            choice.best = choice.candidates.architecture(reached[choice.value]).name
            choice.status, choice.bound = Status.SEARCHED, max(choice.value, hoped)
            choice.searched = choice.counted(outcome)
            self.best = Found(choice, exploration, outcome)
        elif not outcome.finished:
            choice.bound = min(choice.bound, max(self.value, hoped))
        elif self.best is None:
            choice.status, choice.bound = Status.INFEASIBLE, 0.0
        else:
            choice.status, choice.bound = Status.BOUNDED, min(choice.bound, self.value)

    def _document(self, document: ResultDocument) -> ResultDocument:
        """The winner's document with the certificate and the account of all numbers of devices."""
        value, fallen = document.certificate.objective_value, Counter[str]()
        counts = [choice.counts for choice in self.choices]
        for part in counts:
            fallen.update(part.pruned_by)
        upper = max([value, *(choice.bound for choice in self.choices)])
        if upper <= value * (1 + ROUNDING):
            upper = value  # the same design, worked out in two ways
        devices = [choice.devices for choice in self.choices]
        certificate = document.certificate.model_copy(
            update={
                "optimal": upper <= value,
                "upper_bound": upper,
                "gap": (upper - value) / value,
                "scope": [*document.certificate.scope, devices_scope(devices)],
                "space_size": sum(part.size for part in counts),
                "over_budget": sum(part.over_budget for part in counts),
                "pruned": sum(fallen.values()),
                "evaluated": sum(part.evaluated for part in counts),
                "pruned_by": dict(fallen),
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
