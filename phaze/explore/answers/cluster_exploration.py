"""How many accelerators, and which, under a budget of power or money for the whole cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.errors import InfeasibleError, InputError, OutOfTimeError, Shortfall
from phaze.explore.answers.answer_parts import Answer
from phaze.explore.answers.certificate_counts import PointCounts, certificate
from phaze.explore.answers.exploration import Exploration
from phaze.explore.certified.search_state import Outcome
from phaze.explore.certified.workload_bounds import roofline_throughput
from phaze.explore.documents.result_document import ClusterChoice, ClusterReport, ResultDocument
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.flops_utilisation import fastest_flops_per_s
from phaze.explore.request.explore_request import ClusterBudget, ExploreRequest, Objective
from phaze.explore.request.objective_floor import floor_throughput
from phaze.explore.request.search_progress import Clock, Progress
from phaze.explore.request.search_resources import ALONE, SearchResources
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.budgets import Limit
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.economics.package_price import price_usd
from phaze.tolerances import BOUND_ROUNDING

MOST_DEVICES = 65536


class DeviceCountStatus(StrEnum):
    """Fate of one number of devices."""

    SEARCHED = "searched"
    BOUNDED = "bounded"  # it cannot be better than the best
    INFEASIBLE = "infeasible"  # the workload fits no architecture, or none is fast enough
    OPEN = "open"  # time was over


def device_counts(most: int) -> tuple[int, ...]:
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
class DeviceCount:
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
    status: DeviceCountStatus = DeviceCountStatus.OPEN
    value: float | None = None
    best: str | None = None
    searched: PointCounts | None = None

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
        least_s = min(float(evaluator.roofline_s(config).min()) for config in evaluator.configs)
        hoped = self.request.task.cluster.global_batch / least_s * (1 + BOUND_ROUNDING)
        self.bound, self.refined = min(self.bound, hoped), True

    def report(self) -> ClusterChoice:
        """Record of this number of devices in a result."""
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
    def counts(self) -> PointCounts:
        """Counts of its points by fate: in the search, or by the bound that made one unnecessary."""
        if self.searched is not None:
            return self.searched
        configs = self.request.task.points_per_architecture
        size, within = self.candidates.size * configs, self.within * configs
        unfit = "floor" if self.floor > 0 else "memory"
        fate = {DeviceCountStatus.OPEN: "open", DeviceCountStatus.INFEASIBLE: unfit}.get(
            self.status, "number of devices"
        )
        return PointCounts(size, size - within, 0, {fate: within})


def affordable_counts(
    request: ExploreRequest, budget: ClusterBudget, progress: Progress
) -> list[DeviceCount]:
    """Every number of devices for which some architecture keeps the budget, ascending, with its roofline as bound."""
    counts = [_Count(with_devices(request, budget, devices)) for devices in device_counts(MOST_DEVICES)]
    for done, (block, some) in enumerate(_blocks(counts)):
        progress.update(
            "counting devices", done, 0, f"{len(block)} architectures, {len(some)} numbers of devices"
        )
        peaks = np.stack([fastest_flops_per_s(block.table, request.task, r) for r in request.task.recipes])
        price = (
            price_usd(block.table, block.area_mm2, request.task.economics)
            if budget.cost_usd is not None
            else block.area_mm2
        )
        for count in some:
            count.add(block, price, peaks)
    left = [count.within > 0 for count in counts]
    most = left.index(False) if False in left else len(left)  # more devices leave less for each
    return [count.choice for count in counts[:most]]


def _blocks(counts: list[_Count]) -> Iterator[tuple[Block, list[_Count]]]:
    """Architectures that keep the budgets of one device, block by block, and the numbers of devices they stand for.

    With more devices some of them do. Where clocks follow from the power that is left, each number has its own.
    """
    request = counts[0].request
    alone = [[count] for count in counts] if request.budgets.dvfs else [counts]
    for some in alone:
        for block in Candidates(request.space, some[0].request.budgets).blocks():
            if len(block):
                yield block, some


@dataclass
class _Count:
    """One number of devices while architectures are counted; `best`: highest peak in each recipe, and whose it is."""

    request: ExploreRequest
    within: int = 0
    best: list[tuple[float, int]] = field(default_factory=list)

    def add(self, block: Block, price: NDArray[np.float64], peaks: NDArray[np.float64]) -> None:
        """Count those of a block, of some prices (A,) and peaks (recipes, A), that keep the budgets."""
        limits = self.request.budgets
        kept = np.ones(len(block), dtype=np.bool_)
        for amount, limit in ((block.tdp_w, limits.power_w), (price, limits.price_usd)):
            kept &= amount <= (np.inf if limit is None else limit)
        rows = np.flatnonzero(kept)
        self.within += len(rows)
        if len(rows):
            top = rows[peaks[:, rows].argmax(axis=1)]
            found = list(
                zip(peaks[np.arange(len(top)), top].tolist(), block.numbers[top].tolist(), strict=True)
            )
            self.best = [max(pair) for pair in zip(self.best or found, found, strict=True)]

    @property
    def choice(self) -> DeviceCount:
        """The number of devices, to be searched."""
        fastest = tuple(dict.fromkeys(number for _, number in self.best))
        table = Candidates(self.request.space, self.request.budgets).table(np.array(fastest))
        bound = float(roofline_throughput(Evaluator(self.request.task, table)).max())
        return DeviceCount(self.request, bound, self.within, fastest)


def explore_cluster(
    request: ExploreRequest,
    budget: ClusterBudget,
    progress: Progress,
    clock: Clock,
    resources: SearchResources = ALONE,
) -> Answer:
    """The best number of devices and the best design for it, with one certificate over both.

    Raises InputError where the question makes no sense for a cluster, InfeasibleError where not even one device
    keeps the budget or the workload fits nowhere, OutOfTimeError where nothing was found in time.
    """
    if request.others or request.objective is not Objective.THROUGHPUT:
        raise InputError("a budget for the cluster takes one --workload and --objective throughput")
    return _ClusterSearch(request, budget, progress, clock, resources).answer()


def devices_scope(devices: Sequence[int]) -> str:
    """The numbers of devices that a certificate speaks of."""
    return f"number of devices among {', '.join(map(str, devices))}"


def cluster_report(
    budget: ClusterBudget, document: ResultDocument, choices: Sequence[ClusterChoice], economics: Economics
) -> ClusterReport:
    """Power in W and cost in USD of the cluster of a document's best design, beside every number of devices."""
    best = document.best
    devices = next(iter(best.workloads.values())).devices
    chip = to_table([Architecture(name=best.id, fields=best.architecture)])
    return ClusterReport(
        power_budget_w=budget.power_w,
        cost_budget_usd=budget.cost_usd,
        overhead=budget.overhead,
        devices=devices,
        power_w=devices * best.tdp_w * budget.overhead,
        cost_usd=devices * float(price_usd(chip, economics=economics)[0]),
        choices=list(choices),
    )


