"""Simulation of requests through the engines of a replica: a check of the steady state, and the users' latencies."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.parallel.serving.load.prompt_passes import pieces
from phaze.parallel.serving.load.recorded_load import Counts
from phaze.parallel.serving.replicas.model_replica import Chunk, Replica

Seconds = Callable[[int, int, tuple[Chunk, ...]], tuple[float, ...]]


@dataclass(frozen=True)
class Engine:
    """Engine of one replica: prompts in `chunks` (none: they come prefilled), beside decode (`mixed`) or alone.

    `places`: sequences of one engine at once, those with half a prompt included. `one_queue`: whichever engine is
    free takes the next request, as where nothing decodes; otherwise each has the requests that it was dealt.
    `most_prompts`: whole prompts that one pass takes at most. Of recorded prompts, `piece_tokens` of one at most, and
    `pass_tokens` of several that are whole.
    """

    replica: Replica
    chunks: tuple[Chunk, ...]
    mixed: bool
    places: int
    one_queue: bool = False
    most_prompts: int = 1
    piece_tokens: int = 0
    pass_tokens: int = 0


@dataclass(frozen=True)
class Requests:
    """Arrivals in s, ascending, and output tokens, (N,) each.

    Of recorded ones also tokens of each prompt, and those of them that are cached. `loads_s`: seconds on the host's
    link before a prompt may begin. `passes`: decode passes of each, where tokens are guessed.
    """

    arrivals_s: Floats
    outputs: Counts
    prompts: Counts | None = None
    cached: Counts | None = None
    loads_s: Floats | None = None
    passes: Counts | None = None


@dataclass(frozen=True)
class Simulated:
    """Request times, (N,) seconds each: when they were let in, had their first token, and their last.

    `busy_places`: sequences that decoded in a pass with decode, on average over such passes.
    """

    arrivals_s: Floats
    admitted_s: Floats
    first_s: Floats
    last_s: Floats
    outputs: NDArray[np.int64]
    busy_places: float

    @property
    def ttft_s(self) -> Floats:
        """Time to first token of every request, from arrival."""
        return self.first_s - self.arrivals_s

    @property
    def tpot_s(self) -> Floats:
        """Time per output token after the first of every request that has more than one."""
        several = self.outputs > 1
        return (self.last_s - self.first_s)[several] / (self.outputs[several] - 1)


def poisson(rate_per_s: float, count: int, output_tokens: int, seed: int) -> Requests:
    """A Poisson stream of equal requests."""
    gaps = np.random.default_rng(seed).exponential(1 / rate_per_s, count)
    return Requests(np.cumsum(gaps), np.full(count, output_tokens))


SPREAD = 0.2
"""Of outputs of clients around their mean: were all equal, those who begin together would stay together for ever."""


def closed(count: int, clients: int, output_tokens: int, seed: int) -> Requests:
    """Requests of some clients, all of whom ask at once at first, and each again as soon as it is answered.

    Outputs are drawn evenly from 80 to 120 % of their mean.
    """
    arrivals = np.full(count, np.inf)
    arrivals[:clients] = 0.0
    least, most = (round(output_tokens * (1 + side)) for side in (-SPREAD, SPREAD))
    drawn = np.random.default_rng(seed).integers(max(least, 1), most + 1, count)
    return Requests(arrivals, drawn)


def simulate(engine: Engine, requests: Requests, context: int, seed: int = 0) -> Simulated:
    """Run all requests to their end; they are dealt to the engines of the replica at random.

    `context`: tokens of a prompt in the cache when decode begins. Requests that arrive at no time of their own
    (`closed`) follow those that end, and are dealt to the engines in turn.
    """
    stages, costs = engine.replica.stages, _seconds(engine)
    requests = _guessed(engine, replace(requests, arrivals_s=requests.arrivals_s.copy()), seed)
    link = _Link(requests)
    queues = _queues(engine, requests, link, seed)
    loops = [_Loop(engine, requests, costs, *queue, link, context) for queue in queues]
    free_s, ready = [0.0] * stages, [(0.0, e) for e in range(stages)]
    while ready:
        at, number = heapq.heappop(ready)
        now = loops[number].next_start(max(at, free_s[0]))
        if now is None:
            continue
        if ready and now > max(ready[0][0], free_s[0]):  # another engine begins before this one has work
            heapq.heappush(ready, (now, number))
            continue
        now = max(now, free_s[0])
        end = now
        for stage, seconds in enumerate(loops[number].form(now)):
            end = free_s[stage] = max(end, free_s[stage]) + seconds
        loops[number].finish(end)
        heapq.heappush(ready, (end, number))
    return _gathered(requests, loops)


def _seconds(engine: Engine) -> Seconds:
    """Seconds of a pass on every stage: decoding sequences, mean context in whole tokens, chunks of prompts."""

    @cache
    def seconds(count: int, context: int, chunks: tuple[Chunk, ...]) -> tuple[float, ...]:
        return tuple(engine.replica.pass_costs(float(count), float(context), *chunks)[:, 0].tolist())

    return seconds


def _guessed(engine: Engine, requests: Requests, seed: int) -> Requests:
    """Requests with the passes that each takes, drawn where tokens are guessed."""
    guessed = engine.replica.speculation
    if guessed is None:
        return replace(requests, passes=requests.outputs - 1)
    rng = np.random.default_rng((seed, 1))
    return replace(requests, passes=guessed.drawn(requests.outputs - 1, rng))


class _Link:
    """The link to the host's memory: prefixes one after the other, in the order in which requests come."""

    def __init__(self, requests: Requests) -> None:
        self._loads_s, self._free_s = requests.loads_s, 0.0

    def ready_s(self, request: int, arrival_s: float) -> float:
        """When a request that arrives has its prefix on the device."""
        if self._loads_s is None or not self._loads_s[request]:
            return arrival_s
        self._free_s = max(self._free_s, arrival_s) + float(self._loads_s[request])
        return self._free_s


