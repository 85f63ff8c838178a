"""The answer: how to serve a model, and what that gives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Policy(StrEnum):
    """Batching policy: the passes that an iteration of the engine may hold."""

    PREFILL_FIRST = "prefill first"  # a prompt on its own as soon as there is room, decode waits (Orca, vLLM)
    CHUNKED = "chunked prefill"  # a chunk of a prompt beside the decoding sequences (Sarathi-Serve)
    DISAGGREGATED = "disaggregated"  # prompts and tokens on devices of their own (Splitwise, DistServe)


class Binding(StrEnum):
    """Binding limit, which keeps a plan from serving more."""

    MEMORY = "cache memory"  # no room for the cache of one sequence more
    TTFT = "time to first token"
    TPOT = "time per output token"
    CHUNKS = "prefill"  # every pass has its chunk already
    BATCH = "largest batch"  # of the engine
    POWER = "power"  # a device would draw more than the cap of its pool
    LOAD = "arrival rate"  # fewer replicas could not keep up, or one is enough
    NOTHING = "throughput"  # a larger batch would not serve more


class Role(StrEnum):
    """Role of the devices of a pool."""

    BOTH = "prefill and decode"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class Pool:
    """Equal replicas of the model; figures per replica, memory of its fullest device.

    `batch`: sequences of one decode pass, or prompts of one prefill pass, on average; `sequences`: that the
    replica works on at once (`pipeline_parallel` batches are in flight). `expert_parallel`: replicas that share the
    experts of a model, side by side, each with sequences of its own; `redundant_experts`: copies that they keep of the
    `experts` of a layer, all together. `context_parallel`: devices of a tensor group that hold parts of each cache.
    `chip`, `clock_hz`: the architecture, and its clock. `drawn_w`: of a device, on average; `energy_per_token_j`: of
    the pool, for an output token.
    """

    role: Role
    replicas: int
    tensor_parallel: int
    pipeline_parallel: int
    batch: float
    sequences: float
    weight_bytes: float
    cache_bytes: float
    working_bytes: float
    expert_parallel: int = 1
    experts: int = 0
    redundant_experts: int = 0
    context_parallel: int = 1
    chip: str = ""
    clock_hz: float = 0.0
    drawn_w: float = 0.0
    energy_per_token_j: float = 0.0

    @property
    def devices(self) -> int:
        """Devices of the pool."""
        return self.replicas * self.tensor_parallel * self.pipeline_parallel

    @property
    def memory_bytes(self) -> float:
        """All that lies on the fullest device."""
        return self.weight_bytes + self.cache_bytes + self.working_bytes


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """Serving plan of a model on a cluster.

    `chunk_tokens`: tokens that one pass takes of a prompt (all of it unless chunked), `prompts_per_pass`: of so many
    prompts at most. `ttft_s`: time to first token on
    average: with an arrival rate from arrival on, otherwise from the moment there is room for the request;
    `waiting_s` is the part of it before the prefill begins. `tpot_s`: time per output token after the first, on
    average; `longest_gap_s`: the longest pass between two tokens. `transfer_s`: cache of a prompt from pool to pool,
    a part of `tpot_s`. `requests_per_s`, `tokens_per_s` (output tokens): of all devices.
    `energy_per_token_j`: all devices in use, per output token. `prefill_mfu`: model FLOPs of a prompt over the
    peak during its prefill pass. `devices_given`: idle ones included. `cached_share`: of prompt tokens that are found
    in the prefix cache, those that the host holds (`loaded_share`) among them. `tokens_per_pass`: output tokens that a
    decode pass makes of a sequence, guessed ones among them.
    """

    policy: Policy
    pools: tuple[Pool, ...]
    chunk_tokens: int
    ttft_s: float
    waiting_s: float
    tpot_s: float
    longest_gap_s: float
    transfer_s: float
    requests_per_s: float
    tokens_per_s: float
    energy_per_token_j: float
    prefill_mfu: float
    devices_given: int
    binding: Binding
    prompts_per_pass: int = 1
    cached_share: float = 0.0
    loaded_share: float = 0.0
    tokens_per_pass: float = 1.0

    @property
    def devices(self) -> int:
        """Devices in use."""
        return sum(pool.devices for pool in self.pools)

    @property
    def tokens_per_s_per_device(self) -> float:
        """Output tokens per second of a device in use."""
        return self.tokens_per_s / self.devices
