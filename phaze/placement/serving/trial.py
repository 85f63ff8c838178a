"""A plan put to the test: a Poisson stream through the simulator, and the latencies that users see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.errors import InputError
from phaze.placement.cluster import check_count
from phaze.placement.serving.plan import Policy, Pool, Role, ServingPlan
from phaze.placement.serving.simulate import Engine, Simulated, poisson, simulate
from phaze.placement.serving.space import ServingSpace
from phaze.placement.serving.steady import Cycle, chunks_of


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds over requests: the mean, the median, and what nine and 99 in a hundred stay below."""

    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float

    @classmethod
    def of(cls, seconds: NDArray[np.float64]) -> Percentiles:
        """Those of some requests."""
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
    Raises InputError without an arrival rate, or for more than a million requests.
    """
    if space.traffic.rate_per_s is None:
        raise InputError("a simulation needs an arrival rate")
    check_count(requests, MOST_REQUESTS, "requests to simulate")
    runs = [_run(pool, plan, space, requests, seed + i) for i, pool in enumerate(plan.pools)]
    tokens = runs[-1].tpot_s + plan.transfer_s / space.traffic.passes
    return Trial(requests, Percentiles.of(runs[0].ttft_s), Percentiles.of(tokens))


def _run(pool: Pool, plan: ServingPlan, space: ServingSpace, requests: int, seed: int) -> Simulated:
    engine = _engine(pool, plan, space)
    outputs = 1 if pool.role is Role.PREFILL else space.traffic.output_tokens
    stream = poisson(plan.requests_per_s / pool.replicas, requests, outputs, seed)
    return simulate(engine, stream, space.traffic.prompt_tokens, seed)


def _engine(pool: Pool, plan: ServingPlan, space: ServingSpace) -> Engine:
    """The engine of a pool, with as many places as memory has room for."""
    replica = space.replica(pool.tensor_parallel, pool.pipeline_parallel)
    chunks = () if pool.role is Role.DECODE else chunks_of(space.traffic, plan.chunk_tokens)
    mixed = plan.policy is Policy.CHUNKED
    if pool.role is Role.PREFILL:
        return Engine(replica, chunks, mixed, 1, one_queue=True)
    cycle = Cycle(replica, space.traffic, space.batches, chunks, mixed)
    fits = cycle.memory(space.batches * replica.stages).total_bytes <= space.limits.memory_bytes
    return Engine(replica, chunks, mixed, int(np.flatnonzero(fits).max()) + 1)
