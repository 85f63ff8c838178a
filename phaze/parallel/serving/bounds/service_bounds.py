"""Upper bounds on what a cluster of any of many architectures serves, for every replica shape and policy of a space.

They are the steady state with terms left out. Of a pipeline the mean of its stages is taken for the longest, so that p
stages serve at most p times what one engine does with all layers on one stage; memory has no activations; a stream
waits for nobody. Between two knots passes are straight lines of the batch b, hence D(b) / b is monotone, and the time
of one request, T(b) / b = Q(b) + (O - 1) D(b) / b, is at least the sum of the least of its terms at the ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.parallel.serving.bounds.least_passes import LeastPasses
from phaze.parallel.serving.replicas.chip_costs import doublings
from phaze.parallel.serving.replicas.layer_grid import PROMPTS, LayerGrid
from phaze.parallel.serving.replicas.model_replica import DEVIATIONS
from phaze.parallel.serving.replicas.steady_state import prompts_together
from phaze.parallel.serving.serving_requests import Traffic
from phaze.parallel.serving.serving_space import ServingSpace
from phaze.tolerances import BOUND_ROUNDING, SAME
from phaze.workload.operators.kv_cache import KvCache


@dataclass(frozen=True, slots=True)
class Shape:
    """Replica shape: tensor-parallel width, stages, replicas that share experts, devices with parts of each cache."""

    width: int
    stages: int
    together: int
    parts: int = 1

    @property
    def devices(self) -> int:
        """Devices of a replica."""
        return self.width * self.stages

    def of(self, grid: LayerGrid) -> bool:
        """Whether its replicas have the layers of a grid."""
        degrees = grid.width, grid.experts, grid.context_parallel
        return (self.width, self.together, self.parts) == degrees

    def most(self, devices: int) -> int:
        """Replicas that so many devices make."""
        return devices // (self.devices * self.together) * self.together


@dataclass(frozen=True, slots=True)
class Way:
    """Way to serve: replicas of a shape that prefill first (`chunk` None) or beside decode, or two pools (`second`)."""

    first: Shape
    chunk: int | None = None
    second: Shape | None = None


@dataclass(frozen=True, slots=True)
class Most:
    """What is served at most, requests/s, and on how many devices at least, (A,) each; 0 requests: not at all."""

    requests_per_s: Floats
    devices: Floats


@dataclass(frozen=True)
class ServiceBounds:
    """Bounds of a space of plans on architectures whose passes at one stage are `least`, one of each grid of the space.

    `room_bytes` (A,): memory of a device that may be used. `coarse`: memory has room for what fits in the deepest
    pipeline of the space, so that all depths are bounded at once.
    """

    space: ServingSpace
    least: tuple[LeastPasses, ...]
    room_bytes: Floats
    coarse: bool = False

    def ways(self) -> Iterator[Way]:
        """All ways of the space."""
        every = [shape for shape, _ in self._shapes]
        shapes = [shape for shape in every if self.space.options.context_parallel in (None, shape.parts)]
        if self.space.options.disaggregate is not True:
            yield from (Way(shape, size) for shape in shapes for size in self.space.pass_sizes)
        if self.space.apart:
            whole = [shape for shape in every if shape.parts == 1]
            yield from (Way(first, second=second) for first in whole for second in shapes)

    def most(self, way: Way) -> Iterator[Most]:
        """What a way serves at most, by the number of its replicas where that is open."""
        if way.second is not None:
            yield from self._apart(way.first, way.second)
        else:
            yield from self._together(way.first, way.chunk)

    def _together(self, shape: Shape, chunk: int | None) -> Iterator[Most]:
        clients, replicas = self.space.traffic.clients, shape.most(self.space.devices)
        if clients is None:
            if replicas:
                yield self._shared(shape.stages * self._engine(shape, chunk, np.inf), shape, replicas)
            return
        for count in range(replicas, 0, -shape.together):
            engines = count * shape.stages
            served = engines * self._engine(shape, chunk, clients / engines)
            yield Most(served, np.full(len(served), float(count * shape.devices)))

    def _shared(self, each: Floats, shape: Shape, replicas: int) -> Most:
        """Replicas that serve so much each: all of them, or as many as a stream takes."""
        rate = self.space.traffic.rate_per_s
        if rate is None:
            return Most(replicas * each, np.full(len(each), float(replicas * shape.devices)))
        count = self.needed(each, shape, rate)
        return Most(np.where(count <= replicas, rate, 0.0), np.minimum(count, replicas) * shape.devices)

    def _apart(self, first: Shape, second: Shape) -> Iterator[Most]:
        devices, rate = self.space.devices, self.space.traffic.rate_per_s
        prompts, tokens = self.prefill[first], self.decode[second]
        if rate is not None:
            counts = self.needed(prompts, first, rate), self.needed(tokens, second, rate)
            used = counts[0] * first.devices + counts[1] * second.devices
            yield Most(np.where(used <= devices, rate, 0.0), np.minimum(used, devices))
            return
        for count in range(first.together, devices // first.devices + 1, first.together):
            left = second.most(devices - count * first.devices)
            if left:
                served = np.minimum(count * prompts, left * tokens)
                # The slower pool has all its replicas, the faster one only as many as that takes.
                with np.errstate(divide="ignore", invalid="ignore"):
                    senders, takers = served / prompts * first.devices, served / tokens * second.devices
                yield Most(served, np.where(served > 0, senders + takers, 1.0))

    @staticmethod
    def needed(each: Floats, shape: Shape, rate: float) -> Floats:
        """Replicas that a stream takes at least; infinitely many where one serves nothing."""
        with np.errstate(divide="ignore"):
            found: Floats = np.ceil(rate / each / shape.together * (1 - BOUND_ROUNDING)) * shape.together
        return found

    @cached_property
    def prefill(self) -> dict[Shape, Floats]:
        """Prompts per second of a replica that does nothing else, (A,) by shape."""
        several = doublings(1, PROMPTS) if self.space.traffic.rate_per_s is None else [1]
        found = {}
        for shape, least in self._shapes:
            passes = [(n, least.prompt_s(n)) for n in several]
            rates = [np.where(s <= self._first_within_s, n * shape.stages / s, 0.0) for n, s in passes]
            fits = self.room_bytes > self._weights(least.grid, shape.stages)
            found[shape] = np.where(fits, np.max(rates, axis=0), 0.0)
        return found

    @cached_property
    def decode(self) -> dict[Shape, Floats]:
        """Requests per second of a replica whose prompts come from elsewhere, (A,) by shape."""
        found = {}
        for shape, least in self._shapes:
            batch = least.knots()
            none = np.zeros((max(len(batch) - 1, 1), len(self.room_bytes)))
            bubbles, within_s = Bubbles(none, 0.0, 0.0, 1, late=False), np.full(none.shape, self._passes_s)
            terms = _Terms(batch, none, least.decode_s(batch), none, bubbles, within_s)
            found[shape] = shape.stages * self._best(terms, self._room(shape), Loop())
        return found

    def _engine(self, shape: Shape, chunk: int | None, most: float) -> Floats:
        """Requests per second of one engine of a replica, (A,), times its stages, at batches up to `most`."""
        depth = max(self.space.depths(self._least[shape].grid)) if self.coarse else shape.stages
        key = shape.width, shape.together, shape.parts, depth, chunk
        deep = replace(shape, stages=depth)
        if key not in self._known_engines:
            self._known_engines[key] = self._engine_of(deep, chunk, self._most_clients(shape))
            self._rooms[key] = self._room(deep)
        engine = self._known_engines[key]
        if (key, most) not in self._engines:
            cap = np.minimum(np.minimum(self._rooms[key], engine.most), most)
            load = self.space.traffic
            loop = Loop(np.inf if load.clients is None else most, self.space.options.engine.request_s)
            self._engines[key, most] = self._best(engine.terms.until(most), cap, loop)
        return self._engines[key, most]

    def _most_clients(self, shape: Shape) -> float:
        """Clients that one engine of replicas of a width and degrees has at most, whatever their depth if `coarse`."""
        clients = self.space.traffic.clients
        engines = shape.together * (1 if self.coarse else shape.stages)
        return np.inf if clients is None else clients / engines

    def _engine_of(self, shape: Shape, chunk: int | None, clients: float) -> _Engine:
        """What bounds an engine of a replica at batches up to so many clients."""
        least, load, stages = self._least[shape], self.space.traffic, 1 if self.coarse else shape.stages
        prompts = self.space.most_prompts(chunk)
        if chunk is None:
            batch = _up_to(least.knots(), clients)
            at = Corners.of_knots(batch, load, prompts, least.body.points, beside=False)
            whole, each = least.prompt_s(at.prompts), at.prompts[:, None]
            longer = at.least((whole - least.decode_s(at.batch)) / each)
            bubbles = Bubbles(longer, 1 / load.later_tokens, 1 / load.later_tokens, stages, late=False)
            within_s = self._passes_s - at.least(-whole)
            request_s, first_s = at.least(whole / each), at.least(whole)
            return _Engine(
                _Terms(batch, request_s, least.decode_s(batch), first_s, bubbles, within_s), np.inf
            )
        count, batch = -(-load.fresh_tokens // chunk), _up_to(least.knots(chunk, prompts), clients)
        at = Corners.of_knots(batch, load, prompts, least.body.points, beside=True)
        joined = least.mixed_s(at.batch, chunk) if prompts == 1 else least.joined_s(at.batch, at.prompts)
        more = at.least(count * (joined - least.decode_s(at.batch)) / at.prompts[:, None])
        bubbles = Bubbles(more, count / load.later_tokens, 0.0, stages, late=True)
        decode_s, first_s = least.decode_s(batch), at.least(count * joined)
        terms = _Terms(batch, more, decode_s, first_s, bubbles, np.full(more.shape, self._passes_s))
        # Of a pass with a chunk for every sequence there are so many; clients make batches that are no whole numbers.
        most = load.later_tokens * prompts / count
        return _Engine(terms, most if load.clients is not None else most // 1)

    @cached_property
    def _known_engines(self) -> dict[tuple[int | None, ...], _Engine]:
        """What bounds engines, by width, sharing, parts, depth and chunk."""
        return {}

    @cached_property
    def _rooms(self) -> dict[tuple[int | None, ...], Floats]:
        """Their largest batches."""
        return {}

    @cached_property
    def _engines(self) -> dict[tuple[tuple[int | None, ...], float], Floats]:
        """What engines serve, by these and the largest batch."""
        return {}

    @property
    def _passes_s(self) -> float:
        """Seconds that decoding one request may take."""
        return self.space.traffic.later_tokens * self.space.targets.tpot_s

    def _best(self, terms: _Terms, cap: Floats, loop: Loop) -> Floats:
        loose = self.space.traffic.rate_per_s is not None
        return terms.best(self.space.traffic.later_tokens, cap, self._first_within_s, loop, loose=loose)

    @property
    def _first_within_s(self) -> float:
        """Seconds that passes may take to the first token."""
        return self.space.targets.ttft_s - self.space.options.engine.request_s

    @cached_property
    def _shapes(self) -> list[tuple[Shape, LeastPasses]]:
        return [(shape, least) for shape, least in self._least.items()]

    @cached_property
    def _least(self) -> dict[Shape, LeastPasses]:
        return {
            Shape(least.grid.width, stages, least.grid.experts, least.grid.context_parallel): replace(
                least, overheads=self.space.options.engine.overheads, stages=1 if self.coarse else stages
            )
            for least in self.least
            for stages in self.space.depths(least.grid)
        }

    @staticmethod
    def _weights(grid: LayerGrid, stages: int) -> float:
        return float(grid.weight_bytes.sum()) / stages

    def _room(self, shape: Shape) -> Floats:
        """Largest batch of an engine that memory has room for, (A,), caches half grown on average if they are paged."""
        grid = self._least[shape].grid
        begin, end = (float(of.sum()) for of in grid.cache_bytes)
        each = end if grid.served.kv_cache is KvCache.CONTIGUOUS else (begin + end) / 2
        left = self.room_bytes - self._weights(grid, shape.stages)
        room = left / each if each else np.where(left > 0, np.inf, 0.0)
        if self.space.traffic.rate_per_s is None:
            return room
        # A stream has places for a crowd, n + 3 sqrt(n); the batch that keeps up is at most the next whole one.
        places = np.maximum(room, 0.0) * shape.stages
        mean = ((np.sqrt(DEVIATIONS**2 + 4 * places) - DEVIATIONS) / 2) ** 2
        return np.where(room > 0, mean / shape.stages + 1, 0.0)


@dataclass(frozen=True, slots=True)
class Bubbles:
    """Time that stages of a pipeline wait for one another, at least, where some passes are longer than others.

    The longest of p independent passes is convex in the times of the stages, and the same however these are ordered: it
    is least where every kind of pass is divided evenly. Then it is the longer kind with chance 1 - (1 - s)^p for a
    share s of such passes, which is s on one stage. `longer_s` (S, A): what the longer passes of a request take beyond
    the shorter ones in their place; s(b) = `share` b / (1 + `own` b), at most: of prompts one by one. Fewer of such
    passes are met more often. `late`: whether tokens wait for all of it.
    """

    longer_s: Floats
    share: float
    own: float
    stages: int
    late: bool

    def request_s(self, longer_s: Floats, last: Floats) -> Floats:
        """Seconds per request beyond one stage at batches up to `last`; they fall with the batch."""
        if self.stages == 1:
            return np.zeros(last.shape)
        share = np.minimum(self.share * last / (1 + self.own * last), 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            often = np.where(share > 0, (1 - (1 - share) ** self.stages) / share, 1.0)
        found: Floats = np.maximum(longer_s, 0.0) * (often - 1)
        return found


@dataclass(frozen=True, slots=True)
class Corners:
    """Batches and prompts in a pass, (N,), between which passes are straight, of every slab between two knots.

    Between two knots b lies between them, and the prompts k between those at its ends; over such a rectangle a pass is
    a piecewise plane f, and f / k is monotone on each piece, so that both are least at a corner of a piece.
    """

    batch: Floats
    prompts: Floats
    slabs: Rows
    of: Rows

    @classmethod
    def of_knots(cls, knots: Floats, traffic: Traffic, most: int, tokens: Floats, *, beside: bool) -> Corners:
        """Of passes with prompts beside decode, or alone, whose figures bend at some numbers of tokens."""
        ahead, behind = (slice(None, -1), slice(1, None)) if len(knots) > 1 else (slice(None), slice(None))
        each = prompts_together(knots, traffic.later_tokens, most, mixed=beside)
        low, high, fewest, many = knots[ahead], knots[behind], each[ahead], each[behind]
        found = [(b, k) for b in (low, high) for k in (fewest, many)]
        if most > 1:
            size, bend = traffic.fresh_tokens, tokens[:, None]
            for b in (low, high):
                found.append((b, np.clip((bend - b * beside) / size, fewest, many)))
                found.append((b, np.clip(bend - b * beside, fewest, many)))
            if beside:
                found += [(np.clip(bend - k * size, low, high), k) for k in (fewest, many)]
        points = np.concatenate(
            [
                np.stack(np.broadcast_arrays(np.arange(len(low)), b, k), axis=-1).reshape(-1, 3)
                for b, k in found
            ]
        )
        points = np.unique(points, axis=0)  # by slab first
        pairs, at = np.unique(points[:, 1:], axis=0, return_inverse=True)
        return cls(
            pairs[:, 0], pairs[:, 1], np.searchsorted(points[:, 0], np.arange(len(low))), at.reshape(-1)
        )

    def least(self, figures: Floats) -> Floats:
        """The least of figures (N, A) at the corners of every slab, (S, A)."""
        found: Floats = np.minimum.reduceat(figures[self.of], self.slabs, axis=0)
        return found


@dataclass(frozen=True, slots=True)
class Loop:
    """A closed loop: `clients` of an engine (infinite: of none), and seconds that a request is on its way to it."""

    clients: float = np.inf
    request_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Terms:
    """D at knots (K, A), Q and the time to first token between any two of them, (S, A) each, seconds at least.

    `within_s` (S, A): in which all tokens of a request after its first have to be made.
    """

    batch: Floats
    request_s: Floats
    decode_s: Floats
    first_s: Floats
    bubbles: Bubbles
    within_s: Floats

    def until(self, most: float) -> _Terms:
        """Those of batches up to so many, which are all that matters where no batch is larger."""
        count = len(_up_to(self.batch, most))
        if count == len(self.batch):
            return self
        slabs = max(count - 1, 1)
        return _Terms(
            self.batch[:count],
            self.request_s[:slabs],
            self.decode_s[:count],
            self.first_s[:slabs],
            replace(self.bubbles, longer_s=self.bubbles.longer_s[:slabs]),
            self.within_s[:slabs],
        )

    def best(self, passes: float, cap: Floats, first_within_s: float, loop: Loop, *, loose: bool) -> Floats:
        """Most requests per second, (A,), at batches up to `cap`, T(b) and first tokens in time.

        `loose`: or at smaller batches than those.
        """
        low, high = self.batch[:-1, None], self.batch[1:, None]
        ahead, behind = slice(None, -1), slice(1, None)
        if not len(low):
            low = high = self.batch[:, None]
            ahead = behind = slice(None)
        other, first, longer = self.request_s, self.first_s, self.bubbles.longer_s
        slope = (self.decode_s[behind] - self.decode_s[ahead]) / np.maximum(high - low, 1.0)

        def one_stage_s(last: Floats) -> Floats:
            decode = self.decode_s[ahead] + slope * (last - low)
            found: Floats = other + passes * np.minimum(self.decode_s[ahead] / low, decode / last)
            return found

        def each_s(last: Floats) -> Floats:
            found: Floats = one_stage_s(last) + self.bubbles.request_s(longer, last)
            return found

        end = np.clip(cap, low, high)
        in_time = self.within_s / (each_s if self.bubbles.late else one_stage_s)(end) * (1 + BOUND_ROUNDING)
        kept = (cap * (1 + BOUND_ROUNDING) >= low) & (in_time >= low) & (first <= first_within_s)
        end, cut = np.clip(in_time, low, end), end
        if loose:
            later = np.logical_or.accumulate(kept[::-1])[::-1]
            end[:-1] = np.where(later[1:], cut[:-1], end[:-1])  # a larger batch is in time
            kept = later
        rates = 1 / each_s(end)
        on_the_way = loop.request_s + (first if self.bubbles.late else np.zeros_like(first))
        if loop.clients < np.inf and on_the_way.any():
            # T(b) = fixed_s + b each is less than any, without what bubbles cost beyond those of the end.
            fixed_s = passes * np.maximum(self.decode_s[ahead] - slope * low, 0.0)
            straight_s = other + self.bubbles.request_s(longer, end)
            straight_s = straight_s + passes * np.minimum(slope, self.decode_s[ahead] / low)
            batch = np.clip(_balanced(fixed_s, straight_s, on_the_way, loop.clients), low, end)
            with np.errstate(divide="ignore"):
                coming = (loop.clients * (1 + SAME) - batch) / on_the_way
            rates = np.where(on_the_way > 0, np.minimum(rates, coming), rates)
        found: Floats = np.where(kept, rates, 0.0).max(axis=0)
        return found


def _balanced(fixed_s: Floats, each_s: Floats, on_the_way_s: Floats, clients: float) -> Floats:
    """The batch b at which a closed loop is in balance, b + b / T(b) F = clients, where T(b) = fixed_s + b each_s.

    The rate b / T(b) is higher only at larger batches, at which fewer clients are left to be on the way for F.
    """
    linear = fixed_s + on_the_way_s - clients * each_s
    root = np.sqrt(linear**2 + 4 * each_s * clients * fixed_s)
    # Of the two ways to write the root of the quadratic the one that does not subtract.
    with np.errstate(divide="ignore", invalid="ignore"):
        larger = np.where(linear > 0, 2 * clients * fixed_s / (linear + root), (root - linear) / (2 * each_s))
    found: Floats = np.nan_to_num(larger, nan=clients, posinf=clients)
    return found


@dataclass(frozen=True, slots=True)
class _Engine:
    """What bounds an engine: its terms, and its largest batch."""

    terms: _Terms
    most: float


def _up_to(knots: Floats, most: float) -> Floats:
    """Ascending knots up to the first that is no smaller than a batch; two of them at least, if there are two."""
    return knots[: max(int(np.searchsorted(knots, most)) + 1, 2)]
