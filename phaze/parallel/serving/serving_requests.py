"""Requests to a serving cluster: traffic, latency targets, and the options of its software."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from phaze.cost.fidelity import Fidelity
from phaze.errors import InputError
from phaze.parallel.serving.load.recorded_load import RecordedLoad
from phaze.parallel.serving.load.speculation import Speculation
from phaze.parallel.serving.serving_engine import NO_ENGINE, ServingEngine
from phaze.workload.expert_load import ExpertLoad
from phaze.workload.operators.kv_cache import CacheFormat, KvCache
from phaze.workload.operators.low_precision import Recipe


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests of one kind: `prompt_tokens` in, `output_tokens` out, the first of them made by the prefill.

    `rate_per_s`: requests per second of a Poisson stream to all devices together (an open loop). `clients`: so many
    ask all devices together, each again as soon as it is answered (a closed loop). None of both: as many as can be
    served (somebody always waits). `cached_tokens`: of a prompt that the prefix cache holds, so that they are not
    computed; `loaded_tokens`: of these, read from the host's memory. `shared`: whether sequences keep only what lies
    beyond their prefix, which the cache keeps for all of them. `recorded`: requests of many kinds, of which the sizes
    are the means. Raises InputError for fewer than one prompt or two output tokens, or for both loops.
    """

    prompt_tokens: int
    output_tokens: int
    rate_per_s: float | None = None
    clients: int | None = None
    cached_tokens: int = 0
    loaded_tokens: int = 0
    shared: bool = False
    recorded: RecordedLoad | None = None

    def __post_init__(self) -> None:
        """Check the sizes."""
        if self.prompt_tokens < 1:
            raise InputError(f"prompt_tokens is {self.prompt_tokens}; it must be at least 1")
        if self.output_tokens < 2 and self.recorded is None:
            raise InputError(
                f"output_tokens is {self.output_tokens}; it must be at least 2, "
                "for the first is made by the prefill"
            )
        if self.rate_per_s is not None and not 0 < self.rate_per_s < math.inf:
            raise InputError(f"rate_per_s is {self.rate_per_s:g}; it must be a number greater than zero")
        if self.clients is not None and self.clients < 1:
            raise InputError(f"clients is {self.clients}; it must be at least 1")
        if self.clients is not None and self.rate_per_s is not None:
            raise InputError("requests arrive at a rate or from a number of clients, not both")
        if not 0 <= self.loaded_tokens <= self.cached_tokens < self.prompt_tokens:
            raise InputError(
                f"{self.cached_tokens} tokens of a prompt of {self.prompt_tokens} are cached, {self.loaded_tokens} of "
                "them at the host; one at least is computed"
            )

    @classmethod
    def of(
        cls,
        recorded: RecordedLoad,
        rate_per_s: float | None = None,
        clients: int | None = None,
        *,
        shared: bool = False,
    ) -> Traffic:
        """Traffic of recorded requests; without a rate or clients at the rate of their arrivals, if these are told."""
        if rate_per_s is None and clients is None:
            rate_per_s = recorded.rate_per_s
        prompts, outputs = (round(float(n.mean())) for n in (recorded.prompts, recorded.outputs))
        cached = min(round(float(recorded.cached.mean())), prompts - 1)
        loaded = min(round(float(recorded.loaded.mean())), cached)
        return cls(prompts, outputs, rate_per_s, clients, cached, loaded, shared, recorded)

    @property
    def fresh_tokens(self) -> int:
        """Tokens of a prompt that are computed."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def known_shares(self) -> tuple[float, float]:
        """Shares of prompt tokens that are cached, and that are read from the host among them."""
        if self.recorded is None:
            return self.cached_tokens / self.prompt_tokens, self.loaded_tokens / self.prompt_tokens
        whole = float(self.recorded.prompts.sum())
        return float(self.recorded.cached.sum()) / whole, float(self.recorded.loaded.sum()) / whole

    @property
    def mean_piece(self) -> tuple[int, int]:
        """Tokens of a prompt that are computed, and those before them, for as much attention as on average."""
        if self.recorded is None:
            return self.fresh_tokens, self.cached_tokens
        fresh, cached = self.recorded.fresh, self.recorded.cached
        mean = max(1, round(float(fresh.mean())))
        attended = float(np.average(cached + fresh / 2, weights=fresh))
        return mean, max(0, round(attended - mean / 2))

    @property
    def longest_fresh(self) -> int:
        """Tokens of the longest prompt that may have to be computed; of recorded ones, were nothing cached."""
        return self.fresh_tokens if self.recorded is None else int(self.recorded.prompts.max())

    @property
    def mean_outputs(self) -> float:
        """Tokens of an answer, on average."""
        return self.output_tokens if self.recorded is None else float(self.recorded.outputs.mean())

    @property
    def later_tokens(self) -> float:
        """Tokens of an answer after its first, on average: each is made by a decode pass of its own, unless guessed."""
        return self.mean_outputs - 1

    @property
    def last_context(self) -> int:
        """Tokens in the cache before the last decode pass, of the longest request."""
        if self.recorded is not None:
            return self.recorded.longest_context
        return self.prompt_tokens + self.output_tokens - 2

    @property
    def mean_context(self) -> float:
        """Tokens in the cache before a decode pass, on average over the passes of all requests."""
        if self.recorded is not None:
            return self.recorded.mean_context
        return (self.prompt_tokens + self.last_context) / 2

    @property
    def contexts(self) -> tuple[int, ...]:
        """Tokens in the cache at which decode is costed: before the first and the last pass; of many kinds, between."""
        if self.recorded is None:
            return tuple(sorted({self.prompt_tokens, self.last_context}))
        found = [min(_SHORTEST, int(self.recorded.prompts.min()))]
        while found[-1] * 2 < self.last_context:
            found.append(found[-1] * 4)
        return (*(n for n in found if n < self.last_context), self.last_context)

    def decode_passes(self, speculation: Speculation | None) -> float:
        """Decode passes of a request, on average."""
        if speculation is None:
            return self.later_tokens
        if self.recorded is None:
            return speculation.passes(self.output_tokens - 1)
        tokens, counts = np.unique(self.recorded.later, return_counts=True)
        return float(np.average([speculation.passes(n) for n in tokens.tolist()], weights=counts))


_SHORTEST = 128
"""Tokens of a context from which decode is costed where requests are of many kinds."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Latency that users accept, on average over requests: time to first token, time per output token after it.

    Raises InputError for what is not greater than zero.
    """

    ttft_s: float = math.inf
    tpot_s: float = math.inf

    def __post_init__(self) -> None:
        """Check the targets."""
        for name in ("ttft_s", "tpot_s"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name):g}; it must be greater than zero")


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """Options of the serving software, and the choices of the search.

    `kv_cache_format`, `recipe`: formats of the cache and of linear layers (None: the model's own).
    `chunk`: prompt tokens that an iteration takes beside the decoding sequences (None: the best of all, whole
    prompts on their own among them). `disaggregate`: prefill and decode on pools of their own (None: the better).
    `dispatch_s`: host time per kernel; a pass is never faster than its kernels are dispatched. `memory_share`:
    of device memory that weights, cache and activations may take (0.9 is vLLM's default; the rest is for
    context, graphs and fragments). `largest_batch`: sequences that one iteration decodes at most. `engine`: what it
    adds to passes, the prompt tokens that one takes, and the policies it has. `speculation`: tokens that a draft
    guesses. `prefix_cache_bytes`, `host_cache_bytes`: of a device's memory, and of its share of the host's, for
    beginnings of prompts. `expert_load`: of the model's experts, where tokens want some more than others (None: evenly;
    those of a draft always are). `context_parallel`: devices of a tensor group that hold the cache of a part of the
    tokens each (None: the best). Raises InputError for values that make no sense.
    """

    kv_cache: KvCache = KvCache.PAGED
    kv_cache_format: CacheFormat | None = None
    recipe: Recipe | None = None
    chunk: int | None = None
    disaggregate: bool | None = None
    dispatch_s: float = 0.0
    memory_share: float = 0.9
    largest_batch: int = 512
    rung: Fidelity = Fidelity.ANALYTIC
    engine: ServingEngine = NO_ENGINE
    speculation: Speculation | None = None
    prefix_cache_bytes: float = 0.0
    host_cache_bytes: float = 0.0
    expert_load: ExpertLoad | None = None
    context_parallel: int | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        sizes = ("chunk", self.chunk), ("largest_batch", self.largest_batch)
        for name, value in (*sizes, ("context_parallel", self.context_parallel)):
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1")
        if not 0 < self.memory_share <= 1:
            raise InputError(f"memory_share is {self.memory_share:g}; it must be above 0 and at most 1")
        if not 0 <= self.dispatch_s < math.inf:
            raise InputError(f"dispatch_s is {self.dispatch_s:g}; it must be a time of at least zero")
        for name in ("prefix_cache_bytes", "host_cache_bytes"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} is {getattr(self, name):g}; it must be a size of at least zero")
        if self.chunk is not None and self.disaggregate:
            raise InputError(
                "a chunk is for prefill beside decode: it cannot be combined with disaggregation"
            )