@dataclass
class _Loop:
    """The scheduler of one engine."""

    engine: Engine
    requests: Requests
    seconds: Seconds
    waiting: list[tuple[float, int]]  # a heap: when requests may begin, and they
    following: deque[int]  # requests of clients that wait for an answer
    link: _Link
    context: int
    admitted: dict[int, float] = field(default_factory=dict)
    first: dict[int, float] = field(default_factory=dict)
    last: dict[int, float] = field(default_factory=dict)
    decodes: int = 0  # passes with decode so far
    decoded: int = 0  # sequences in them
    ends: list[tuple[int, int]] = field(default_factory=list)  # (pass of the last token, request)
    cached: float = 0.0  # tokens of the decoding sequences in the cache
    growth: float = 0.0  # tokens that they get in a pass
    filling: list[int] = field(default_factory=list)  # requests whose prompts are taken
    piece: int = 0  # their next chunk
    pieces: tuple[tuple[Chunk, ...], ...] = ()  # of the passes that their prompts take
    running: tuple[bool, bool] = (False, False)  # whether this pass decodes, and whether it has a chunk

    def next_start(self, now: float) -> float | None:
        """When the next pass may begin, at `now` or later; None where nothing is left to do."""
        if self.ends or self.filling:
            return now
        return max(now, self.waiting[0][0]) if self.waiting else None

    def form(self, now: float) -> tuple[float, ...]:
        """Choose what the pass holds; its seconds on every stage."""
        self._admit(now)
        chunks = self.pieces[self.piece] if self.filling else ()
        decodes = bool(self.ends) and (self.engine.mixed or not chunks)
        self.running = decodes, bool(chunks)
        count = len(self.ends) if decodes else 0
        context = self._rounded(self.cached / count) if count else self.context
        return self.seconds(count, context, chunks)

    def _rounded(self, context: float) -> int:
        """Whole tokens; of recorded requests 128 to 255 steps of them, so that passes are alike."""
        if self.requests.prompts is None:
            return round(context)
        step = 1 << max(int(context).bit_length() - 8, 0)
        return round(context / step) * step

    def finish(self, end: float) -> None:
        """Hand out the tokens of the pass."""
        decodes, chunk = self.running
        if decodes:
            self._count_tokens(end)
        if not chunk:
            return
        self.piece += 1
        if self.piece == len(self.pieces):
            begun, self.filling, self.piece = self.filling, [], 0
            for request in begun:
                self._begin(request, end)

    def _admit(self, now: float) -> None:
        if self.filling:  # with chunks of their prompts to come
            return
        while self.waiting and self.waiting[0][0] <= now and self._fits(self.waiting[0][1]):
            if len(self.ends) + len(self.filling) >= self.engine.places:
                break
            at, request = heapq.heappop(self.waiting)
            self.admitted[request] = now
            if self.engine.chunks:
                self.filling.append(request)
            else:
                self._begin(request, at)
        if self.filling:
            self.pieces = self._pieces()

    def _fits(self, request: int) -> bool:
        """Whether a prompt goes into the pass that is made up, beside those that are in it."""
        engine = self.engine
        if self.requests.prompts is None or not self.filling:
            return len(self.filling) < engine.most_prompts
        sizes = [self._fresh(one) for one in (*self.filling, request)]
        return max(sizes) <= engine.piece_tokens and sum(sizes) <= engine.pass_tokens

    def _pieces(self) -> tuple[tuple[Chunk, ...], ...]:
        """Chunks of the passes that the filling prompts take: of one in parts, or of several, whole."""
        if self.requests.prompts is None:
            return tuple((replace(chunk, prompts=len(self.filling)),) for chunk in self.engine.chunks)
        if len(self.filling) > 1:
            return (tuple(Chunk(self._fresh(one), self._known(one)) for one in self.filling),)
        (one,) = self.filling
        parts = pieces(self._fresh(one), self.engine.piece_tokens)
        known, end = self._known(one), len(parts) - 1
        return tuple(
            (Chunk(tokens, known + before, last=at == end),) for at, (tokens, before) in enumerate(parts)
        )

    def _fresh(self, request: int) -> int:
        return self._prompt(request) - self._known(request)

    def _known(self, request: int) -> int:
        return 0 if self.requests.cached is None else int(self.requests.cached[request])

    def _prompt(self, request: int) -> int:
        return self.context if self.requests.prompts is None else int(self.requests.prompts[request])

    def _begin(self, request: int, at: float) -> None:
        """A request has its first token."""
        self.first[request] = at
        passes = self._passes(request)
        if passes == 0:
            self._end(request, at)
            return
        heapq.heappush(self.ends, (self.decodes + passes, request))
        self.cached += self._prompt(request)
        self.growth += self._later(request) / passes

    def _passes(self, request: int) -> int:
        return self._later(request) if self.requests.passes is None else int(self.requests.passes[request])

    def _later(self, request: int) -> int:
        return int(self.requests.outputs[request]) - 1

    def _end(self, request: int, at: float) -> None:
        """A request has its last token; its client asks again."""
        self.last[request] = at
        if self.following:
            following = self.following.popleft()
            arrival = at + self.engine.replica.overheads.request_s
            self.requests.arrivals_s[following] = arrival
            heapq.heappush(self.waiting, (self.link.ready_s(following, arrival), following))

    def _count_tokens(self, end: float) -> None:
        self.decodes += 1
        self.decoded += len(self.ends)
        self.cached += self.growth
        while self.ends and self.ends[0][0] <= self.decodes:
            _, request = heapq.heappop(self.ends)
            self._end(request, end)
            self.cached -= self._prompt(request) + self._later(request)
            self.growth -= self._later(request) / self._passes(request)


