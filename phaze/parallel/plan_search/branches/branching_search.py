"""The fastest plans of a space where branches may run side by side: beside those of chains, in the order of bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

from phaze.parallel.parallel_plan import ParallelPlan, changed_plan
from phaze.parallel.plan_search.branches.branching_plans import BranchingPlans
from phaze.parallel.plan_search.plan_answer import EvaluatedPlan, PlanAnswer, PlanBreakdown, Slowdown
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.scheduling.passes import NEVER_S
from phaze.tolerances import SAME


@dataclass
class BranchingSearch:
    """Search over plans whose stages are a graph.

    What it finds is then improved by layers that move between stages next to one another, as long as that makes it
    faster: a plan that no bound speaks of, and that is no slower than the best of the space.
    """

    estimator: Estimator
    space: PlanSpace
    capacity_bytes: float
    top: int
    slowdown: Slowdown
    beat_s: float = inf
    found: list[EvaluatedPlan] = field(default_factory=list)
    whole: dict[ParallelPlan, ParallelPlan] = field(default_factory=dict)

    @cached_property
    def plans(self) -> BranchingPlans:
        """The plans of the space."""
        return BranchingPlans(self.estimator, self.space)

    def beside(self, chains: PlanAnswer) -> PlanAnswer:
        """The answer of a search over chains with the plans that are faster."""
        self.found, account = [*chains.best], replace(chains.account)
        least = min(self._looked_at(account), chains.least_memory_bytes)
        for one in [one for one in self.found if one.plan in self.whole]:
            self._keep(self._improved(one))
        return PlanAnswer(tuple(self.found), account, least, chains.least_host_bytes)

    def _looked_at(self, account: PlanBreakdown) -> float:
        """All plans evaluated that no bound rules out; the least bytes of a device under any of them."""
        least = inf
        for bound_s, plan in self.plans.bounded:
            if bound_s * self.slowdown(plan) >= min(self._worst_s, NEVER_S):
                account.pruned += self.plans.variants(plan)
                continue
            for fit, least_bytes in self.plans.fitted(plan, self.capacity_bytes):
                least = min(least, least_bytes)
                account.out_of_memory += fit is None
                account.evaluated += fit is not None
                if fit is not None:
                    self.whole[fit] = changed_plan(plan, zero=fit.zero, order=fit.order)
                    self._keep(EvaluatedPlan(fit, self.estimator.iteration(fit)))
        return least

    def _improved(self, one: EvaluatedPlan) -> EvaluatedPlan:
        """A plan after all moves of single layers that make it faster."""
        while True:
            better = next((other for other in self._moved(one) if self._is_faster(other, one)), None)
            if better is None:
                return one
            one = better

    def _moved(self, one: EvaluatedPlan) -> Iterator[EvaluatedPlan]:
        """The plan with a layer in another stage of its neighbours in the graph, where that fits."""
        whole = self.whole[one.plan]
        for cut in self.plans.moved(whole):
            moved = changed_plan(whole, stages=cut.sizes, layer_order=cut.order)
            yield from self._as_it_fits(moved, one.iteration.iteration_s)

    def _as_it_fits(self, plan: ParallelPlan, beat_s: float) -> Iterator[EvaluatedPlan]:
        """The plan, if it is still a graph and no bound rules out that it beats so many seconds."""
        if not self.plans.is_graph(plan) or self.plans.bound_s(plan) >= beat_s:
            return
        for fit in self.plans.fits(plan, self.capacity_bytes):
            self.whole[fit] = plan
            yield EvaluatedPlan(fit, self.estimator.iteration(fit))

    def _is_faster(self, one: EvaluatedPlan, other: EvaluatedPlan) -> bool:
        return self._slowed_s(one) < self._slowed_s(other) * (1 - SAME)

    def _keep(self, one: EvaluatedPlan) -> None:
        """Among the best, once."""
        others = [other for other in self.found if other.plan != one.plan]
        if self._slowed_s(one) < min(self.beat_s, NEVER_S):
            self.found = sorted([*others, one], key=self._slowed_s)[: self.top]

    @property
    def _worst_s(self) -> float:
        """Seconds that a plan has to beat."""
        full = len(self.found) == self.top
        return min(self.beat_s, self._slowed_s(self.found[-1])) if full else self.beat_s

    def _slowed_s(self, one: EvaluatedPlan) -> float:
        return one.iteration.iteration_s * self.slowdown(one.plan)
