"""Simulation of requests through the engines of a replica: a check of the steady state, and the users' latencies."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.errors import InputError
from phaze.parallel.cluster import check_count
from phaze.parallel.serving.model_replica import Chunk, Replica
from phaze.parallel.serving.serving_plan import Policy, Pool, Role, ServingPlan
from phaze.parallel.serving.serving_space import ServingSpace
from phaze.parallel.serving.steady_state import Cycle, chunks_of

Seconds = Callable[[int, int, int | None, int], tuple[float, ...]]


@dataclass(frozen=True)
class Engine:
    """Engine of one replica: prompts in `chunks` (none: they come prefilled), beside decode (`mixed`) or alone.

    `places`: sequences of one engine at once, those with half a prompt included. `one_queue`: whichever engine is
    free takes the next request, as where nothing decodes; otherwise each has the requests that it was dealt.
    `most_prompts`: whole prompts that one pass takes at most.
    """

    replica: Replica
    chunks: tuple[Chunk, ...]
    mixed: bool
    places: int
    one_queue: bool = False
    most_prompts: int = 1


@dataclass(frozen=True)
class Requests:
    """Arrivals in s, ascending, and output tokens, (N,) each."""

    arrivals_s: Floats
    outputs: NDArray[np.int64]


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
    requests = replace(requests, arrivals_s=requests.arrivals_s.copy())
    queues = _queues(engine, requests, seed)
    loops = [_Loop(engine, requests, costs, waiting, following, context) for waiting, following in queues]
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
    """Seconds of a pass on every stage: decoding sequences, mean context in whole tokens, chunk, prompts."""

    @cache
    def seconds(count: int, context: int, piece: int | None, prompts: int) -> tuple[float, ...]:
        chunk = None if piece is None else replace(engine.chunks[piece], prompts=prompts)
        return tuple(engine.replica.pass_costs(float(count), float(context), chunk)[:, 0].tolist())

    return seconds


@dataclass
class _Loop:
    """The scheduler of one engine."""

    engine: Engine
    requests: Requests
    seconds: Seconds
    waiting: deque[int]
    following: deque[int]  # requests of clients that wait for an answer
    context: int
    admitted: dict[int, float] = field(default_factory=dict)
    first: dict[int, float] = field(default_factory=dict)
    last: dict[int, float] = field(default_factory=dict)
    decodes: int = 0  # passes with decode so far
    decoded: int = 0  # sequences in them
    ends: list[tuple[int, int]] = field(default_factory=list)  # (pass of the last token, request)
    cached: int = 0  # tokens of the decoding sequences in the cache
    filling: list[int] = field(default_factory=list)  # requests whose prompts are taken
    piece: int = 0  # their next chunk
    running: tuple[bool, bool] = (False, False)  # whether this pass decodes, and whether it has a chunk

    def next_start(self, now: float) -> float | None:
        """When the next pass may begin, at `now` or later; None where nothing is left to do."""
        if self.ends or self.filling:
            return now
        return max(now, float(self.requests.arrivals_s[self.waiting[0]])) if self.waiting else None

    def form(self, now: float) -> tuple[float, ...]:
        """Choose what the pass holds; its seconds on every stage."""
        self._admit(now)
        piece = self.piece if self.filling else None
        decodes = bool(self.ends) and (self.engine.mixed or piece is None)
        self.running = decodes, piece is not None
        count = len(self.ends) if decodes else 0
        context = round(self.cached / count) if count else self.context
        return self.seconds(count, context, piece, len(self.filling))

    def finish(self, end: float) -> None:
        """Hand out the tokens of the pass."""
        decodes, chunk = self.running
        if decodes:
            self._count_tokens(end)
        if not chunk:
            return
        self.piece += 1
        if self.piece == len(self.engine.chunks):
            begun, self.filling, self.piece = self.filling, [], 0
            for request in begun:
                self._begin(request, end)

    def _admit(self, now: float) -> None:
        if self.filling:  # with chunks of their prompts to come
            return
        while self.waiting and len(self.filling) < self.engine.most_prompts:
            if len(self.ends) + len(self.filling) >= self.engine.places:
                return
            if self.requests.arrivals_s[self.waiting[0]] > now:
                return
            request = self.waiting.popleft()
            self.admitted[request] = now
            if self.engine.chunks:
                self.filling.append(request)
            else:
                self._begin(request, float(self.requests.arrivals_s[request]))

    def _begin(self, request: int, at: float) -> None:
        """A request has its first token."""
        self.first[request] = at
        left = int(self.requests.outputs[request]) - 1
        if left == 0:
            self._end(request, at)
            return
        heapq.heappush(self.ends, (self.decodes + left, request))
        self.cached += self.context

    def _end(self, request: int, at: float) -> None:
        """A request has its last token; its client asks again."""
        self.last[request] = at
        if self.following:
            following = self.following.popleft()
            self.requests.arrivals_s[following] = at + self.engine.replica.overheads.request_s
            self.waiting.append(following)

    def _count_tokens(self, end: float) -> None:
        self.decodes += 1
        self.decoded += len(self.ends)
        self.cached += len(self.ends)
        while self.ends and self.ends[0][0] <= self.decodes:
            _, request = heapq.heappop(self.ends)
            self._end(request, end)
            self.cached -= self.context + int(self.requests.outputs[request]) - 1


def _queues(engine: Engine, requests: Requests, seed: int) -> list[tuple[deque[int], deque[int]]]:
    """The queue that each engine takes its requests from, and those that follow when one of its own ends."""
    stages, count = engine.replica.stages, len(requests.outputs)
    if engine.one_queue:
        return [(deque(range(count)), deque())] * stages
    follows = ~np.isfinite(requests.arrivals_s)
    dealt = np.random.default_rng(seed).integers(stages, size=count)
    if follows.any():
        dealt = np.arange(count) % stages

    def of(engine: int, some: NDArray[np.bool_]) -> deque[int]:
        return deque(np.flatnonzero((dealt == engine) & some).tolist())

    return [(of(e, ~follows), of(e, follows)) for e in range(stages)]


def _gathered(requests: Requests, loops: list[_Loop]) -> Simulated:
    times = []
    for figure in ("admitted", "first", "last"):
        found = {request: at for loop in loops for request, at in getattr(loop, figure).items()}
        times.append(np.array([found[i] for i in range(len(requests.outputs))]))
    passes = sum(loop.decodes for loop in loops)
    places = sum(loop.decoded for loop in loops) / max(passes, 1)
    return Simulated(requests.arrivals_s, times[0], times[1], times[2], requests.outputs, places)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds over requests: the mean, the median, and what nine and 99 in a hundred stay below."""

    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float

    @classmethod
    def of(cls, seconds: NDArray[np.float64]) -> Percentiles:
        """Percentiles of some requests."""
        return cls(float(seconds.mean()), *np.percentile(seconds, (50, 90, 99)).tolist())


