"""Best first: bounds for every plan of a space, exact iterations until no bound is below the best."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, prod
from typing import TypeVar

from phaze.parallel.parallel_plan import Offload, ParallelPlan, changed_plan
from phaze.parallel.plan_batches.memory_fit import frugal
from phaze.parallel.plan_batches.plan_batch import batch_bounds_s
from phaze.parallel.plan_search.branches.branching_search import BranchingSearch
from phaze.parallel.plan_search.fitted_pipelines import FittedPipeline, MemoryTally, PipelineFits
from phaze.parallel.plan_search.layerwise.layer_recompute import LayerRecompute
from phaze.parallel.plan_search.layerwise.layer_sharding import LayerSharding
from phaze.parallel.plan_search.memory_bounds import MemoryBounds
from phaze.parallel.plan_search.plan_answer import EvaluatedPlan, PlanAnswer, PlanBreakdown, Slowdown
from phaze.parallel.plan_search.plan_lower_bounds import rest_key, rest_s
from phaze.parallel.plan_search.plans_in_order import PlansInOrder
from phaze.parallel.plan_search.screened_plans import OpenPlan, ScreenedPlans, screened_plans
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.scheduling.passes import NEVER_S
from phaze.tolerances import BOUND_ROUNDING


def leanest(estimator: Estimator, offloads: Sequence[frozenset[Offload]]) -> frozenset[frozenset[Offload]]:
    """Offloads without another one that leaves a part of theirs and steps no slower: its transfers never take longer.

    Raises InputError where the architecture does not tell what they need of a host.
    """
    step_s = {offload: estimator.step_s(ParallelPlan(1, offload=offload)) for offload in offloads}
    return frozenset(
        one for one in offloads if not any(less < one and step_s[less] <= step_s[one] for less in offloads)
    )


def best_plans(
    estimator: Estimator,
    space: PlanSpace,
    capacity_bytes: float,
    top: int = 1,
    slowdown: Slowdown = lambda _: 1.0,
    beat_s: float = inf,
) -> PlanAnswer:
    """The `top` fastest plans whose every device fits into the capacity, slowed down: exact over the space.

    Those that do not beat so many seconds need not be among them.
    """
    answer = _Search(estimator, space, capacity_bytes, top, slowdown, beat_s).answer()
    if not space.branches:
        return answer
    return BranchingSearch(estimator, space, capacity_bytes, top, slowdown, beat_s).beside(answer)


_AT_ONCE = 128
"""Pipelines whose bounds are made those of iterations together."""

_MORE = 4
"""Pipelines that were looked at for each one more that is looked at together, though the first may rule it out."""

_AHEAD = 1.01
"""How much longer than the least bound those of pipelines may be that are looked at together with it."""

_Opened = tuple[float, int, int, OpenPlan]
_Fitting = tuple[float, int, int, FittedPipeline]
_Bounded = tuple[float, int, int, ParallelPlan]
"""Bound, two numbers that break ties, and plans that share it: a pipeline, as it fits in memory, one of its plans."""

_BY_LAYER = 1 << 32
"""Added to the number of a plan where its layers are chosen one by one."""

_MIXED = 2 * _BY_LAYER
"""The same where replicas divide some of its blocks; twice, once a bound of that is known."""

_Any = TypeVar("_Any", _Opened, _Fitting)


def _is_rough(one: _Opened | _Fitting) -> bool:
    return isinstance(one[-1], OpenPlan) and one[-1].rough


@dataclass
class _Queues:
    """What is to be looked at, by how much is known of it, each in the order of bounds."""

    screened: list[_Opened] = field(default_factory=list)
    opened: list[_Opened] = field(default_factory=list)
    layered: list[_Fitting] = field(default_factory=list)
    fitting: list[_Fitting] = field(default_factory=list)
    bounded: list[_Bounded] = field(default_factory=list)

    @property
    def lowest(self) -> float:
        """The least bound."""
        every = (self.screened, self.opened, self.layered, self.fitting, self.bounded)
        return min((queue[0][0] for queue in every if queue), default=inf)


@dataclass
class _Search:
    estimator: Estimator
    space: PlanSpace
    capacity_bytes: float
    top: int
    slowdown: Slowdown
    beat_s: float = inf
    account: PlanBreakdown = field(default_factory=PlanBreakdown)
    found: list[EvaluatedPlan] = field(default_factory=list)
    memory: MemoryTally = field(default_factory=MemoryTally)
    known: dict[Hashable, float] = field(default_factory=dict)
    variants: dict[Hashable, int] = field(default_factory=dict)
    queues: _Queues = field(default_factory=_Queues)
    rests: dict[int, float] = field(default_factory=dict)
    unfit: list[OpenPlan] = field(default_factory=list)
    seen: set[tuple[int, int]] = field(default_factory=set)
    mixed_alone: set[tuple[int, int]] = field(default_factory=set)
    looked_at: int = 0
    opened: int = 0

    def answer(self) -> PlanAnswer:
        """Look at all plans in the order of their bounds, which grow tighter where they are low."""
        queues, waiting = self.queues, PlansInOrder(self.screened, self.slowdown)
        while True:
            lowest = min(queues.lowest, self._worst, NEVER_S)
            if waiting.least_s(lowest) < lowest:
                self._open(waiting.take(max(_AT_ONCE, waiting.taken // _MORE), _AHEAD * lowest))
            elif queues.lowest <= lowest < min(self._worst, NEVER_S):
                self._look(waiting.least_s(lowest))
            else:
                break
        left = sum(self._number(some.pipeline) for *_, some in (*queues.screened, *queues.opened))
        left += sum(
            (place, number) not in self.seen for _, place, number, plan in queues.bounded if not plan.layers
        )
        left += sum(
            (place, number) not in self.seen
            for _, place, first, some in queues.fitting
            for number in range(first, first + len(some.orders))
        )
        every = int((self.screened.figures(self._number) * self.screened.cuts).sum())
        self.account.pruned += left + every - self.opened
        self.account.out_of_memory = self.memory.out_of_memory + sum(
            self._number(one.pipeline) for one in self.unfit
        )
        if not self.found and self.beat_s == inf:
            self._tell_least()
        return PlanAnswer(
            tuple(self.found), self.account, self.memory.least_bytes, self.memory.least_host_bytes
        )

    def _tell_least(self) -> None:
        """What the leanest plan needs, where none is found."""
        least = self._fits.least([one.plan for one in self.unfit])
        self.memory.least_bytes = min(self.memory.least_bytes, least.least_bytes)
        self.memory.least_host_bytes = min(self.memory.least_host_bytes, least.least_host_bytes)

    def _number(self, plan: ParallelPlan) -> int:
        """Number of variants; the same for all pipelines with equal choices."""
        s, choices = plan, self.space.choices(plan)
        key = *choices, s.recompute, s.recomputed
        if key not in self.variants:
            self.variants[key] = prod(map(len, (*choices, tuple(self.space.offloaded(s)))))
        return self.variants[key]

    def _look(self, below: float) -> None:
        """At what has the least bound: a plan itself, or what is known less of `below` a bound that comes before it."""
        q = self.queues
        every = (q.bounded, q.layered, q.fitting, q.opened, q.screened)
        heads = [queue[0][:3] for queue in every if queue]
        if q.bounded and q.bounded[0][:3] == min(heads):
            _, place, number, plan = heapq.heappop(q.bounded)
            self._evaluate(plan, (place, number % _BY_LAYER))
            return
        if q.layered and q.layered[0][:3] == min(heads):
            self._choose_layers(*heapq.heappop(q.layered))
            return
        below = min(below, self._worst, q.bounded[0][0] if q.bounded else inf)
        if q.fitting and q.fitting[0][:3] == min(heads):
            self._bound(self._taken(q.fitting, below))
        elif q.screened and q.screened[0][:3] == min(heads):
            self._complete(below)
        elif q.opened[0][-1].rough:
            self._sharpen(below)
        else:
            self._fit(self._taken(q.opened, below))

    def _sharpen(self, below: float) -> None:
        """Bounds of plans that know what their layers take: of the first, and of more that need no other schedule."""
        queue = self.queues.opened
        some = [heapq.heappop(queue)]
        while queue and len(some) < _AT_ONCE and queue[0][0] < below and _is_rough(queue[0]):
            if self.screened.schedules(queue[0][1]):
                break
            some.append(heapq.heappop(queue))
        sharp = self.screened.exactly([place for _, place, *_ in some])
        for (whole_s, place, number, rough), one in zip(some, sharp, strict=True):
            known = one.at_least(rough.bound_s)
            longer_s = (known.bound_s - rough.bound_s) * self.slowdown(one.pipeline)
            heapq.heappush(queue, (whole_s + longer_s, place, number, known))

    def _taken(self, queue: list[_Any], below: float) -> list[_Any]:
        """The first of a queue, and others below a bound, the more the more were taken."""
        most = 1 + self.looked_at // _MORE
        some = [heapq.heappop(queue)]
        while queue and len(some) < most and queue[0][0] < below:
            if not _is_rough(queue[0]):
                some.append(heapq.heappop(queue))
            elif self.screened.schedules(queue[0][1]):
                break
            else:
                self._sharpen(below)
        self.looked_at += len(some)
        return some

    @property
    def _worst(self) -> float:
        """Seconds that a plan has to beat."""
        return (
            min(self._slowed_s(self.found[-1]), self.beat_s) if len(self.found) == self.top else self.beat_s
        )

    def _slowed_s(self, one: EvaluatedPlan) -> float:
        return one.iteration.iteration_s * self.slowdown(one.plan)

    def _open(self, places: Sequence[int]) -> None:
        """Bounds of pipelines that know what their devices run again; those that do not fit at all are left."""
        waiting = self.screened.known(places)
        self.opened += sum(self._number(one.pipeline) for one in waiting)
        bounds_s, fits = self._memory_bounds.bounds(waiting)
        for place, one, bound_s, fit in zip(places, waiting, bounds_s.tolist(), fits.tolist(), strict=True):
            if not fit:
                self.unfit.append(one)
                continue
            longer = one.at_least(bound_s)
            whole_s = longer.bound_s * self.slowdown(one.pipeline)
            heapq.heappush(self.queues.screened, (whole_s, place, -2, longer))

    def _complete(self, below: float) -> None:
        """Bounds of pipelines as those of iterations; what these add is worked out once where it is the same."""
        queue = self.queues.screened
        some = [heapq.heappop(queue)]
        while queue and len(some) < _AT_ONCE and queue[0][0] < below:
            some.append(heapq.heappop(queue))
        plans = [one.plan for *_, one in some]
        keys = [rest_key(self.estimator, plan) for plan in plans]
        new = {key: plan for key, plan in zip(keys, plans, strict=True) if key not in self.known}
        if new:
            variants = [
                tuple(v for v in self.space.variants(s) if v.offload in self._leanest) for s in new.values()
            ]
            self.known.update(zip(new, rest_s(self.estimator, variants), strict=True))
        for key, (whole_s, place, _, one) in zip(keys, some, strict=True):
            longer_s = self.known[key] * self.slowdown(one.pipeline)
            heapq.heappush(self.queues.opened, (whole_s + longer_s, place, -1, one))

    @cached_property
    def _memory_bounds(self) -> MemoryBounds:
        return MemoryBounds(self.estimator, self.space, self.capacity_bytes)

    @cached_property
    def screened(self) -> ScreenedPlans:
        """All plans."""
        return screened_plans(self.estimator, self.space)

    @cached_property
    def _leanest(self) -> frozenset[frozenset[Offload]]:
        return leanest(self.estimator, self.space.offloads)

    @cached_property
    def _fits(self) -> PipelineFits:
        return PipelineFits(self.estimator, self.space, self.capacity_bytes, self.memory)

    def _fit(self, some: Sequence[_Opened]) -> None:
        """Variants of pipelines as they fit in memory, with bounds of what then runs again."""
        for fit in self._fits.fitted([opened.plan for *_, opened in some]):
            bound, place, _, opened = some[fit.which]
            slower = self.slowdown(opened.pipeline)
            rest_s = bound / slower - opened.bound_s
            if fit.mixes:
                self._mix(bound, place, fit, rest_s)
                continue
            longer = (fit.busy_s + rest_s) * slower * (1 - BOUND_ROUNDING)
            heapq.heappush(self.queues.fitting, (max(bound, longer), place, fit.number, fit))
            if self.space.by_layer and frugal(fit.pipeline) and fit.counts.any():
                plan = changed_plan(fit.pipeline, zero=fit.zero)
                least = max(bound, (self._layers.bound_s(fit, plan) + rest_s) * slower * (1 - BOUND_ROUNDING))
                heapq.heappush(self.queues.layered, (least, place, fit.number + _BY_LAYER, fit))
                self.rests[place] = rest_s

    def _mix(self, bound: float, place: int, fit: FittedPipeline, rest_s: float) -> None:
        """A pipeline whose replicas divide some blocks beside others."""
        heapq.heappush(self.queues.layered, (bound, place, fit.number + _MIXED, fit))
        self.rests[place] = rest_s
        if fit.unfit:
            self.mixed_alone.add((place, fit.number))

    def _choose_layers(self, bound: float, place: int, number: int, fit: FittedPipeline) -> None:
        """What of every block runs again, where the pipeline cannot be ruled out."""
        if bound >= self._worst:
            return
        if fit.mixes:
            self._divide_layers(bound, place, number, fit)
            return
        plan = self._layers.fitted(changed_plan(fit.pipeline, zero=fit.zero))
        if plan is None:
            return
        longer = (self._layers.chosen_bound_s(plan) + self.rests[place]) * self.slowdown(plan)
        for at, order in enumerate(fit.orders):
            least = max(bound, longer * (1 - BOUND_ROUNDING))
            heapq.heappush(self.queues.bounded, (least, place, number + at, changed_plan(plan, order=order)))

    def _divide_layers(self, bound: float, place: int, number: int, fit: FittedPipeline) -> None:
        """Which blocks of a pipeline are divided, and what of them runs again; first a bound of that."""
        plan = changed_plan(fit.pipeline, zero=fit.zero, order=fit.orders[0])
        slower, rest_s = self.slowdown(plan) * (1 - BOUND_ROUNDING), self.rests[place]
        if number < 2 * _MIXED:
            least = max(bound, (self._sharding.bound_s(fit, plan) + rest_s) * slower)
            if least < min(self._worst, NEVER_S):
                heapq.heappush(self.queues.layered, (least, place, number + _MIXED, fit))
        elif (found := self._sharding.fitted(fit, plan, self._worst / self.slowdown(plan))) is not None:
            longer = (found.bound_s + rest_s) * slower
            heapq.heappush(self.queues.bounded, (max(bound, longer), place, number, found.plan))

    @cached_property
    def _sharding(self) -> LayerSharding:
        return LayerSharding(self._layers)

    @cached_property
    def _layers(self) -> LayerRecompute:
        return LayerRecompute(self.estimator, self.capacity_bytes)

    def _bound(self, some: Sequence[_Fitting]) -> None:
        """Plans that fit, and their bounds."""
        plans = [
            (place, number, plan)
            for _, place, first, fit in some
            for number, plan in enumerate(fit.plans, first)
        ]
        bounds = batch_bounds_s(self.estimator, [plan for *_, plan in plans]).tolist()
        for bound, (place, number, plan) in zip(bounds, plans, strict=True):
            heapq.heappush(self.queues.bounded, (bound * self.slowdown(plan), place, number, plan))

    def _evaluate(self, plan: ParallelPlan, key: tuple[int, int]) -> None:
        iteration = self.estimator.iteration(plan)
        never = iteration.iteration_s >= NEVER_S  # over links that the chip does not have
        if key not in self.seen:  # once, in whichever way blocks recompute
            self.seen.add(key)
            self.memory.out_of_memory -= key in self.mixed_alone
            self.account.pruned += never
            self.account.evaluated += not never
        if never or (plan.layers and iteration.memory_bytes > self.capacity_bytes):
            return
        found = [*self.found, EvaluatedPlan(plan, iteration)]
        self.found = sorted(found, key=self._slowed_s)[: self.top]
