"""The best plan of a space, way by way: what bounds rule out is neither costed nor worked out at every batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from phaze.arrays import Floats
from phaze.parallel.serving.bounds.least_passes import exact_passes
from phaze.parallel.serving.bounds.service_bounds import Most, ServiceBounds, Shape
from phaze.parallel.serving.bounds.token_bounds import TokenBound
from phaze.parallel.serving.pools.disaggregated_pools import decoding_offers, paired, prefilling_offers
from phaze.parallel.serving.pools.one_pool import offered
from phaze.parallel.serving.replicas.layer_grid import LayerGrid
from phaze.parallel.serving.replicas.model_replica import Replica
from phaze.parallel.serving.replicas.replica_offers import Offers, ServingChoice
from phaze.parallel.serving.serving_space import ServingSpace
from phaze.tolerances import BOUND_ROUNDING

Rank = tuple[float, float, float]
_NEVER: Rank = (0.0, np.inf, np.inf)


def bounds_know(space: ServingSpace) -> bool:
    """Whether bounds hold for a space: they know requests of one kind, and no guessed tokens."""
    return space.traffic.recorded is None and space.options.speculation is None


@dataclass
class WaySearch:
    """Search for the best plan of a space that `bounds_know`.

    Grids are first bounded by what their exchanges take, then by all that a token takes but attention, ways of a grid
    that is costed by its exact passes with the stages of a pipeline left out; what is left is worked out exactly, the
    most promising first. Ranks as of `ServingChoice`; equal ones go to what the space enumerates first. `worked_out`:
    plans made so far.
    """

    space: ServingSpace
    best: ServingChoice | None = None
    worked_out: int = 0
    _place: tuple[int, ...] = ()
    _opened: dict[int, ServiceBounds] = field(default_factory=dict)
    _tried: set[tuple[Shape, Shape]] = field(default_factory=set)
    _costed: set[int] = field(default_factory=set)

    def run(self) -> ServingChoice | None:
        """The best plan; None where no way keeps the limits."""
        if self.space.options.disaggregate is not True:
            self._one_pool()
        if self.space.apart and self._grids:
            self._two_pools()
        return self.best

    # -- one pool ------------------------------------------------------------------------------------------

    def _one_pool(self) -> None:
        load, asked = self.space.traffic, self.space.options.context_parallel
        tokens = load.fresh_tokens + load.later_tokens
        hopes = [self._whole(bound.requests_per_s(tokens)) for bound in self._tokens_of]
        for at in sorted(range(len(hopes)), key=lambda at: hopes[at]):
            if asked not in (None, self._grids[at].context_parallel) or not self._may(hopes[at]):
                continue
            self._costed.add(at)
            if self._may(self._whole(self._tokens_of[at].requests_per_s(tokens, costed=True))):
                self._try_ways(at)

    def _try_ways(self, at: int) -> None:
        """Ways of one grid."""
        bounds = self._bounds(at)
        ways = [way for way in bounds.ways() if way.second is None]
        hopes = [min(map(self._hoped, bounds.most(way)), default=_NEVER) for way in ways]
        for i in sorted(range(len(ways)), key=lambda i: hopes[i]):
            if not self._may(hopes[i]):
                break
            way = ways[i]
            _, choice = offered(self.space, self._replicas[way.first], way.chunk)
            self._take(choice, (0, at, i))

    # -- two pools -----------------------------------------------------------------------------------------

    def _two_pools(self) -> None:
        """Pools of grids that are costed, and of others, as long as a pair with one of them may be better."""
        self._try_pairs()
        while (at := self._most_wanted()) is not None:
            if at not in self._costed:
                self._costed.add(at)
                continue
            self._bounds(at)
            self._try_pairs()

    def _most_wanted(self) -> int | None:
        """A grid that is not costed, of the pair that may be best of all; None where none may."""
        rates = np.array([self._pool_rates(at) for at in range(len(self._grids))])
        hopes = self._pair_hopes(rates[:, 0], rates[:, 1])
        closed = np.array([at not in self._opened for at in range(len(self._grids))])
        hopes[~(closed[:, None] | closed)] = np.inf
        first, second = np.unravel_index(int(hopes.argmin()), hopes.shape)
        if not self._may(self._rank(float(hopes[first, second]))):
            return None
        return int(first) if closed[first] else int(second)

    def _pool_rates(self, at: int) -> tuple[float, float]:
        """Requests per second and device of a grid at most, as a prefill pool and as a decode pool."""
        load, grid = self.space.traffic, self._grids[at]
        if at in self._opened:
            bounds = self._opened[at]
            each = (
                max(float(r[0]) / s.devices for s, r in of.items()) for of in (bounds.prefill, bounds.decode)
            )
            prompts, tokens = each
        else:
            bound, costed = self._tokens_of[at], at in self._costed
            prompts = bound.requests_per_s(load.fresh_tokens, costed=costed)
            most = self.space.options.largest_batch  # sequences of a decode pass
            tokens = bound.requests_per_s(load.later_tokens, costed=costed, most=most)
        return (prompts if grid.context_parallel == 1 else 0.0), (tokens if self._decodes(grid) else 0.0)

    def _try_pairs(self) -> None:
        """Pairs of shapes of the grids that are costed."""
        senders = self._pool(lambda grid: grid.context_parallel == 1, lambda bounds: bounds.prefill)
        takers = self._pool(self._decodes, lambda bounds: bounds.decode)
        rates = (np.array([rate / shape.devices for shape, rate in pool]) for pool in (senders, takers))
        hopes = self._pair_hopes(*rates)
        for at in np.argsort(hopes, axis=None, kind="stable").tolist():
            first, second = divmod(at, len(takers))
            if not self._may(self._rank(float(hopes[first, second]))):
                break
            pair = senders[first][0], takers[second][0]
            if pair not in self._tried:
                self._tried.add(pair)
                self._take(self._paired(*pair), (1, *(self._order[shape] for shape in pair)))

    def _pool(
        self, wanted: Callable[[LayerGrid], bool], rates: Callable[[ServiceBounds], dict[Shape, Floats]]
    ) -> list[tuple[Shape, float]]:
        """Shapes of grids that are costed, with the most that a replica of each serves in a pool."""
        found = [
            (shape, float(rate[0]))
            for at, bounds in sorted(self._opened.items())
            if wanted(self._grids[at])
            for shape, rate in rates(bounds).items()
        ]
        return [(shape, rate) for shape, rate in found if rate]

    def _paired(self, first: Shape, second: Shape) -> ServingChoice | None:
        sender, receiver = self._replicas[first], self._replicas[second]
        if first not in self._prompts:
            self._prompts[first] = prefilling_offers(self.space, sender)
        if second not in self._tokens:
            self._tokens[second] = decoding_offers(self.space, receiver)
        return paired(self.space, (sender, self._prompts[first]), (receiver, self._tokens[second]))

    def _pair_hopes(self, prompts: Floats, tokens: Floats) -> Floats:
        """What pairs of pools are hoped to be, (P, T), less is better, by requests per second and device of each.

        Devices that a request takes for a second; a split into whole replicas serves no more than one into parts.
        """
        with np.errstate(divide="ignore"):
            found: Floats = 1 / prompts[:, None] + 1 / tokens
        return found

    def _rank(self, device_s: float) -> Rank:
        """The rank of a plan, at best, whose requests take so many device seconds each."""
        return _NEVER if not np.isfinite(device_s) else self._whole(1 / device_s if device_s else np.inf)

    def _decodes(self, grid: LayerGrid) -> bool:
        return self.space.options.context_parallel in (None, grid.context_parallel)

    # -- both ----------------------------------------------------------------------------------------------

    def _whole(self, each: float) -> Rank:
        """The rank of a plan, at best, whose devices serve so many requests per second each."""
        rate = self.space.traffic.rate_per_s
        if rate is None:
            return (-each * self.space.devices * (1 + BOUND_ROUNDING), 0.0, 0.0)
        needed = rate / each * (1 - BOUND_ROUNDING)
        return (-rate, needed, 0.0) if needed <= self.space.devices else _NEVER

    def _hoped(self, most: Most) -> Rank:
        """The same of a bound of a way."""
        served, rate = float(most.requests_per_s[0]), self.space.traffic.rate_per_s
        if not served:
            return _NEVER
        if rate is None:
            return (-served * (1 + BOUND_ROUNDING), 0.0, 0.0)
        return (-rate, float(most.devices[0]), 0.0)

    def _may(self, hope: Rank) -> bool:
        """Whether something of such a rank at best may be the best."""
        return hope < _NEVER and (self.best is None or hope <= self.best.rank)

    def _take(self, choice: ServingChoice | None, place: tuple[int, ...]) -> None:
        self.worked_out += 1
        if choice is not None and (self.best is None or (choice.rank, place) < (self.best.rank, self._place)):
            self.best, self._place = choice, place

    def _bounds(self, at: int) -> ServiceBounds:
        """Bounds of the ways of a grid by its exact passes, which are costed for it."""
        if at not in self._opened:
            room = np.array([self.space.limits.memory_bytes])
            self._opened[at] = ServiceBounds(self.space, (exact_passes(self._grids[at]),), room)
        return self._opened[at]

    @cached_property
    def _grids(self) -> Sequence[LayerGrid]:
        """Grids of which a device has room for the weights, for some number of stages."""
        room, space = self.space.limits.memory_bytes, self.space
        return [
            grid
            for grid in space.grids
            if grid.weight_bytes.sum() < room * max(space.depths(grid), default=0)
        ]

    @cached_property
    def _tokens_of(self) -> list[TokenBound]:
        return [TokenBound(grid) for grid in self._grids]

    @cached_property
    def _replicas(self) -> dict[Shape, Replica]:
        return dict(self._enumerated())

    @cached_property
    def _order(self) -> dict[Shape, int]:
        return {shape: at for at, (shape, _) in enumerate(self._enumerated())}

    def _enumerated(self) -> Iterator[tuple[Shape, Replica]]:
        for r in self.space.shapes:
            yield Shape(r.grid.width, r.stages, r.together, r.grid.context_parallel), r

    @cached_property
    def _prompts(self) -> dict[Shape, Offers]:
        return {}

    @cached_property
    def _tokens(self) -> dict[Shape, Offers]:
        return {}
