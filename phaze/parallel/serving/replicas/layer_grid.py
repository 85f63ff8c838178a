"""Costs of a model's layers on one device, on a grid of batches and contexts and along straight lines between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.cost.collectives.collective_times import link_s, link_wire_bytes
from phaze.cost.pass_energy import Events, dynamic_j
from phaze.errors import InputError
from phaze.parallel.serving.replicas.chip_costs import (
    ChainCosts,
    Chip,
    Line,
    doublings,
    is_attention,
    only_attention,
    shared_attention,
    without_attention,
)
from phaze.parallel.serving.serving_requests import Traffic
from phaze.workload.expert_load import ExpertLoad
from phaze.workload.operators.kv_cache import CacheFormat, KvCache
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.parallel_degrees import Group, Parallel, Sharding
from phaze.workload.work import Collective, LayerChain, Link, Pass
from phaze.workload.workload import Mode, Workload
from phaze.workload.workload_loader import load_workload

PROMPTS = 8  # that a prefill pool takes at once at most
LEAST_CHUNK = 128  # tokens; smaller chunks leave the products of a chip idle
_TILE = 128  # queries; attention of fewer takes hardly less time
_SAVING = 0.8  # of the cache: a degree that saves less than a fifth is none
_FINE = range(64, 1024)  # tokens after which there is a point between powers of two


@dataclass(frozen=True)
class Served:
    """A model as it is served: where it comes from, its cache, its weights, and its workloads, each loaded once.

    `kv_cache_format`, `recipe`: formats of the cache and of linear layers (None: the model's own).
    """

    source: str
    kv_cache: KvCache
    kv_cache_format: CacheFormat | None = None
    recipe: Recipe | None = None
    _loaded: dict[tuple[int | None, int | None], Workload] = field(default_factory=dict)

    def decode(self, context: int) -> Workload:
        """One token more of sequences with `context` tokens in the cache. Raises InputError."""
        return self._load(None, context)

    def prefill(self, tokens: int, context: int = 0) -> Workload:
        """`tokens` of each prompt after `context` earlier ones. Raises InputError."""
        return self._load(tokens, context or None)

    def _load(self, tokens: int | None, context: int | None) -> Workload:
        key = tokens, context
        if key not in self._loaded:
            self._loaded[key] = load_workload(
                self.source,
                Mode.DECODE if tokens is None else Mode.PREFILL,
                sequence_length=tokens,
                context=context,
                kv_cache=self.kv_cache,
                kv_cache_format=self.kv_cache_format,
                recipe=self.recipe,
            )
        return self._loaded[key]


@dataclass(frozen=True)
class LayerGrid:
    """One model on one chip at one width for one kind of requests; cost figures are (..., L, 2): seconds, joules.

    `chunks`: sizes in which prompts are taken, the whole prompt among them; `largest_batch` sequences decode at once.
    `experts`: replicas that deal the experts of the model among them and work side by side, each on sequences of its
    own (data-parallel attention): figures are of one of them when all have as much to do. `prompts`: whole ones that a
    pass takes beside decode at most. `verified`: tokens of each decoding sequence in a pass, guesses among them.
    `most_tokens`: of prompts in a pass at most, where requests are recorded, so that chunks are of any size.
    `load`: of experts, where it is uneven. `context_parallel`: devices of a tensor group that hold the cache of a part
    of the tokens each; each has as many times the heads of queries in decoding attention.
    """

    served: Served
    chip: Chip
    width: int
    traffic: Traffic
    chunks: tuple[int, ...]
    largest_batch: int
    experts: int = 1
    prompts: int = 1
    verified: int = 1
    most_tokens: int = 0
    load: ExpertLoad | None = None
    context_parallel: int = 1

    @property
    def sharding(self) -> Sharding:
        """How layers are divided."""
        return Sharding(self.width, expert=self.experts, load=self.load)

    @property
    def saves_cache(self) -> bool:
        """Whether devices hold less cache than under half the degree, which is so where they repeat key-value heads.

        Never where an indexer chooses keys, which have to be chosen among all.
        """
        half = replace(self, context_parallel=self.context_parallel // 2)
        indexed = any(w.kind == OpKind.INDEX.value for layer in self.base.layers for w in layer.forward.works)
        return not indexed and self.cache_bytes[1].sum() < _SAVING * half.cache_bytes[1].sum()

    @property
    def _in_prompts(self) -> Sharding:
        """How heads are divided in attention of prompts, which is costed once however experts are dealt."""
        return Sharding(self.width)

    @property
    def _in_attention(self) -> Sharding:
        """How heads and caches are divided in decoding attention."""
        return Sharding(self.width // self.context_parallel)

    def _held(self, context: int) -> int:
        """Earlier tokens that a device holds of so many, so that all hold them and the next one."""
        return max(1, -(-(context + 1) // self.context_parallel) - 1)

    @cached_property
    def base(self) -> LayerChain:
        """The chain that decodes one sequence. InputError for a model whose attention is not flash attention."""
        chain = self.token_chain(1)
        if not any(is_attention(w) for layer in chain.layers for w in layer.forward.works):
            raise InputError(f"{self.served.source}: no attention with a key-value cache to serve from")
        return chain

    @cached_property
    def tokens(self) -> Line:
        """Everything but attention, by the number of tokens."""
        return self._line(self.token_points, self.chip.each(self.token_chains, without_attention))

    @cached_property
    def working_bytes(self) -> Line:
        """Activations alive at once while a layer runs, (..., L), by the number of tokens."""
        sizes = [_positions(chain, "working_bytes") for chain in self.token_chains]
        return Line(np.array(self.token_points, dtype=np.float64), np.array(sizes))

    @cached_property
    def decode_attention(self) -> tuple[Line, ...]:
        """Attention of decoding sequences by their number, at each of `contexts`.

        Where guesses are verified no faster than one token alone is.
        """
        chains = [self.decode_chains(context) for context in self.contexts]
        shared = only_attention if self.context_parallel == 1 else shared_attention(self.context_parallel)
        found = tuple(self._line(self.batch_points, costs) for costs in self._attentions_of(chains, shared))
        if self.verified == 1:
            return found
        guessed = [self.verify_chains(context) for context in self.contexts]
        more = (self._line(self.batch_points, costs) for costs in self._attentions_of(guessed, shared))
        return tuple(
            Line(one.points, np.maximum(one.values, other.values))
            for one, other in zip(found, more, strict=True)
        )

    @cached_property
    def batch_points(self) -> list[int]:
        """Decoding sequences at which their attention is costed."""
        return doublings(1, self.largest_batch)

    def decode_chains(self, context: int) -> list[LayerChain]:
        """The model on every number of `batch_points` decoding sequences of some context."""
        decode = self.served.decode(self._held(context))
        return _ends_first(self.batch_points, lambda batch: decode.chain(batch, self._in_attention))

    def verify_chains(self, context: int) -> list[LayerChain]:
        """The same with all the tokens of each sequence that a pass verifies."""
        several = self.served.prefill(self.verified, self._held(context))
        return _ends_first(self.batch_points, lambda batch: several.chain(batch, self._in_attention))

    @cached_property
    def contexts(self) -> tuple[int, ...]:
        """Tokens in the cache before the first and before the last decode pass of a request; of many kinds, between."""
        return self.traffic.contexts

    @cached_property
    def chunk_attention(self) -> Mapping[int, Line]:
        """Attention of a chunk of one prompt by the tokens before it, for every size of `chunks`."""
        costs = self._attentions_of([self.chunk_chains(chunk) for chunk in self.chunks])
        each = zip(self.chunks, costs, strict=True)
        return {chunk: self._gathered(self._line(self.befores(chunk), some)) for chunk, some in each}

    @cached_property
    def piece_attention(self) -> tuple[tuple[Line, Line], ...]:
        """Attention of a piece of a prompt by the tokens before it, for every size of `piece_sizes`.

        Of one alone, and of one more beside others.
        """
        counts = [(size, n) for size in self.piece_sizes for n in (1, PROMPTS)]
        costs = self._attentions_of([self.piece_chains(size, n) for size, n in counts])
        lines = [
            self._gathered(self._line(self._ends(size), some), n)
            for (size, n), some in zip(counts, costs, strict=True)
        ]
        return tuple(
            (one, Line(one.points, (many.values - one.values) / (PROMPTS - 1)))
            for one, many in zip(lines[::2], lines[1::2], strict=True)
        )

    @cached_property
    def piece_sizes(self) -> list[int]:
        """Sizes of pieces of recorded prompts at which attention is costed.

        Also where a power of two has been left: the tiles of a kernel fill another wave of cores there.
        """
        longest = self.traffic.longest_fresh
        doubled = doublings(_TILE, longest) if longest > _TILE else [longest]
        return sorted({1, *doubled, *(n * 5 // 4 for n in doubled if n * 5 // 4 < longest)})

    def piece_chains(self, size: int, prompts: int = 1) -> list[LayerChain]:
        """The model on a piece of some prompts, after none and after the most earlier tokens."""
        return [
            self.served.prefill(size, before).chain(prompts, self._in_prompts) for before in self._ends(size)
        ]

    def _ends(self, size: int) -> list[int]:
        return sorted({0, self.traffic.longest_fresh - size})

    @cached_property
    def prompt_attention(self) -> Line:
        """Attention of whole prompts by their number, to which it is proportional but for what is launched once."""
        line = self._line(self.prompt_points, self.chip.each(self.prompt_chains, only_attention))
        gathered = self._gathering(self.traffic.cached_tokens)
        return Line(line.points, line.values + line.points[:, None, None] * gathered)

    @property
    def prompt_points(self) -> list[int]:
        """Whole prompts at which their attention is costed: one, and as many as a pass takes at most."""
        return [1, max(PROMPTS, self.prompts)]

    @property
    def prompt_chains(self) -> list[LayerChain]:
        """The model on as many whole prompts as `prompt_points`."""
        prefill = self.served.prefill(self.traffic.fresh_tokens, self.traffic.cached_tokens)
        return [prefill.chain(prompts, self._in_prompts) for prompts in self.prompt_points]

    @cached_property
    def kernels(self) -> Floats:
        """Kernels of each layer in a pass with one attention, (L,)."""
        return self._per_position([float(len(layer.forward.works)) for layer in self.base.layers])

    @cached_property
    def attentions(self) -> Floats:
        """Kernels of attention in each layer, (L,)."""
        counts = [sum(map(is_attention, layer.forward.works)) for layer in self.base.layers]
        return self._per_position([float(n) for n in counts])

    @cached_property
    def expert_layers(self) -> Floats:
        """One for every layer with experts, (L,)."""
        return self._per_position([float(layer.kind.endswith("experts")) for layer in self.base.layers])

    @property
    def expert_count(self) -> int:
        """Experts of a layer that has some; 0 without experts."""
        return self.served.decode(self.traffic.prompt_tokens).expert_count

    @property
    def redundant_experts(self) -> int:
        """Copies of experts that the replicas which share them keep, all together."""
        return (
            0 if self.load is None else self.load.places(self.expert_count, self.experts) - self.expert_count
        )

    @cached_property
    def samples(self) -> NDArray[np.bool_]:
        """Layers that work on the last token of a sequence alone, (L,): those that make logits."""
        return np.array([self.base.layers[u].kind.startswith("head") for u in self.base.index])

    @cached_property
    def weight_bytes(self) -> Floats:
        """Weights of each layer, (L,)."""
        numerics = self.served.decode(self.traffic.prompt_tokens).numerics
        whole = _positions(self.base, "parameters") * numerics.state_bytes
        return whole + _positions(self.base, "scaled_weight_bytes")

    @cached_property
    def boundary_bytes(self) -> Floats:
        """Bytes that each layer hands on for every token, whole, (L,)."""
        return _positions(self.base, "output_bytes")

    @cached_property
    def cache_bytes(self) -> tuple[Floats, Floats]:
        """Cache of one sequence on one device, (L,) each: when it begins to decode, and when it ends.

        A prefix that the cache keeps for all is none of theirs. Of recorded requests: the shortest, the longest.
        """
        shared = self.traffic.cached_tokens if self.traffic.shared and self.traffic.recorded is None else 0
        first, last = self.contexts[0] - shared, self.contexts[-1] - shared
        ends = [self._cache_bytes(self._held(c)) for c in (first, last)]
        return ends[0], ends[1]

    @cached_property
    def token_bytes(self) -> tuple[Floats, Floats]:
        """Cache of one sequence, (L,) each: without tokens, and for every token, between few whole pages and many."""
        page = max(self.served.kv_cache.page, 1)
        few = page * max(1, min(self.traffic.contexts[0], self.traffic.prompt_tokens // 2) // page)
        many = max(few + page, page * (self.traffic.last_context // page))
        bytes_ = [self._cache_bytes(held - 1) for held in (few, many)]
        each = (bytes_[1] - bytes_[0]) / (many - few)
        return bytes_[0] - few * each, each / self.context_parallel

    def _cache_bytes(self, context: int) -> Floats:
        """Cache of a sequence of which a device holds `context` tokens and one more, (L,)."""
        return _positions(self.served.decode(context).chain(1, self._in_attention), "cache_bytes")

    def _gathered(self, line: Line, prompts: int = 1) -> Line:
        """A line of attention by earlier tokens of prompts, with what it takes to gather their cache."""
        if self.context_parallel == 1:
            return line
        gathered = [self._gathering(before) for before in line.points.tolist()]
        return Line(line.points, line.values + prompts * np.array(gathered))

    def _gathering(self, tokens: float) -> Floats:
        """Seconds and joules to gather the cache of earlier tokens of a prompt from the devices with parts, (L, 2)."""
        found = np.zeros((len(self.base.index), 2))
        if self.context_parallel == 1 or not tokens:
            return found
        own = replace(self, context_parallel=1).token_bytes[1]
        links = self.chip.table["link_bandwidth_bytes_per_s"]
        for each in np.unique(own[own > 0]).tolist():
            group = Group(Parallel.CONTEXT, self.context_parallel)
            link = Link(Collective.ALL_GATHER, tokens * each, group)
            events = Events(link_bytes=2 * link_wire_bytes(link))
            seconds = link_s(link, self.chip.among.model.network, links)
            found[own == each] = float(seconds[0]), float(dynamic_j(events, self.chip.table)[0])
        return found

    def prompt_flops(self, load: Traffic) -> float:
        """Model FLOPs of a prompt of some load, on average, of all devices, with logits of its last token alone."""
        fresh, before = load.mean_piece
        whole = self.served.prefill(fresh, before).chain(1, 1)
        flops = np.array([whole.layers[u].model_flops for u in whole.index])
        flops[self.samples] /= fresh
        return float(flops.sum())

    @cached_property
    def token_points(self) -> list[int]:
        """Tokens of a pass at which everything but attention is costed."""
        prompt, decoding = self.traffic.fresh_tokens, self.largest_batch * self.verified
        beside = max(*self.chunks, self.prompts * prompt)
        most = self.most_tokens + decoding if self.most_tokens else max(PROMPTS * prompt, decoding + beside)
        doubled = doublings(1, most)
        return sorted({*doubled, *(n * 3 // 2 for n in doubled if n in _FINE and n * 3 // 2 < most)})

    @cached_property
    def token_chains(self) -> list[LayerChain]:
        """The model on every number of tokens of `token_points`."""
        return _ends_first(self.token_points, self.token_chain)

    def token_chain(self, tokens: int) -> LayerChain:
        """The model on some tokens, each of a sequence of its own."""
        return self.served.decode(self.traffic.prompt_tokens).chain(tokens, self.sharding)

    def _attentions_of(
        self, lines: Sequence[Sequence[LayerChain]], part: Callable[[Pass], Pass] = only_attention
    ) -> Iterator[list[ChainCosts]]:
        """Attention of the chains of some lines, all of them costed together."""
        self.chip.each([chain for chains in lines for chain in chains], part)
        return (self.chip.each(chains, part) for chains in lines)

    def befores(self, chunk: int) -> list[int]:
        """Tokens of a prompt before a chunk of it, least and most."""
        return sorted({self.traffic.cached_tokens, self.traffic.prompt_tokens - chunk})

    def chunk_chains(self, chunk: int) -> list[LayerChain]:
        """The model on a chunk of a prompt, after the least and the most earlier tokens."""
        return [
            self.served.prefill(chunk, before).chain(1, self._in_prompts) for before in self.befores(chunk)
        ]

    def _line(self, points: list[int], costs: list[ChainCosts]) -> Line:
        values = np.array([np.stack([c.seconds, c.joules], axis=-1) for c in costs])
        return Line(np.array(points, dtype=np.float64), values)

    def _per_position(self, of_unique: list[float]) -> Floats:
        return np.array(of_unique)[list(self.base.index)]


def _ends_first(sizes: Sequence[int], chain: Callable[[int], LayerChain]) -> list[LayerChain]:
    """Chains of ascending sizes; the least and most are made first, which with another tell those between."""
    ends = sizes[0], sizes[-1]
    made = {size: chain(size) for size in sorted(sizes, key=lambda size: size not in ends)}
    return [made[size] for size in sizes]


def _positions(chain: LayerChain, figure: str) -> Floats:
    """A figure of the layers at every position of a chain, (L,)."""
    return np.array([getattr(chain.layers[u], figure) for u in chain.index], dtype=np.float64)
