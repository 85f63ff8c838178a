"""Requests to a serving cluster: traffic, latency targets, and the options of its software."""

from __future__ import annotations

import math
from dataclasses import dataclass

from phaze.cost.fidelity import Fidelity
from phaze.errors import InputError
from phaze.parallel.serving.serving_engine import NO_ENGINE, ServingEngine
from phaze.workload.operators.kv_cache import CacheFormat, KvCache
from phaze.workload.operators.low_precision import Recipe


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests of one kind: `prompt_tokens` in, `output_tokens` out, the first of them made by the prefill.

    `rate_per_s`: requests per second of a Poisson stream to all devices together (an open loop). `clients`: so many
    ask all devices together, each again as soon as it is answered (a closed loop). None of both: as many as can be
    served (somebody always waits). Raises InputError for fewer than one prompt or two output tokens, or for both loops.
    """

    prompt_tokens: int
    output_tokens: int
    rate_per_s: float | None = None
    clients: int | None = None

    def __post_init__(self) -> None:
        """Check the sizes."""
        if self.prompt_tokens < 1:
            raise InputError(f"prompt_tokens is {self.prompt_tokens}; it must be at least 1")
        if self.output_tokens < 2:
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

    @property
    def passes(self) -> int:
        """Decode passes of a request: one for every token but the first."""
        return self.output_tokens - 1

    @property
    def last_context(self) -> int:
        """Tokens in the cache before the last decode pass."""
        return self.prompt_tokens + self.passes - 1

    @property
    def mean_context(self) -> float:
        """Tokens in the cache before a decode pass, on average over the passes of a request."""
        return (self.prompt_tokens + self.last_context) / 2


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
    adds to passes, the prompt tokens that one takes, and the policies it has.
    Raises InputError for values that make no sense.
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

    def __post_init__(self) -> None:
        """Check the values."""
        for name, value in (("chunk", self.chunk), ("largest_batch", self.largest_batch)):
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1")
        if not 0 < self.memory_share <= 1:
            raise InputError(f"memory_share is {self.memory_share:g}; it must be above 0 and at most 1")
        if not 0 <= self.dispatch_s < math.inf:
            raise InputError(f"dispatch_s is {self.dispatch_s:g}; it must be a time of at least zero")
        if self.chunk is not None and self.disaggregate:
            raise InputError(
                "a chunk is for prefill beside decode: it cannot be combined with disaggregation"
            )
