"""Best first: bounds for every plan of a space, exact iterations until no bound is below the best."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, prod

from phaze.parallel.parallel_plan import Offload, ParallelPlan
from phaze.parallel.pipelines.pipeline_schedule import chunks_of
from phaze.parallel.plan_batches.memory_fit import fits
from phaze.parallel.plan_batches.plan_batch import batch_bounds_s
from phaze.parallel.plan_search.plan_lower_bounds import OpenPlan, rest_s, screened_plans
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.training.iteration import Iteration
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.scheduling.passes import NEVER_S


def leanest(estimator: Estimator, offloads: Sequence[frozenset[Offload]]) -> frozenset[frozenset[Offload]]:
    """Offloads without another one that leaves a part of theirs and steps no slower: its transfers never take longer.

    Raises InputError where the architecture does not tell what they need of a host.
    """
    step_s = {offload: estimator.step_s(ParallelPlan(1, offload=offload)) for offload in offloads}
    return frozenset(
        one for one in offloads if not any(less < one and step_s[less] <= step_s[one] for less in offloads)
    )


@dataclass(frozen=True)
class EvaluatedPlan:
    """A plan and what it comes to."""

    plan: ParallelPlan
    iteration: Iteration


@dataclass
class PlanBreakdown:
    """Plans of a space by their fate, each counted once: out of memory, pruned, evaluated."""

    out_of_memory: int = 0
    pruned: int = 0
    evaluated: int = 0

    @property
    def total(self) -> int:
        """Plans of the space."""
        return self.out_of_memory + self.pruned + self.evaluated


@dataclass(frozen=True)
class PlanAnswer:
    """The fastest plans that fit, best first, and the account of all.

    `least_memory_bytes`: what the leanest plan that was looked at needs on a device; `least_host_bytes`: the same
    in the memory of a host, of those that only that is too small for.
    """

    best: tuple[EvaluatedPlan, ...]
    account: PlanBreakdown
    least_memory_bytes: float
    least_host_bytes: float = inf


def best_plans(estimator: Estimator, space: PlanSpace, capacity_bytes: float, top: int = 1) -> PlanAnswer:
    """The `top` fastest plans whose every device fits into the capacity: exact over the space."""
    return _Search(estimator, space, capacity_bytes, top).answer()


_AT_ONCE = 128
"""Pipelines whose bounds are made those of iterations together."""

_MORE = 8
"""Pipelines that were looked at for each one more that is looked at together, though the first may rule it out."""

_Waiting = tuple[float, int, OpenPlan]
"""Bound, place, and plans that share it."""

_Entry = tuple[float, int, int, OpenPlan | ParallelPlan]
"""Bound, two numbers that break ties, and plans that share it, or one that fits in memory."""


@dataclass
class _Search:
    estimator: Estimator
    space: PlanSpace
    capacity_bytes: float
    top: int
    account: PlanBreakdown = field(default_factory=PlanBreakdown)
    found: list[EvaluatedPlan] = field(default_factory=list)
    least_bytes: float = inf
    least_host_bytes: float = inf
    known: dict[Hashable, float] = field(default_factory=dict)
    looked_at: int = 0

    def answer(self) -> PlanAnswer:
        """Look at all plans in the order of their bounds, which grow tighter where they are low."""
        opened = enumerate(screened_plans(self.estimator, self.space))
        waiting = sorted(((some.bound_s, place, some) for place, some in opened), key=lambda entry: entry[:2])
        queue: list[_Entry] = []
        taken = 0
        while True:
            lowest = min(queue[0][0] if queue else inf, self._worst, NEVER_S)
            if taken < len(waiting) and waiting[taken][0] < lowest:
                for bound, place, some in self._whole(waiting[taken : taken + _AT_ONCE]):
                    heapq.heappush(queue, (bound, place, -1, some))
                taken += _AT_ONCE
            elif queue and queue[0][0] <= lowest < min(self._worst, NEVER_S):
                self._look(queue, waiting[taken][0] if taken < len(waiting) else inf)
            else:
                break
        left: list[OpenPlan | ParallelPlan] = [entry[-1] for entry in queue]
        left += [some for *_, some in waiting[taken:]]
        self.account.pruned += self._count(left)
        return PlanAnswer(tuple(self.found), self.account, self.least_bytes, self.least_host_bytes)

    def _count(self, left: Sequence[OpenPlan | ParallelPlan]) -> int:
        """Plans of what is left; as many for all that share a pipeline."""
        opened = [some.pipeline for some in left if isinstance(some, OpenPlan)]
        pipelines = {id(one): one for one in opened}
        numbers = {key: self._number(one) for key, one in pipelines.items()}
        return sum(numbers[id(one)] for one in opened) + len(left) - len(opened)

    def _number(self, plan: ParallelPlan) -> int:
        """Number of variants."""
        return prod(map(len, (*self.space.choices(plan), tuple(self.space.offloaded(plan)))))

    def _look(self, queue: list[_Entry], below: float) -> None:
        """At the first of the queue: the plan itself, or variants of pipelines `below` a bound that come before one."""
        first = queue[0][-1]
        if isinstance(first, ParallelPlan):
            heapq.heappop(queue)
            self._evaluate(first)
            return
        some: list[tuple[int, ParallelPlan]] = []
        below, most = min(below, self._worst), 1 + self.looked_at // _MORE
        while queue and len(some) < most and (not some or queue[0][0] < below):
            _, place, _, opened = queue[0]
            if isinstance(opened, ParallelPlan):
                break
            heapq.heappop(queue)
            some.append((place, opened.plan))
        self.looked_at += len(some)
        for entry in self._refined(some):
            heapq.heappush(queue, entry)

    @property
    def _worst(self) -> float:
        """Seconds that a plan has to beat."""
        return self.found[-1].iteration.iteration_s if len(self.found) == self.top else inf

    def _whole(self, waiting: Sequence[_Waiting]) -> Iterator[_Waiting]:
        """Bounds of pipelines as those of iterations; what these add is the same where schedules place chunks alike."""
        keys = [
            (
                s.pipeline,
                s.stages,
                chunks_of(s.schedule, s.pipeline.pipeline_parallel, s.pipeline.chunks).tobytes(),
            )
            for *_, s in waiting
        ]
        new = {key: s.plan for key, (*_, s) in zip(keys, waiting, strict=True) if key not in self.known}
        if new:
            variants = [
                tuple(v for v in self.space.variants(s) if v.offload in self._leanest) for s in new.values()
            ]
            self.known.update(zip(new, rest_s(self.estimator, variants), strict=True))
        for key, (bound, place, some) in zip(keys, waiting, strict=True):
            yield bound + self.known[key], place, some

    @cached_property
    def _leanest(self) -> frozenset[frozenset[Offload]]:
        return leanest(self.estimator, self.space.offloads)

    def _refined(self, pipelines: Sequence[tuple[int, ParallelPlan]]) -> Iterator[_Entry]:
        """Variants of pipelines at some places that fit in memory, as they fit, and their bounds."""
        fitting = [
            (place, number, plan)
            for place, pipeline in pipelines
            for number, plan in enumerate(self._fitting(pipeline))
        ]
        bounds = batch_bounds_s(self.estimator, [plan for *_, plan in fitting]).tolist()
        for bound, (place, number, plan) in zip(bounds, fitting, strict=True):
            yield bound, place, number, plan

    def _fitting(self, plan: ParallelPlan) -> Iterator[ParallelPlan]:
        """Variants of a pipeline that fit in memory."""
        e, (zeros, orders) = self.estimator, self.space.choices(plan)
        offloaded = self.space.offloaded(plan)
        tried = (fits(e.layouts, s, zeros, self.capacity_bytes, e.host_capacity_bytes(s)) for s in offloaded)
        for fit in (fit for some in tried for fit in some):
            self.least_bytes = min(self.least_bytes, fit.least_bytes)
            self.least_host_bytes = min(self.least_host_bytes, fit.least_host_bytes)
            if fit.plan is None:
                self.account.out_of_memory += len(orders)
            else:
                yield from (replace(fit.plan, order=order) for order in orders)

    def _evaluate(self, plan: ParallelPlan) -> None:
        iteration = self.estimator.iteration(plan)
        if iteration.iteration_s >= NEVER_S:  # over links that the chip does not have
            self.account.pruned += 1
            return
        self.account.evaluated += 1
        found = [*self.found, EvaluatedPlan(plan, iteration)]
        self.found = sorted(found, key=lambda e: e.iteration.iteration_s)[: self.top]