@dataclass(frozen=True, slots=True)
class Trial:
    """Simulated latencies of `requests` requests."""

    requests: int
    ttft: Percentiles
    tpot: Percentiles


MOST_REQUESTS = 10**6
"""Of a simulation, which takes minutes for them."""


def trial(plan: ServingPlan, space: ServingSpace, requests: int, seed: int = 0) -> Trial:
    """Run one replica of every pool under its share of the arrival rate.

    A decode pool is fed a Poisson stream of its own, as the mixed output of several prefill replicas nearly is.
    Of clients the replica has its share, rounded up; that all ask at once in the beginning is a part of it.
    Raises InputError with neither an arrival rate nor clients, or for more than a million requests.
    """
    if space.traffic.rate_per_s is None and space.traffic.clients is None:
        raise InputError("a simulation needs an arrival rate or a number of clients")
    check_count(requests, MOST_REQUESTS, "requests to simulate")
    runs = [_run(pool, plan, space, requests, seed + i) for i, pool in enumerate(plan.pools)]
    tokens = runs[-1].tpot_s + plan.transfer_s / space.traffic.passes
    first = runs[0].ttft_s + space.options.engine.request_s
    return Trial(requests, Percentiles.of(first), Percentiles.of(tokens))


def _run(pool: Pool, plan: ServingPlan, space: ServingSpace, requests: int, seed: int) -> Simulated:
    engine = _engine(pool, plan, space)
    outputs = 1 if pool.role is Role.PREFILL else space.traffic.output_tokens
    clients = space.traffic.clients
    stream = (
        poisson(plan.requests_per_s / pool.replicas, requests, outputs, seed)
        if clients is None
        else closed(requests, -(-clients // pool.replicas), outputs, seed)
    )
    return simulate(engine, stream, space.traffic.prompt_tokens, seed)


def _engine(pool: Pool, plan: ServingPlan, space: ServingSpace) -> Engine:
    """The engine of a pool, with as many places as memory has room for."""
    replica = space.replica(pool.tensor_parallel, pool.pipeline_parallel, pool.expert_parallel)
    chunks = () if pool.role is Role.DECODE else chunks_of(space.traffic, plan.chunk_tokens)
    mixed = plan.policy is Policy.CHUNKED
    if pool.role is Role.PREFILL:
        return Engine(replica, chunks, mixed, 1, one_queue=True)
    most = plan.prompts_per_pass if pool.role is Role.BOTH else 1
    cycle = Cycle(replica, space.traffic, space.batches, chunks, mixed, most)
    fits = cycle.memory(space.batches * replica.stages).total_bytes <= space.limits.memory_bytes
    return Engine(replica, chunks, mixed, int(np.flatnonzero(fits).max()) + 1, most_prompts=most)