def _queues(
    engine: Engine, requests: Requests, link: _Link, seed: int
) -> list[tuple[list[tuple[float, int]], deque[int]]]:
    """The queue that each engine takes its requests from, and those that follow when one of its own ends."""
    stages, count = engine.replica.stages, len(requests.outputs)
    follows = ~np.isfinite(requests.arrivals_s)
    ready = [
        math.inf if later else link.ready_s(at, arrival)
        for at, (arrival, later) in enumerate(zip(requests.arrivals_s.tolist(), follows, strict=True))
    ]
    if engine.one_queue:
        queue = sorted((ready[at], at) for at in range(count))
        return [(queue, deque())] * stages
    dealt = np.random.default_rng(seed).integers(stages, size=count)
    if follows.any():
        dealt = np.arange(count) % stages

    def of(engine: int) -> tuple[list[tuple[float, int]], deque[int]]:
        now = sorted((ready[at], at) for at in np.flatnonzero((dealt == engine) & ~follows).tolist())
        return now, deque(np.flatnonzero((dealt == engine) & follows).tolist())

    return [of(e) for e in range(stages)]


def _gathered(requests: Requests, loops: list[_Loop]) -> Simulated:
    times = []
    for figure in ("admitted", "first", "last"):
        found = {request: at for loop in loops for request, at in getattr(loop, figure).items()}
        times.append(np.array([found[i] for i in range(len(requests.outputs))]))
    passes = sum(loop.decodes for loop in loops)
    places = sum(loop.decoded for loop in loops) / max(passes, 1)
    return Simulated(requests.arrivals_s, times[0], times[1], times[2], requests.outputs, places)
