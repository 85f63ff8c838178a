"""All ways to serve one kind of requests that are looked at."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.cost.collective_times import send_s, tier
from phaze.cost.cost_model import CostModel
from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.link_constants import with_engine_laws
from phaze.errors import InputError
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.cluster_network import Network
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.parallel.cluster import MOST_DEVICES, check_count
from phaze.parallel.serving.layer_grid import (
    LEAST_CHUNK,
    PROMPTS,
    Chip,
    LayerGrid,
    Served,
    doublings,
)
from phaze.parallel.serving.model_replica import Chunk, Replica
from phaze.parallel.serving.replica_offers import Limits
from phaze.parallel.serving.serving_plan import Policy
from phaze.parallel.serving.serving_requests import ServingOptions, Targets, Traffic
from phaze.parallel.serving.steady_state import Cycle, Prefill, chunks_of

_MOST_CHUNKS = 32  # of a prompt
_MOST_STAGES = 16


@dataclass(frozen=True)
class ServingSpace:
    """Replica shapes, batches, chunks.

    Tensor widths that divide the heads; experts dealt among a power of two of replicas that divides their number, or
    kept by each; powers of two and three times these as pipeline stages, 16 at most; up to `largest_batch` sequences a
    batch; prompts in 2, 4, ... 32 chunks of 128 tokens and more, or whole, and of these as many in a pass as come
    while it waits and 8,192 tokens hold. `known_chip`: the architecture as it is costed among others; `known_model`:
    the model as it is loaded already.
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

    def __post_init__(self) -> None:
        """Raises InputError for more devices than anybody has, and for clients of pools apart."""
        check_count(self.devices, MOST_DEVICES, "devices")
        if self.traffic.clients is not None and self.options.disaggregate:
            raise InputError(
                "separate pools for prefill and decode are planned for an arrival rate or a saturated queue, "
                "not for clients"
            )

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
        """The network; under the calibrated fidelity with constants of the chip's family and of engines' kernels."""
        if self.options.rung is not Fidelity.CALIBRATED:
            return self.network
        return with_engine_laws(self.network, str(self.architecture.value("family")))

    @cached_property
    def limits(self) -> Limits:
        """Limits that a plan must keep."""
        capacity = float(hbm_capacity_bytes(self.chip.table)[0])
        return Limits(capacity * self.options.memory_share, self.targets)

    @cached_property
    def served(self) -> Served:
        """The model, every workload of it loaded once."""
        o = self.options
        return self.known_model or Served(self.workload, o.kv_cache, o.kv_cache_format, o.recipe)

    @cached_property
    def replicas(self) -> tuple[Replica, ...]:
        """Every shape of a replica whose devices have room for its weights; where none has, the one nearest to it."""
        shapes = [
            Replica(grid, self.links, stages, self.options.dispatch_s, self.options.engine.overheads)
            for grid in self.grids
            for stages in self.depths(grid)
        ]
        room = self.limits.memory_bytes
        # Where stages as even as can be would not fit, none need be cut (which takes costs).
        spacious = [r for r in shapes if r.grid.weight_bytes.sum() < room * r.stages]
        fitting = [r for r in spacious if r.per_stage(r.grid.weight_bytes).max() < room]
        return tuple(fitting) or (min(shapes, key=lambda r: r.grid.weight_bytes.sum() / r.stages),)

    @cached_property
    def grids(self) -> tuple[LayerGrid, ...]:
        """Layers at every tensor width and every number of replicas that share experts."""
        return tuple(itertools.starmap(self._grid, self._degrees))

    @property
    def _degrees(self) -> Iterator[tuple[int, int]]:
        """Tensor widths, and replicas that share experts."""
        workload = self.served.decode(self.traffic.prompt_tokens)
        for width in workload.tensor_parallel_widths(self.devices):
            for shared in workload.expert_parallel_divisors(self.devices // width):
                if shared.bit_count() == 1:
                    yield width, shared

    @cached_property
    def chunk_sizes(self) -> tuple[int, ...]:
        """Tokens of a prompt that a pass may take beside decode; equal parts of the prompt."""
        prompt = self.traffic.prompt_tokens
        if self.options.chunk is not None:
            return (-(-prompt // -(-prompt // self.options.chunk)),)
        sizes = dict.fromkeys(-(-prompt // count) for count in doublings(1, _MOST_CHUNKS))
        return tuple(size for size in sizes if size == prompt or size >= LEAST_CHUNK)

    def replica(self, width: int, stages: int, together: int = 1) -> Replica:
        """The shape of some degrees. StopIteration where it is none of `replicas`."""
        asked = width, stages, together
        return next(r for r in self.replicas if (r.grid.width, r.stages, r.together) == asked)

    def cycles(self, replica: Replica) -> Iterator[tuple[int | None, Cycle]]:
        """Prefill first (None) and every chunk size beside decode, as far as they are asked for."""
        for size in self.pass_sizes:
            yield size, self.cycle(replica, size)

    @property
    def pass_sizes(self) -> tuple[int | None, ...]:
        """Prefill first (None) and chunk sizes, as far as they are asked for and the engine has the policy."""
        has, alone = self.options.engine.policies, self.options.chunk is None
        first = (None,) if alone and Policy.PREFILL_FIRST in has else ()
        return (*first, *(self.chunk_sizes if Policy.CHUNKED in has else ()))

    def cycle(self, replica: Replica, chunk: int | None) -> Cycle:
        """Chunks of a size beside decode; None: whole prompts, before anything else."""
        chunks, most = self._chunks(chunk or self.traffic.prompt_tokens), self.most_prompts(chunk)
        return Cycle(replica, self.traffic, self.batches, chunks, chunk is not None, most)

    def most_prompts(self, chunk: int | None) -> int:
        """Prompts that a pass takes at most: one where it takes chunks of it."""
        prompt = self.traffic.prompt_tokens
        if chunk is not None and chunk < prompt:
            return 1
        tokens = self.options.chunk or self.options.engine.pass_tokens
        return whole_prompts(prompt, tokens, self.options.largest_batch)

    def decoding(self, replica: Replica) -> Cycle:
        """A replica whose prompts come from elsewhere."""
        return Cycle(replica, self.traffic, self.batches)

    def prefilling(self, replica: Replica) -> Prefill:
        """A replica that only takes prompts: one at a time from a stream, several where all wait."""
        several = tuple(doublings(1, PROMPTS)) if self.traffic.rate_per_s is None else (1,)
        return Prefill(replica, self.traffic, several)

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
        """Cache of a prompt, whole."""
        chain = self.served.decode(self.traffic.prompt_tokens).chain(1, 1)
        return sum(chain.layers[u].cache_bytes for u in chain.index)

    def _chunks(self, size: int) -> tuple[Chunk, ...]:
        return chunks_of(self.traffic, size)

    def _grid(self, width: int, experts: int) -> LayerGrid:
        sizes = tuple(dict.fromkeys((*self.chunk_sizes, self.traffic.prompt_tokens)))
        return LayerGrid(
            self.served,
            self.chip,
            width,
            self.traffic,
            sizes,
            self.options.largest_batch,
            experts,
            self.most_prompts(self.chunk_sizes[0]),
        )

    def depths(self, grid: LayerGrid) -> list[int]:
        """Stages of replicas: powers of two, and three times these."""
        most = min(self.devices // (grid.width * grid.experts), len(grid.base.index), _MOST_STAGES)
        return [
            p for p in range(1, most + 1) if p.bit_count() == 1 or (p % 3 == 0 and (p // 3).bit_count() == 1)
        ]


def whole_prompts(prompt_tokens: int, pass_tokens: int, largest_batch: int) -> int:
    """Whole prompts that a pass of so many prompt tokens takes, one at least, and no more than decode at once."""
    return max(1, min(pass_tokens // prompt_tokens, largest_batch))
