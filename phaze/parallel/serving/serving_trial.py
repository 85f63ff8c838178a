"""Trial of a plan: requests of a stream, of clients or of a record through one replica of every pool of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.errors import InputError
from phaze.parallel.cluster import check_count
from phaze.parallel.serving.replicas.model_replica import Replica
from phaze.parallel.serving.replicas.steady_state import load_seconds
from phaze.parallel.serving.request_simulation import (
    Engine,
    Requests,
    Simulated,
    closed,
    poisson,
    simulate,
)
from phaze.parallel.serving.serving_plan import Policy, Pool, Role, ServingPlan
from phaze.parallel.serving.serving_requests import Traffic
from phaze.parallel.serving.serving_space import ServingSpace


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
    tokens = runs[-1].tpot_s + plan.transfer_s / space.traffic.later_tokens
    first = runs[0].ttft_s + space.options.engine.request_s
    return Trial(requests, Percentiles.of(first), Percentiles.of(tokens))


def _run(pool: Pool, plan: ServingPlan, space: ServingSpace, requests: int, seed: int) -> Simulated:
    if space.pool_chips is not None:
        space = space.pool_alone(pool.role, pool.clock_hz)
    engine = _engine(pool, plan, space)
    stream = _stream(pool, plan, space, requests, seed)
    if pool.role is Role.PREFILL:
        stream = replace(stream, outputs=np.ones_like(stream.outputs))
    if pool.role is not Role.DECODE:
        stream = replace(stream, loads_s=_loads(engine.replica, space, requests, pool.replicas))
    return simulate(engine, stream, space.traffic.prompt_tokens, seed)


def _stream(pool: Pool, plan: ServingPlan, space: ServingSpace, requests: int, seed: int) -> Requests:
    """Requests of one replica of a pool."""
    load = space.traffic
    if load.recorded is not None:
        replica = _replica(pool, space)
        return replayed(space.traffic_on(replica), requests, pool.replicas)
    if load.clients is None:
        return poisson(plan.requests_per_s / pool.replicas, requests, load.output_tokens, seed)
    return closed(requests, -(-load.clients // pool.replicas), load.output_tokens, seed)


def replayed(load: Traffic, requests: int, replicas: int) -> Requests:
    """Recorded requests as one of some replicas has them, dealt in turn; from the beginning again where they end.

    Arrivals are stretched to the rate of the load. Clients ask for one after the other.
    """
    recorded = load.recorded
    if recorded is None:
        msg = "no requests are recorded"
        raise ValueError(msg)
    count, every = len(recorded.prompts), np.arange(requests) * replicas
    at, lap = every % count, every // count
    outputs, prompts, cached = recorded.outputs[at], recorded.prompts[at], recorded.cached[at]
    if load.clients is not None:
        arrivals = np.where(np.arange(requests) < -(-load.clients // replicas), 0.0, np.inf)
    elif recorded.arrivals_s is not None and load.rate_per_s is not None:
        since = recorded.arrivals_s - recorded.arrivals_s[0]
        span = since[-1] * count / (count - 1)
        arrivals = (since[at] + lap * span) * (count / span / load.rate_per_s)
    else:
        return replace(
            poisson((load.rate_per_s or 1.0) / replicas, requests, 2, 0),
            outputs=outputs,
            prompts=prompts,
            cached=cached,
        )
    return Requests(arrivals, outputs, prompts, cached)


def _loads(replica: Replica, space: ServingSpace, requests: int, replicas: int) -> Floats | None:
    """Seconds of each request on the host's link."""
    load = space.traffic_on(replica)
    if not load.loaded_tokens:
        return None
    if load.recorded is None:
        return load_seconds(replica, np.full(requests, float(load.loaded_tokens)))
    at = np.arange(requests) * replicas % len(load.recorded.prompts)
    return load_seconds(replica, load.recorded.loaded[at].astype(np.float64))


def _replica(pool: Pool, space: ServingSpace) -> Replica:
    degrees = pool.tensor_parallel, pool.pipeline_parallel, pool.expert_parallel, pool.context_parallel
    return space.replica(*degrees)


def _engine(pool: Pool, plan: ServingPlan, space: ServingSpace) -> Engine:
    """The engine of a pool, with as many places as memory has room for."""
    replica = _replica(pool, space)
    chunk = plan.chunk_tokens if plan.policy is Policy.CHUNKED else None
    if pool.role is Role.PREFILL:
        passes = space.prefilling(replica).passes_of
        return Engine(replica, passes.chunks, False, 1, one_queue=True, piece_tokens=plan.chunk_tokens)
    cycle = space.decoding(replica) if pool.role is Role.DECODE else space.cycle(replica, chunk)
    fits = cycle.memory(space.batches * replica.stages).total_bytes <= space.limits.memory_bytes
    return Engine(
        replica,
        cycle.chunks,
        cycle.mixed,
        int(np.flatnonzero(fits).max()) + 1,
        most_prompts=cycle.most_prompts,
        piece_tokens=plan.chunk_tokens,
        pass_tokens=space.pass_tokens(chunk),
    )
