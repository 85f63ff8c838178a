"""The certified search for two chips of one service: one for prefill pools and one for decode pools.

Each side is bounded on all architectures of the space, as the search for one chip bounds ways, but by itself: what the
other side is at best on the devices that are left tells how much a pair with an architecture may be worth. What is
left of both sides is worked out exactly, most promising first, and paired.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.explore.request.search_progress import Clock, Progress
from phaze.explore.services.exact_services import ExactServices
from phaze.explore.services.pair_worth import PairWorth
from phaze.explore.services.pool_items import Pairing, PoolItem, exact_item
from phaze.explore.services.pool_side import PoolSide, Reach, device_seconds, reach_of
from phaze.explore.services.service_costs import COMBINED, MEMORY, SINGLE, PassBound, ServiceCosts
from phaze.explore.services.service_request import Worth
from phaze.parallel.serving import ServingPlan, ServingSpace
from phaze.parallel.serving.bounds.service_bounds import ServiceBounds, Shape
from phaze.parallel.serving.replicas.replica_offers import ServingChoice
from phaze.parallel.serving.serving_plan import Role
from phaze.parallel.serving.serving_search import checked_plan
from phaze.parallel.serving.serving_space import PoolChips
from phaze.scheduling.effort import ENDLESS, LimitsOver, SolveLimits
from phaze.tolerances import SAME

SIDES = Role.PREFILL, Role.DECODE
_SCREENED = 1 << 14  # architectures at a time
_SAMPLE = 1 << 11  # of each side, spread over what the first bounds leave, to begin with
_CLOSER = 256  # whose operators are looked at
_EXACT = 32  # whose passes are scheduled
_BEGINNING = 8  # of each side, worked out before all are bounded closer
_BOUNDED, _TIGHT = 0, 1  # how closely a side knows an architecture


@dataclass(frozen=True)
class FoundPair:
    """Two chips, what they are worth, and the plan in the making."""

    worth: float
    choice: ServingChoice
    items: tuple[PoolItem, PoolItem]

    @cached_property
    def space(self) -> ServingSpace:
        """The space of plans of these chips."""
        first, second = (item.exact.space for item in self.items)
        return replace(first, pool_chips=PoolChips(second.architecture))

    @cached_property
    def plan(self) -> ServingPlan:
        """The plan, checked. Raises PlanError where it contradicts itself."""
        return checked_plan(self.choice, self.space)


@dataclass(frozen=True)
class PairOutcome:
    """The best pair that is better than one chip (None: there is none), and how far any could be better.

    `open_worth`: of the best pair that was not looked at, 0 where none may be better; `worked_out`: architectures whose
    pools were worked out exactly, by side; `paired`: pairs of pools that were.
    """

    pair: FoundPair | None
    open_worth: float
    worked_out: dict[Role, int]
    paired: int


@dataclass
class PairSearch:
    """A search for the best pair of chips that is worth more than `known`: `run` once."""

    costs: ServiceCosts
    known: float
    clock: Clock
    progress: Progress
    best: FoundPair | None = None
    _items: dict[Role, list[PoolItem]] = field(default_factory=lambda: {role: [] for role in SIDES})
    _done: dict[Role, set[int]] = field(default_factory=lambda: {role: set() for role in SIDES})
    _coarse: dict[str, tuple[dict[Role, Floats], Rows]] = field(default_factory=dict)
    _hoped: float = np.inf

    def run(self) -> PairOutcome:
        """Search until no pair can be better or time is over."""
        every = np.arange(len(self.costs.block))
        rows = dict.fromkeys(SIDES, every)
        reach = self._reaches(MEMORY, rows, ENDLESS.ends)
        try:
            for bound in (MEMORY, COMBINED):
                rows, reach = self._screened(bound, rows, reach)
            self._begin(rows, reach)
            rows, reach = self._screened(COMBINED, rows, reach)
            nothing = {role: reach_of(self.worth, (), *np.zeros((2, 0))) for role in SIDES}
            self._hoped = min(self._hoped, self._close(self._sides(rows, reach), nothing))
        except LimitsOver:
            pass
        left = self._hoped if self._hoped > self._least_gain else 0.0
        done = {role: len(some) for role, some in self._done.items()}
        return PairOutcome(self.best, left, done, self.pairing.tried)

    @cached_property
    def worth(self) -> PairWorth:
        """The objective of pairs."""
        return PairWorth(self.costs)

    @cached_property
    def pairing(self) -> Pairing:
        """Pairs of pools that were worked out."""
        return Pairing(self.worth)

    @cached_property
    def shapes(self) -> dict[Role, list[Shape]]:
        """Replica shapes of pools of both roles that leave a device to the other pool."""
        plans = self.costs.request.plans
        every = [
            Shape(grid.width, stages, grid.experts, grid.context_parallel)
            for grid in plans.grids
            for stages in plans.depths(grid)
        ]
        some = [shape for shape in every if shape.devices * shape.together < plans.devices]
        asked = plans.options.context_parallel
        return {
            Role.PREFILL: [shape for shape in some if shape.parts == 1],
            Role.DECODE: [shape for shape in some if asked in (None, shape.parts)],
        }

    @cached_property
    def _limits(self) -> SolveLimits:
        return SolveLimits(self.clock.left)

    @property
    def _reached(self) -> float:
        return self.known if self.best is None else self.best.worth

    @property
    def _least_gain(self) -> float:
        """Worth that a pair must promise to be looked at: more than what is known, by more than rounding."""
        return self._reached * (1 + max(self.costs.request.gap, SAME))

    # -- bounds of all architectures -------------------------------------------------------------------------

    def _rates(self, bound: PassBound, rows: Rows, limits: SolveLimits) -> tuple[dict[Role, Floats], Rows]:
        """Requests per second of replicas at most, (S, R) by role, of architectures that stand for all; and which."""
        if bound.tells(self.costs.chips.model.factors) is None:
            return self._rates_of(bound, rows, limits), np.arange(len(rows))
        if bound.name not in self._coarse:
            first, of = self.costs.alike(bound, np.arange(len(self.costs.block)))
            self._coarse[bound.name] = self._rates_of(bound, first, limits), of
        rates, of = self._coarse[bound.name]
        return rates, of[rows]

    def _rates_of(self, bound: PassBound, rows: Rows, limits: SolveLimits) -> dict[Role, Floats]:
        """The same of each of some architectures."""
        grids, plans, parts = range(len(self.costs.sums)), self.costs.request.plans, []
        for start in range(0, max(len(rows), 1), _SCREENED):
            part = rows[start : start + _SCREENED]
            least = self.costs.least(bound, grids, part, limits)
            parts.append(
                self._of_bounds(ServiceBounds(plans, least, self.costs.room(part), coarse=bound.coarse))
            )
        return {role: np.concatenate([one[role] for one in parts], axis=1) for role in SIDES}

    def _of_bounds(self, bounds: ServiceBounds) -> dict[Role, Floats]:
        """What replicas serve at most, (S, R) by role."""
        known = {Role.PREFILL: bounds.prefill, Role.DECODE: bounds.decode}
        none = np.zeros(len(bounds.room_bytes))
        return {
            role: np.stack([known[role].get(shape, none) for shape in self.shapes[role]] or [none])
            for role in SIDES
        }

    def _parts(
        self, bound: PassBound, rows: dict[Role, Rows], limits: SolveLimits
    ) -> Iterator[tuple[Role, PoolSide, Rows]]:
        """Sides of some architectures of each role, part by part, with their positions among those of the role."""
        union = np.union1d(*rows.values())
        rates, of = self._rates(bound, union, limits)
        for role in SIDES:
            for start in range(0, len(rows[role]), _SCREENED):
                at = np.arange(start, min(start + _SCREENED, len(rows[role])))
                mine = rows[role][at]
                some = rates[role][:, of[np.searchsorted(union, mine)]]
                yield role, PoolSide.of(self.worth, role, self.shapes[role], mine, some, _BOUNDED), at

    def _reaches(self, bound: PassBound, rows: dict[Role, Rows], limits: SolveLimits) -> dict[Role, Reach]:
        """The best of either side by a bound."""
        found = {role: self._exact_reach(role) for role in SIDES}
        for role, side, _ in self._parts(bound, rows, limits):
            found[role] = found[role].joined(side.reach())
        return found

    def _screened(
        self, bound: PassBound, rows: dict[Role, Rows], reach: dict[Role, Reach]
    ) -> tuple[dict[Role, Rows], dict[Role, Reach]]:
        """Architectures of either side that may be of a better pair by a bound, and what these reach."""
        self.progress.update("bounding", 0, sum(map(len, rows.values())), f"two chips, {bound.name}")
        found = {role: self._exact_reach(role) for role in SIDES}
        kept = {role: np.zeros(len(some), dtype=bool) for role, some in rows.items()}
        most = dict.fromkeys(SIDES, 0.0)
        for role, side, at in self._parts(bound, rows, self._limits):
            hopes = side.hopes(reach[_other(role)]).max(axis=0)
            most[role] = max(most[role], float(hopes.max(initial=0.0)))
            kept[role][at] = hopes > self._least_gain
            side.keep(np.flatnonzero(kept[role][at]))
            found[role] = found[role].joined(side.reach())
        self._hoped = min(self._hoped, max(most.values()))
        return {role: rows[role][kept[role]] for role in SIDES}, found

    def _exact_reach(self, role: Role) -> Reach:
        """The best of pools of a role that were worked out."""
        items = self._items[role]
        seconds, prices = ([getattr(one, name) for one in items] for name in ("device_s", "price"))
        shapes = [one.shape for one in items]
        return reach_of(self.worth, shapes, np.array(seconds), np.array(prices))

    # -- closer, and exactly ---------------------------------------------------------------------------------

    def _begin(self, rows: dict[Role, Rows], reach: dict[Role, Reach]) -> None:
        """Work out promising architectures of a sample, so that bounds of all have something to be held against."""
        some = {role: of[:: max(1, -(-len(of) // _SAMPLE))] for role, of in rows.items()}
        self._close(self._sides(some, reach), reach, _BEGINNING)

    def _sides(self, rows: dict[Role, Rows], reach: dict[Role, Reach]) -> dict[Role, PoolSide]:
        """Both sides on some architectures that are not worked out yet, without those that bounds rule out."""
        found = {role: list[PoolSide]() for role in SIDES}
        for role, side, _ in self._parts(SINGLE, rows, self._limits):
            fresh = ~np.isin(side.rows, list(self._done[role]))
            hopes = side.hopes(reach[_other(role)])
            side.device_s[hopes <= self._least_gain] = np.inf
            side.keep(np.flatnonzero(fresh & (hopes.max(axis=0) > self._least_gain)))
            found[role].append(side)
        return {role: PoolSide.join(self.worth, role, self.shapes[role], found[role]) for role in SIDES}

    def _close(
        self, sides: dict[Role, PoolSide], beyond: dict[Role, Reach], most: int | None = None
    ) -> float:
        """Bound architectures closer, best first, and work out what is left; what remains open if time is over.

        `beyond`: the best of what is not among them; `most`: of either side that are worked out.
        """
        begun = {role: len(self._done[role]) for role in SIDES}
        while True:
            hopes = self._rule_out(sides, beyond)
            best = {role: float(hopes[role].max(initial=0.0)) for role in SIDES}
            open_ = [role for role in SIDES if best[role]]
            if most is not None:
                open_ = [role for role in open_ if len(self._done[role]) - begun[role] < most]
            if not open_ or self.clock.over:
                return max(best.values())
            role = max(open_, key=lambda role: (best[role], -len(self._done[role])))
            try:
                self._look_at(sides[role], hopes[role])
            except LimitsOver:
                return max(best.values())

    def _rule_out(self, sides: dict[Role, PoolSide], beyond: dict[Role, Reach]) -> dict[Role, Floats]:
        """Leave out what cannot be of a better pair; what the rest of both sides may be worth, (R,) by role."""
        own = {role: sides[role].reach().joined(self._exact_reach(role)) for role in SIDES}
        reach, found = {role: own[role].joined(beyond[role]) for role in SIDES}, {}
        for role, side in sides.items():
            hopes = side.hopes(reach[_other(role)])
            side.device_s[hopes <= self._least_gain] = np.inf
            most = hopes.max(axis=0, initial=0.0)
            kept = np.flatnonzero(most > self._least_gain)
            side.keep(kept)
            found[role] = most[kept]
        return found

    def _look_at(self, side: PoolSide, hopes: Floats) -> None:
        """Look closer at the most promising architectures of a side that are known as little as the first of them."""
        order = np.argsort(-hopes, kind="stable")
        level = side.level[order[0]]
        alike = order[side.level[order] == level]
        self.progress.update("evaluating", len(self._done[side.role]), len(hopes), f"{side.role} chips")
        if level == _BOUNDED:
            self._tighten(side, alike[:_CLOSER])
        else:
            self._work_out(side, alike[: self._together])

    @property
    def _together(self) -> int:
        """Architectures that are worked out side by side: few as long as no pair is known."""
        return _EXACT if self.best is not None else _BEGINNING

    def _tighten(self, side: PoolSide, at: Rows) -> None:
        """Bound what pools take by what each operator takes on the architectures at some positions of a side."""
        wanted = [
            shape
            for shape, some in zip(side.shapes, side.device_s[:, at], strict=True)
            if np.isfinite(some).any()
        ]
        plans, rows = self.costs.request.plans, side.rows[at]
        grids = [k for k, grid in enumerate(plans.grids) if any(shape.of(grid) for shape in wanted)]
        least = self.costs.tight(rows, grids, self._limits)
        rates = self._of_bounds(ServiceBounds(plans, least, self.costs.room(rows)))[side.role]
        closer = device_seconds(self.worth, side.shapes, rates)
        side.device_s[:, at] = np.maximum(side.device_s[:, at], closer)
        side.level[at] = _TIGHT

    def _work_out(self, side: PoolSide, at: Rows) -> None:
        """Work out pools on the architectures at some positions of a side, and pair them with all of the other side."""
        rows, varied = side.rows[at], self.costs.candidates.varied
        chips, new = self.costs.costed(rows), list[PoolItem]()
        for j, row in enumerate(rows.tolist()):
            exact = ExactServices(self._single, chips, j, row, varied)
            for shape, seconds in zip(side.shapes, side.device_s[:, at[j]].tolist(), strict=True):
                item = exact_item(self.worth, side.role, exact, shape) if np.isfinite(seconds) else None
                new += [] if item is None else [item]
        self._done[side.role].update(rows.tolist())
        self._items[side.role] += new
        side.keep(np.setdiff1d(np.arange(len(side.rows)), at))
        others = self._items[_other(side.role)]
        prompts, tokens = (new, others) if side.role is Role.PREFILL else (others, new)
        for hoped, first, second in self.pairing.hopes(prompts, tokens, self._least_gain):
            if hoped <= self._least_gain:
                break
            self._try(first, second)

    def _try(self, first: PoolItem, second: PoolItem) -> None:
        worked = self.pairing.worked_out(first, second)
        if worked is not None and worked[0] > self._reached * (1 + SAME):
            self.best = FoundPair(*worked, (first, second))

    @cached_property
    def _single(self) -> Worth:
        return Worth(self.costs.request, self.costs.block)


def _other(role: Role) -> Role:
    return Role.DECODE if role is Role.PREFILL else Role.PREFILL
