"""All ways to serve one kind of requests that are looked at."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.cost.collectives.collective_times import send_s, tier
from phaze.cost.cost_model import CostModel
from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.link_constants import engine_links
from phaze.errors import InputError
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.cluster_network import Network
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.parallel.cluster import MOST_DEVICES, check_count
from phaze.parallel.serving.load.prompt_passes import PromptPasses, chunks_of
from phaze.parallel.serving.replicas.chip_costs import Chip, doublings
from phaze.parallel.serving.replicas.layer_grid import LEAST_CHUNK, PROMPTS, LayerGrid, Served
from phaze.parallel.serving.replicas.model_replica import Replica
from phaze.parallel.serving.replicas.replica_offers import Limits
from phaze.parallel.serving.replicas.steady_state import Cycle, Prefill
from phaze.parallel.serving.serving_plan import Policy, Role
from phaze.parallel.serving.serving_requests import ServingOptions, Targets, Traffic

_GIB = 2**30
_MOST_CHUNKS = 32  # of a prompt
_MOST_STAGES = 16
_LONG = 8192  # tokens of a context from which parts of caches are looked at unless asked for


@dataclass(frozen=True, slots=True)
class PoolChips:
    """Chips of pools that prefill and decode apart: `decode` (None: that of the other pool), and caps on their power.

    A cap is what a device may draw while it works, W. Raises InputError for one that is not above zero.
    """

    decode: Architecture | None = None
    prefill_w: float = math.inf
    decode_w: float = math.inf

    def __post_init__(self) -> None:
        """Check the caps."""
        for role in (Role.PREFILL, Role.DECODE):
            if not self.cap_w(role) > 0:
                raise InputError(
                    f"the cap of {role} devices is {self.cap_w(role):g} W; it must be above zero"
                )

    def cap_w(self, role: Role) -> float:
        """What a device of a pool may draw."""
        return self.prefill_w if role is Role.PREFILL else self.decode_w


@dataclass(frozen=True)
class ServingSpace:
    """Replica shapes, batches, chunks.

    Tensor widths that divide the heads; experts dealt among a power of two of replicas that divides their number, or
    kept by each; where a tensor group repeats key-value heads and contexts reach 8,192 tokens, that, or parts of the
    tokens of each cache on as many of its devices as save memory; powers of two and three times these as pipeline
    stages, 16 at most; up to `largest_batch` sequences a batch; prompts in 2, 4, ... 32 chunks of 128 tokens and more,
    or whole, and of these as many in a pass as come
    while it waits and 8,192 tokens hold. `known_chip`: the architecture as it is costed among others; `known_model`:
    the model as it is loaded already. `pool_chips`: pools apart, whose chips are told.
    """

    workload: str
    architecture: Architecture
    devices: int
    network: Network
    traffic: Traffic
    targets: Targets
    options: ServingOptions
    known_chip: Chip | None = None
    known_model: Served | None = None
    pool_chips: PoolChips | None = None

    def __post_init__(self) -> None:
        """Raises InputError for more devices than anybody has, and for clients of pools apart."""
        check_count(self.devices, MOST_DEVICES, "devices")
        if self.traffic.clients is not None and self.options.disaggregate:
            raise InputError(
                "separate pools for prefill and decode are planned for an arrival rate or a saturated queue, "
                "not for clients"
            )
        if self.pool_chips is not None and not self.apart:
            raise InputError(
                "chips and caps of pools are for separate pools of whole prompts: leave out --no-disaggregate, --chunk "
                "and --concurrency"
            )
        self._check_caches()

    def _check_caches(self) -> None:
        """Raises InputError for caches that the chip or its host has no room for, or no link to."""
        o = self.options
        if not (o.prefix_cache_bytes or o.host_cache_bytes or self.traffic.loaded_tokens):
            return
        table, name = to_table([self.architecture]), self.architecture.name
        room = float(hbm_capacity_bytes(table)[0]) * o.memory_share
        if o.prefix_cache_bytes >= room:
            raise InputError(
                f"a prefix cache of {o.prefix_cache_bytes / _GIB:.4g} GiB leaves nothing of the {room / _GIB:.4g} GiB "
                f"that a device of {name} has to serve from"
            )
        if not (o.host_cache_bytes or self.traffic.loaded_tokens):
            return
        if not float(table["host_bandwidth_bytes_per_s"][0]) > 0:
            raise InputError(
                f"{name} has no host_bandwidth_bytes_per_s, over which caches come from the host"
            )
        memory = float(table["host_memory_capacity_bytes"][0])
        if o.host_cache_bytes > memory:
            raise InputError(
                f"a host cache of {o.host_cache_bytes / _GIB:.4g} GiB does not fit into the {memory / _GIB:.4g} GiB of "
                f"host memory that each {name} has"
            )

    def chip_of(self, role: Role) -> Architecture:
        """The architecture of a pool."""
        other = self.pool_chips.decode if self.pool_chips is not None and role is Role.DECODE else None
        return other or self.architecture

    def pool_alone(self, role: Role, at_hz: float) -> ServingSpace:
        """The space of one of two unlike pools, on its chip at some clock."""
        return replace(self, architecture=self.chip_at(role, at_hz), known_model=self.served, pool_chips=None)

    def chip_at(self, role: Role, at_hz: float) -> Architecture:
        """The architecture of a pool at some clock, its own or one below it."""
        chip = self.chip_of(role)
        return chip if at_hz == clock_hz(chip) else chip.replace(chip.name, clock_hz=at_hz)

    @property
    def apart(self) -> bool:
        """Whether prefill and decode may have pools of their own."""
        o = self.options
        return o.disaggregate is not False and o.chunk is None and self.traffic.clients is None

    @cached_property
    def chip(self) -> Chip:
        """The architecture as it is costed."""
        if self.known_chip is not None:
            return self.known_chip
        table = to_table([self.architecture])
        return Chip.alone(CostModel(table, self.links, self.options.rung), table)

    @cached_property
    def links(self) -> Network:
        """The network as engines use it; under the calibrated fidelity with constants of the chip's family."""
        fitted = self.options.rung is Fidelity.CALIBRATED
        return engine_links(self.network, str(self.architecture.value("family")), fitted=fitted)

    @cached_property
    def limits(self) -> Limits:
        """Limits that a plan must keep."""
        capacity = float(hbm_capacity_bytes(self.chip.table)[0])
        return Limits(capacity * self.options.memory_share - self.options.prefix_cache_bytes, self.targets)

    @cached_property
    def served(self) -> Served:
        """The model, every workload of it loaded once."""
        o = self.options
        return self.known_model or Served(self.workload, o.kv_cache, o.kv_cache_format, o.recipe)

    @cached_property
    def shapes(self) -> tuple[Replica, ...]:
        """Every shape of a replica, whether or not its weights fit."""
        host, guessed = (self.options.dispatch_s, self.options.engine.overheads), self.options.speculation
        return tuple(
            Replica(grid, self.links, stages, *host, guessed, self._draft(grid.width, stages))
            for grid in self.grids
            for stages in self.depths(grid)
        )

    @cached_property
    def replicas(self) -> tuple[Replica, ...]:
        """Those of `shapes` whose devices have room for their weights; where none has, the one nearest to it."""
        room = self.limits.memory_bytes
        # Where stages as even as can be would not fit, none need be cut (which takes costs).
        spacious = [r for r in self.shapes if r.grid.weight_bytes.sum() < room * r.stages]
        fitting = [r for r in spacious if r.per_stage(r.grid.weight_bytes).max() < room]
        return tuple(fitting) or (min(self.shapes, key=lambda r: r.grid.weight_bytes.sum() / r.stages),)

    @cached_property
    def grids(self) -> tuple[LayerGrid, ...]:
        """Layers at every tensor width, number of replicas that share experts, and degree of parts of caches.

        Raises InputError where a degree of the latter is asked for that saves nothing.
        """
        asked, every = self.options.context_parallel, self._degrees
        if asked is None and self.traffic.last_context < _LONG:
            return tuple(self._grid(*degrees) for degrees in every)
        each = [self._shared(self._grid(*degrees)) for degrees in every]
        if asked is None:
            each = [shared[:1] + shared[1:][-1:] for shared in each]
        known = {grid.context_parallel for shared in each for grid in shared}
        if asked not in (None, *known):
            raise InputError(
                f"--context-parallel {asked} saves no cache of {self.workload} on {self.devices} devices: it is for "
                "tensor widths beyond the key-value heads, by powers of two, not for caches of windows or chosen keys"
            )
        wanted = (
            known if asked is None else {asked, 1} if self.apart else {asked}
        )  # prefill pools have no parts
        return tuple(grid for shared in each for grid in shared if grid.context_parallel in wanted)

    @property
    def decoding_replicas(self) -> tuple[Replica, ...]:
        """Those of `replicas` that may decode: with as many parts of caches as are asked for."""
        asked = self.options.context_parallel
        return tuple(r for r in self.replicas if asked in (None, r.grid.context_parallel))

    @staticmethod
    def _shared(grid: LayerGrid) -> list[LayerGrid]:
        """The grid, and such whose tensor groups hold parts of the tokens, as long as more parts save memory."""
        found = [grid]
        while grid.width % (2 * found[-1].context_parallel) == 0:
            shared = replace(grid, context_parallel=2 * found[-1].context_parallel)
            if not shared.saves_cache:
                break
            found.append(shared)
        return found

    @property
    def _degrees(self) -> Iterator[tuple[int, int]]:
        """Tensor widths, and replicas that share experts. InputError for requests longer than the model takes."""
        self.served.decode(self.traffic.last_context)
        workload = self.served.decode(self.traffic.prompt_tokens)
        if self.options.expert_load is not None and not workload.expert_count:
            raise InputError(
                f"{self.workload} has no experts whose load could be uneven: leave out --expert-skew"
            )
        for width in workload.tensor_parallel_widths(self.devices):
            for shared in workload.expert_parallel_divisors(self.devices // width):
                if shared.bit_count() == 1:
                    yield width, shared

    @cached_property
    def chunk_sizes(self) -> tuple[int, ...]:
        """Tokens of a prompt that a pass may take beside decode: equal parts of it; of recorded ones doubles."""
        prompt, chunk = self.traffic.longest_fresh, self.options.chunk
        if self.traffic.recorded is not None:
            sizes = doublings(LEAST_CHUNK, max(LEAST_CHUNK, self.options.engine.pass_tokens))
            asked = [chunk] if chunk is not None else [size for size in sizes if size < prompt]
            return tuple(dict.fromkeys(min(size, prompt) for size in (*asked, *([] if chunk else [prompt]))))
        if chunk is not None:
            return (-(-prompt // -(-prompt // chunk)),)
        parts = dict.fromkeys(-(-prompt // count) for count in doublings(1, _MOST_CHUNKS))
        return tuple(size for size in parts if size == prompt or size >= LEAST_CHUNK)

    def replica(self, width: int, stages: int, together: int = 1, parts: int = 1) -> Replica:
        """The shape of some degrees. StopIteration where it is none of `shapes`."""
        asked = width, stages, together, parts
        return next(
            r for r in self.shapes if (r.grid.width, r.stages, r.together, r.grid.context_parallel) == asked
        )

    @property
    def pass_sizes(self) -> tuple[int | None, ...]:
        """Prefill first (None) and chunk sizes, as far as they are asked for and the engine has the policy."""
        has, alone = self.options.engine.policies, self.options.chunk is None
        first = (None,) if alone and Policy.PREFILL_FIRST in has else ()
        return (*first, *(self.chunk_sizes if Policy.CHUNKED in has else ()))

    def cycle(self, replica: Replica, chunk: int | None) -> Cycle:
        """Chunks of a size beside decode; None: whole prompts, before anything else."""
        load, most = self.traffic_on(replica), self.most_prompts(chunk)
        size = chunk or self.traffic.longest_fresh
        if load.recorded is None:
            return Cycle(replica, load, self.batches, chunks_of(load, size), chunk is not None, most)
        passes = PromptPasses.of(load, size, self.pass_tokens(chunk))
        return Cycle(replica, load, self.batches, passes.chunks, chunk is not None, most, passes)

    def traffic_on(self, replica: Replica) -> Traffic:
        """The traffic as a replica sees it: what its prefix cache holds of recorded prompts follows from its room.

        The cache is that of a replica that sees all requests in their order.
        """
        load, o = self.traffic, self.options
        if load.recorded is None or not (o.prefix_cache_bytes or o.host_cache_bytes):
            return load
        key = replica.token_bytes
        if key not in self._hits:
            room = o.prefix_cache_bytes / key, o.host_cache_bytes / key
            held = load.recorded.with_cache(*room)
            self._hits[key] = Traffic.of(held, load.rate_per_s, load.clients, shared=o.prefix_cache_bytes > 0)
        return self._hits[key]

    @cached_property
    def _hits(self) -> dict[float, Traffic]:
        return {}

    def pass_tokens(self, chunk: int | None) -> int:
        """Prompt tokens that a pass takes in all, at most, where it takes whole prompts."""
        if chunk is not None and chunk < self.traffic.longest_fresh:
            return chunk
        return self.options.chunk or self.options.engine.pass_tokens

    def most_prompts(self, chunk: int | None) -> int:
        """Prompts that a pass takes at most: one where it takes chunks of it; of recorded ones, of mean size."""
        prompt, tokens, recorded = self.traffic.fresh_tokens, self.pass_tokens(chunk), self.traffic.recorded
        if recorded is not None:
            whole = recorded.fresh[recorded.fresh <= (chunk or self.traffic.longest_fresh)]
            prompt = max(1, round(float(whole.mean()))) if len(whole) else tokens
            return whole_prompts(prompt, tokens, self.options.largest_batch)
        if chunk is not None and chunk < prompt:
            return 1
        return whole_prompts(prompt, tokens, self.options.largest_batch)

    def decoding(self, replica: Replica) -> Cycle:
        """A replica whose prompts come from elsewhere."""
        return Cycle(replica, self.traffic_on(replica), self.batches)

    def prefilling(self, replica: Replica) -> Prefill:
        """A replica that only takes prompts: one at a time from a stream, several where all wait."""
        alone = self.traffic.rate_per_s is not None or self.traffic.recorded is not None
        return Prefill(replica, self.traffic_on(replica), (1,) if alone else tuple(doublings(1, PROMPTS)))

    def transfer_s(self, senders: int, receivers: int) -> float:
        """Seconds to hand over the cache of a prompt, on the tier that all devices span; devices send side by side."""
        links = self.chip.table["link_bandwidth_bytes_per_s"]
        bandwidth, latency_s = tier(self.links, self.links.spanned(self.devices), links)
        return float(send_s(self._prompt_bytes / min(senders, receivers), bandwidth, latency_s)[0])

    @cached_property
    def batches(self) -> NDArray[np.float64]:
        """Sequences of a batch."""
        return np.arange(1.0, self.options.largest_batch + 1)

    @cached_property
    def _prompt_bytes(self) -> float:
        """Cache of a prompt, whole, that of a draft with it."""
        models = [self.served] if self._draft_model is None else [self.served, self._draft_model]
        chains = [model.decode(self.traffic.prompt_tokens).chain(1, 1) for model in models]
        return sum(chain.layers[u].cache_bytes for chain in chains for u in chain.index)

    def _grid(self, width: int, experts: int) -> LayerGrid:
        return self._grid_of(self.served, width, experts)

    def _grid_of(self, served: Served, width: int, experts: int, verified: int = 0) -> LayerGrid:
        load, o = self.traffic, self.options
        guesses = 1 if o.speculation is None else o.speculation.tokens + 1
        sizes = (*(() if load.recorded else self.chunk_sizes), load.fresh_tokens)
        budget = max(load.longest_fresh, self.pass_tokens(None)) if load.recorded else 0
        return LayerGrid(
            served,
            self.chip,
            width,
            load,
            tuple(dict.fromkeys(sizes)),
            o.largest_batch,
            experts,
            self.most_prompts(self.chunk_sizes[0]),
            verified or guesses,
            budget,
            o.expert_load if served is self.served else None,
        )

    def _draft(self, width: int, stages: int) -> Replica | None:
        """The draft on the devices of a replica, divided as far as it can be."""
        if self._draft_model is None:
            return None
        model = self._draft_model.decode(self.traffic.prompt_tokens)
        divided = max(w for w in model.tensor_parallel_widths(width) if width % w == 0)
        return Replica(self._draft_grid(divided), self.links, stages, self.options.dispatch_s)

    def _draft_grid(self, width: int) -> LayerGrid:
        if width not in self._draft_grids and self._draft_model is not None:
            self._draft_grids[width] = self._grid_of(self._draft_model, width, 1, verified=1)
        return self._draft_grids[width]

    @cached_property
    def _draft_grids(self) -> dict[int, LayerGrid]:
        return {}

    @cached_property
    def _draft_model(self) -> Served | None:
        """The model that guesses, in its own precision; None where none does."""
        guessed = self.options.speculation
        if guessed is None or guessed.draft is None:
            return None
        return Served(guessed.draft, self.options.kv_cache, self.options.kv_cache_format)

    def depths(self, grid: LayerGrid) -> list[int]:
        """Stages of replicas: powers of two, and three times these; no more than a draft has layers."""
        layers = len(grid.base.index)
        if self._draft_model is not None:
            layers = min(layers, len(self._draft_grid(1).base.index))
        most = min(self.devices // (grid.width * grid.experts), layers, _MOST_STAGES)
        return [
            p for p in range(1, most + 1) if p.bit_count() == 1 or (p % 3 == 0 and (p // 3).bit_count() == 1)
        ]


def clock_hz(chip: Architecture) -> float:
    """Sustained clock of an architecture."""
    return float(to_table([chip])["clock_hz"][0])


def whole_prompts(prompt_tokens: int, pass_tokens: int, largest_batch: int) -> int:
    """Whole prompts that a pass of so many prompt tokens takes, one at least, and no more than decode at once."""
    return max(1, min(pass_tokens // prompt_tokens, largest_batch))
