"""The certified search for the chip of a service: architectures by bounds, best first, then plans exactly.

Bounds, each dearer and closer than the one before: products at the peak of the arrays; passes from what memories
and links take at least; from what combinations of hardware do; from what each operator takes on each architecture.
They are worked out grid by grid of layers, for those architectures alone on which its ways may be best. What is left is
worked out exactly, way by way (replica shape and policy; every batch of it at once).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.cost.pass_energy import Events, dynamic_j
from phaze.errors import InfeasibleError
from phaze.explore.evaluation.design_candidates import Block
from phaze.explore.request.search_progress import Clock, Progress
from phaze.explore.services.exact_services import ExactServices, Service
from phaze.explore.services.service_costs import BOUNDS, MEMORY, SINGLE, PassBound, ServiceCosts
from phaze.explore.services.service_request import ServiceObjective, ServiceRequest, Worth
from phaze.hardware.derived_figures import (
    hbm_bandwidth_bytes_per_s,
    hbm_capacity_bytes,
    narrow_speed,
    sustained_flops_per_s,
)
from phaze.parallel.serving.bounds.least_passes import LeastPasses
from phaze.parallel.serving.bounds.service_bounds import ServiceBounds, Way
from phaze.parallel.serving.serving_search import best_of
from phaze.scheduling.effort import LimitsOver, SolveLimits
from phaze.tolerances import BOUND_ROUNDING

_SCREENED = 1 << 14  # architectures at a time, most promising first
_CLOSER = 256  # of these, whose operators are looked at
_EXACT = 32  # of these, whose passes are scheduled
_SAMPLE = 1 << 12  # spread over the space, to begin with, where there are few ways to serve
_LEAST_SAMPLE = 1 << 8
_SAMPLED_BOUNDS = 1 << 18  # of a way on an architecture, about, before anything is worked out exactly


@dataclass(frozen=True)
class _Group:
    """Ways that need the passes of some grids of layers, by their numbers, and of no others."""

    grids: tuple[int, ...]
    ways: list[Way]


@dataclass(frozen=True)
class ServiceOutcome:
    """What a search found: the best service and the next ones, what is left open, and how architectures fell.

    `services`: the best of each architecture that was worked out exactly, best first; `open_worth`: bounds of those
    that were left when time was over.
    """

    services: list[Service]
    open_worth: Floats
    pruned_by: Counter[str]
    evaluated: int
    in_budget: int
    ways: int


@dataclass
class ServiceSearch:
    """A search for the best service: `run` once."""

    request: ServiceRequest
    clock: Clock
    progress: Progress
    _best: float = 0.0
    _found: dict[int, Service] = field(default_factory=dict)
    _fallen: Counter[str] = field(default_factory=Counter)
    _exact: set[int] = field(default_factory=set)

    @cached_property
    def costs(self) -> ServiceCosts:
        """What bounds and exact plans are made of."""
        return ServiceCosts(self.request)

    @property
    def block(self) -> Block:
        """All architectures within budgets. Raises InfeasibleError where there is none."""
        return self.costs.block

    @cached_property
    def worth(self) -> Worth:
        """The objective on all of them."""
        return Worth(self.request, self.block)

    def run(self) -> ServiceOutcome:
        """Search until nothing can be better or time is over. InfeasibleError where no candidate is in budget."""
        everything = np.arange(len(self.block))
        sample = everything[:: -(-len(everything) // self._sampled)]
        self._open(sample)
        rows, hopes = self._screened(sample, self._arithmetic[sample])
        self._closer(rows, hopes, most=_CLOSER)
        self._fallen.clear()
        others = np.setdiff1d(everything, np.array(sorted(self._exact), dtype=np.intp))
        rows, first = self._kept("products", others, self._arithmetic[others])
        order = np.argsort(-first, kind="stable")
        left = self._closer(*self._screened(rows[order], first[order]))
        services = sorted(self._found.values(), key=lambda s: (-s.worth, s.number))
        self._fallen["open"] = len(left)
        rest = len(everything) - len(self._exact) - sum(self._fallen.values())
        self._fallen["operators"] = rest
        return ServiceOutcome(services, left, self._fallen, len(self._exact), len(everything), len(self.ways))

    @property
    def _sampled(self) -> int:
        """Architectures to begin with: fewer where there are many ways to serve, so that something is known soon."""
        return int(np.clip(_SAMPLED_BOUNDS // max(len(self.ways), 1), _LEAST_SAMPLE, _SAMPLE))

    @cached_property
    def _limits(self) -> SolveLimits:
        """What bounds look at between their steps; where it is over they are those of before."""
        return SolveLimits(self.clock.left)

    @property
    def _least_gain(self) -> float:
        """Worth that something must promise to be looked at."""
        return self._best * (1 + self.request.gap)

    def _kept(self, bound: str, rows: Rows, hopes: Floats) -> tuple[Rows, Floats]:
        """Architectures that may still be better by a bound, (A,) each."""
        may = hopes > self._least_gain
        self._fallen[bound] += len(rows) - int(may.sum())
        return rows[may], hopes[may]

    # -- the bounds ----------------------------------------------------------------------------------------

    @cached_property
    def _products(self) -> Events:
        """Products of all tokens of a request, attention and logits aside; no chip does less."""
        load = self.request.plans.traffic
        return self.costs.token_products * float(load.fresh_tokens + load.later_tokens)

    @cached_property
    def _product_j(self) -> Floats:
        """Joules of these for an output token, (A,)."""
        each = dynamic_j(self._products, self.block.table) / self.request.plans.traffic.output_tokens
        return np.broadcast_to(each, len(self.block))

    @cached_property
    def _arithmetic(self) -> Floats:
        """Worth of every architecture at most, (A,), if its arrays did nothing but these products."""
        plans, table, products = self.request.plans, self.block.table, self._products
        macs = float(products.macs + products.narrow_macs + products.fp4_macs)
        recipe = plans.options.recipe
        speed = sustained_flops_per_s(table) * narrow_speed(
            table, None if recipe is None else recipe.operands
        )
        tokens = speed / (2 * macs) * plans.traffic.output_tokens
        hopes = np.zeros(len(table))
        most = self.request.objective is ServiceObjective.THROUGHPUT  # of which all devices have most
        for devices in range(plans.devices if most else 1, plans.devices + 1):
            all_of = np.full(len(table), devices)
            hopes = np.maximum(hopes, self._hoped(np.arange(len(table)), tokens * devices, all_of))
        return hopes

    def _hoped(self, rows: Rows, tokens_per_s: Floats, devices: Floats) -> Floats:
        """Worth at most where so many devices serve at most so much."""
        found = self.worth.of(rows, devices, tokens_per_s, self._product_j[rows] * (1 - BOUND_ROUNDING))
        return found * (1 + BOUND_ROUNDING)

    @cached_property
    def _groups(self) -> list[_Group]:
        """All ways: those of every grid with one pool, and those with two pools."""
        none = np.zeros(0, dtype=np.intp)
        least = tuple(
            of.coarsest(self.costs.chips, tables, none)
            for of, tables in zip(self.costs.sums, self.costs.tables, strict=True)
        )
        every = ServiceBounds(self.request.plans, least, self.costs.room(none))
        ways, found = list(every.ways()), list[_Group]()
        for at, grid in enumerate(self.request.plans.grids):
            mine = [way for way in ways if way.second is None and way.first.of(grid)]
            found += [_Group((at,), mine)] if mine else []
        apart = [way for way in ways if way.second is not None]
        return [*found, _Group(self._every, apart)] if apart else found

    @property
    def _every(self) -> tuple[int, ...]:
        return tuple(range(len(self.costs.sums)))

    @cached_property
    def ways(self) -> list[Way]:
        """All ways to serve."""
        return [way for group in self._groups for way in group.ways]

    def _least(self, bound: PassBound, grids: Sequence[int], rows: Rows) -> tuple[LeastPasses, ...]:
        """What passes of some grids take at least on some architectures. LimitsOver once time is over."""
        return self.costs.least(bound, grids, rows, self._limits)

    def _way_hopes(self, bounds: ServiceBounds, rows: Rows, groups: list[_Group]) -> Floats:
        """Worth of every way of some groups at most, (ways, A); of others nothing. LimitsOver once time is over."""
        tokens = self.request.plans.traffic.output_tokens
        found, start = np.zeros((len(self.ways), len(rows))), 0
        for group in self._groups:
            if group in groups:
                for way, into in zip(group.ways, found[start:], strict=False):
                    self._limits.look()
                    for most in bounds.most(way):
                        hoped = self._hoped(rows, most.requests_per_s * tokens, _whole(most.devices))
                        np.maximum(into, hoped, out=into)
            start += len(group.ways)
        return found

    def _bounded(self, bound: PassBound, rows: Rows, hopes: Floats) -> tuple[Rows, Floats]:
        """Architectures that may be better by a bound, and what they are worth at most by group of ways, (G, A).

        `hopes` (G, A): of before, which hold where time is over; ways that are no better are not looked at.
        """
        found, (first, of) = np.zeros(hopes.shape), self.costs.alike(bound, rows)
        for group, before, into in zip(self._groups, hopes, found, strict=True):
            at = np.flatnonzero(before > self._least_gain)
            worth = before[at]
            with suppress(LimitsOver):
                for some, served, back in self._served(bound, group, first, of[at]):
                    hoped = self._most_worth(served, back, rows[at[some]])
                    worth[some] = np.minimum(worth[some], hoped)
            into[at] = worth
        kept, _ = self._kept(bound.name, np.arange(len(rows)), found.max(axis=0, initial=0.0))
        return rows[kept], found[:, kept]

    def _served(
        self, bound: PassBound, group: _Group, first: Rows, of: Rows
    ) -> Iterator[tuple[Rows, Floats, Rows]]:
        """Tokens per second of so many devices in use at most, (devices + 1, R), of some architectures `of` (A,).

        With the positions (n,) of these, and which of the R each shows; `first`: that stand for them. LimitsOver once
        time is over.
        """
        plans = self.request.plans
        shown, back = np.unique(of, return_inverse=True)
        for start in range(0, len(shown), _SCREENED):
            part = first[shown[start : start + _SCREENED]]
            least = self._least(bound, group.grids, part)
            bounds = ServiceBounds(plans, least, self.costs.room(part), coarse=bound.coarse)
            found, every = np.zeros((plans.devices + 1, len(part))), np.arange(len(part))
            for way in group.ways:
                self._limits.look()
                for most in bounds.most(way):
                    place = _whole(most.devices).astype(np.intp), every
                    found[place] = np.maximum(found[place], most.requests_per_s * plans.traffic.output_tokens)
            some = np.flatnonzero((back >= start) & (back < start + _SCREENED))
            yield some, found, back[some] - start

    def _most_worth(self, served: Floats, back: Rows, rows: Rows) -> Floats:
        """The most with any number of devices, (A,), that serve so much, (devices + 1, R); each shows `back`."""
        if self.request.objective is ServiceObjective.THROUGHPUT:
            most = served.max(axis=0)[back]
            return self._hoped(rows, most, np.ones(len(rows)))
        found = np.zeros(len(rows))
        for devices in np.flatnonzero(served.any(axis=1)).tolist():
            hoped = self._hoped(rows, served[devices][back], np.full(len(rows), devices))
            np.maximum(found, hoped, out=found)
        return found

    def _screened(self, rows: Rows, hopes: Floats) -> tuple[Rows, Floats]:
        """Architectures that may be better by what their hardware takes at least, and by group how much, (G, A).

        `hopes`: their bounds of before, (A,).
        """
        self.progress.update("bounding", 0, len(rows), self._told)
        by_group = np.broadcast_to(hopes, (len(self._groups), len(rows)))
        for bound in BOUNDS:
            rows, by_group = self._bounded(bound, rows, by_group)
        return rows, by_group

    def nearest_refusal(self) -> InfeasibleError:
        """What keeps the most promising architectures from serving at all: of the one that misses limits least."""
        table = self.block.table
        figures = self._arithmetic, hbm_bandwidth_bytes_per_s(table), hbm_capacity_bytes(table)
        rows = np.unique([int(figure.argmax()) for figure in figures])
        chips, found = self.costs.costed(rows), []
        for row, at in enumerate(rows.tolist()):
            try:
                best_of(ExactServices(self.worth, chips, row, at, self.costs.candidates.varied).space)
            except InfeasibleError as error:
                found.append(error)
        if not found:
            msg = "a service was lost"
            raise AssertionError(msg)
        return min(
            found, key=lambda error: max((s.demand / s.limit for s in error.shortfalls), default=np.inf)
        )

    # -- the exact part ------------------------------------------------------------------------------------

    def _open(self, sample: Rows) -> None:
        """Work out a promising architecture of some, so that bounds of others have something to be held against."""
        arithmetic = self._arithmetic[sample]
        rows, hopes = self._bounded(
            MEMORY, sample, np.broadcast_to(arithmetic, (len(self._groups), len(sample)))
        )
        if not len(rows):
            return
        # Of a service that takes the time of both.
        both = 1 / (1 / hopes.max(axis=0) + 1 / self._arithmetic[rows])
        top = rows[[int(both.argmax())]]
        with suppress(LimitsOver):
            bounds = ServiceBounds(
                self.request.plans, self._least(SINGLE, self._every, top), self.costs.room(top)
            )
            self._evaluate(top, self._way_hopes(bounds, top, self._groups))

    def _closer(self, rows: Rows, hopes: Floats, most: int | None = None) -> Floats:
        """Bound architectures closer, best first, and evaluate what is left; bounds that remain if time is over.

        `hopes`: their bounds by group of ways, (G, A).
        """
        best = hopes.max(axis=0, initial=0.0)
        order = np.argsort(-best, kind="stable")[:most]
        rows, best, hopes = rows[order], best[order], hopes[:, order]
        for start in range(0, len(rows), _CLOSER):
            some = slice(start, start + _CLOSER)
            kept = best[start:] > self._least_gain
            if not kept.any():
                self._fallen["passes"] += len(kept)
                break
            self.progress.update("evaluating", start, len(rows), self._told)
            left = self._look_at(rows[some], hopes[:, some])
            if self.clock.over:
                left = np.concatenate([left, best[start + _CLOSER :]])
                return left[left > self._least_gain]
        return np.zeros(0)

    @property
    def _told(self) -> str:
        best = max(self._found.values(), key=lambda s: s.worth, default=None)
        return "" if best is None else f"best {best.space.architecture.name}"

    def _look_at(self, rows: Rows, hopes: Floats) -> Floats:
        """Evaluate what closer bounds leave of some architectures; the bounds of those that there was no time for.

        `hopes`: their bounds of before by group of ways, (G, A).
        """
        wanted = [
            group for group, hoped in zip(self._groups, hopes, strict=True) if hoped.max() > self._least_gain
        ]
        try:
            grids = sorted({at for group in wanted for at in group.grids})
            bounds = ServiceBounds(
                self.request.plans, self.costs.tight(rows, grids, self._limits), self.costs.room(rows)
            )
            ways = self._way_hopes(bounds, rows, wanted)
        except LimitsOver:
            before: Floats = hopes.max(axis=0)
            return before
        best: Floats = ways.max(axis=0)
        order = np.argsort(-best, kind="stable")
        for start in range(0, len(order), _EXACT):
            some = order[start : start + _EXACT]
            some = some[best[some] > self._least_gain]
            if not len(some):
                break
            open_ = self._evaluate(rows[some], ways[:, some])
            if self.clock.over:
                return np.concatenate([open_, best[order[start + _EXACT :]]])
        return np.zeros(0)

    def _evaluate(self, rows: Rows, hopes: Floats) -> Floats:
        """Work out the ways (ways, A) of some architectures that may be better, most promising first.

        Returns the bounds of architectures of which ways are left once time is over.
        """
        chips, varied = self.costs.costed(rows), self.costs.candidates.varied
        exact = [ExactServices(self.worth, chips, row, int(at), varied) for row, at in enumerate(rows)]
        left = hopes.copy()
        for flat in np.argsort(-hopes, axis=None, kind="stable").tolist():
            way, row = divmod(flat, len(rows))
            if hopes[way, row] <= self._least_gain:
                break
            if self.clock.over:
                return self._unfinished(rows, left.max(axis=0))
            self._exact.add(int(rows[row]))
            left[way, row] = 0.0
            service = exact[row].best(self.ways[way])
            known = self._found.get(int(rows[row]))
            if service is not None and (known is None or service.worth > known.worth):
                self._found[int(rows[row])] = service
                self._best = max(self._best, service.worth)
        return np.zeros(0)

    def _unfinished(self, rows: Rows, most: Floats) -> Floats:
        """Bounds that are left of architectures some ways of which were not worked out; these count as open."""
        may = most > self._least_gain
        self._exact -= set(rows[may].tolist())
        return most[may]


def _whole(devices: Floats) -> Floats:
    """Devices that are at least so many."""
    found: Floats = np.ceil(devices * (1 - BOUND_ROUNDING))
    return found