@dataclass(frozen=True)
class BestDeviceCount:
    """The best number of devices that is known, and its search."""

    choice: DeviceCount
    exploration: Exploration
    outcome: Outcome


@dataclass
class _ClusterSearch:
    request: ExploreRequest
    budget: ClusterBudget
    progress: Progress
    clock: Clock
    resources: SearchResources
    best: BestDeviceCount | None = None
    like: Evaluator | None = None
    choices: list[DeviceCount] = field(default_factory=list)

    def answer(self) -> Answer:
        """Numbers of devices in the order of what they promise; of equally good ones the fewest win."""
        self.choices = affordable_counts(self.request, self.budget, self.progress)
        while (choice := self._next()) is not None and not self.clock.over:
            self._look(choice)
        if self.best is None:
            raise self._nothing()
        found = self.best
        answer = found.exploration.around(found.outcome)
        told = answer.document.certificate
        found.choice.value, found.choice.bound = told.objective_value, told.upper_bound
        found.choice.searched = PointCounts(told.space_size, told.over_budget, told.evaluated, told.pruned_by)
        return Answer(self._document(answer.document), answer.designs)

    @property
    def value(self) -> float:
        """Samples/s of the best design that is known, 0 without one."""
        return self.best.choice.value or 0.0 if self.best else 0.0

    def _next(self) -> DeviceCount | None:
        """The number of devices that promises most of those that may be better than the best; others are settled."""
        waiting = [choice for choice in self.choices if choice.status is DeviceCountStatus.OPEN]
        for choice in waiting:
            if choice.bound < max(choice.floor, np.nextafter(0.0, 1.0)):
                choice.status, choice.bound = DeviceCountStatus.INFEASIBLE, 0.0
            elif choice.bound < self._least(choice):
                choice.status = DeviceCountStatus.BOUNDED
        left = [choice for choice in waiting if choice.status is DeviceCountStatus.OPEN]
        return min(left, key=lambda choice: (-choice.bound, choice.devices), default=None)

    def _least(self, choice: DeviceCount) -> float:
        """Samples/s from which on a number of devices is better than the best known, or as good with fewer."""
        fewer = self.best is None or choice.devices < self.best.choice.devices
        return max(choice.floor, self.value if fewer else float(np.nextafter(self.value, np.inf)))

    def _look(self, choice: DeviceCount) -> None:
        """Bound a number of devices by its plans or, where it is, look for its fastest design, no frontier."""
        exploration = Exploration(choice.request, self.progress, self.clock, self.resources, self.like)
        if not self.request.budgets.dvfs:
            self.like = self.like or exploration.evaluator
        if choice.refined:
            self._search(choice, exploration)
        else:
            choice.refine(exploration.evaluator)

    def _search(self, choice: DeviceCount, exploration: Exploration) -> None:
        least = self._least(choice)
        outcome = exploration.fastest(least)
        reached = {one.value: number for (number, _), one in outcome.evaluated.items() if one.value >= least}
        hoped = float(outcome.undecided[1].max(initial=0.0))
        if reached:
            choice.value = max(reached)
            choice.best = choice.candidates.architecture(reached[choice.value]).name
            choice.status, choice.bound = DeviceCountStatus.SEARCHED, max(choice.value, hoped)
            choice.searched = PointCounts.of(outcome, choice.candidates)
            self.best = BestDeviceCount(choice, exploration, outcome)
        elif not outcome.finished:
            choice.bound = min(choice.bound, max(self.value, hoped))
        elif self.best is None:
            choice.status, choice.bound = DeviceCountStatus.INFEASIBLE, 0.0
        else:
            choice.status, choice.bound = DeviceCountStatus.BOUNDED, min(choice.bound, self.value)

    def _document(self, document: ResultDocument) -> ResultDocument:
        """The winner's document with the certificate and the account of all numbers of devices."""
        told = document.certificate
        proven = certificate(
            told.objective,
            told.objective_value,
            [choice.bound for choice in self.choices],
            PointCounts.sum([choice.counts for choice in self.choices]),
            [*told.scope, devices_scope([choice.devices for choice in self.choices])],
            complete=told.frontier_complete,
            plans_each=told.plans_per_architecture,
        )
        return document.model_copy(update={"certificate": proven, "cluster": self._report(document)})

    def _report(self, document: ResultDocument) -> ClusterReport:
        economics = self.request.task.economics
        return cluster_report(self.budget, document, [choice.report() for choice in self.choices], economics)

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
        """Shortfalls of a single device, in terms of the budgets of the cluster where these fall short."""
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
