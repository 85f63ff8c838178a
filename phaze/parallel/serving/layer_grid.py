"""Costs of a model's layers on one device, on a grid of batches and contexts and along straight lines between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phaze.arrays import Floats
from phaze.cost.cost_model import CostModel
from phaze.cost.pass_energy import dynamic_j, pass_events
from phaze.errors import InputError
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.parallel.serving.serving_requests import Traffic
from phaze.scheduling.layers import TimedChain
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import PASS_STATES
from phaze.workload.operators.kv_cache import CacheFormat, KvCache
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.work import Layer, LayerChain, Pass, Work
from phaze.workload.workload import Mode, Workload
from phaze.workload.workload_loader import load_workload


@dataclass(frozen=True, slots=True)
class Line:
    """Values (G, ...) at ascending points (G,); between two points the straight line, outside none."""

    points: Floats
    values: Floats

    def at(self, where: ArrayLike) -> Floats:
        """The values at some places, (*where, ...). ValueError beyond the points."""
        x = np.asarray(where, dtype=np.float64)
        if x.size and not (self.points[0] <= x.min() and x.max() <= self.points[-1]):
            msg = f"{x.min():g} .. {x.max():g} is not within {self.points[0]:g} .. {self.points[-1]:g}"
            raise ValueError(msg)
        if len(self.points) == 1:
            return self.values[np.zeros(x.shape, dtype=np.intp)]
        left = np.clip(np.searchsorted(self.points, x, side="right") - 1, 0, len(self.points) - 2)
        width = self.points[left + 1] - self.points[left]
        share = ((x - self.points[left]) / width).reshape(x.shape + (1,) * (self.values.ndim - 1))
        found: Floats = self.values[left] * (1 - share) + self.values[left + 1] * share
        return found


def doublings(first: int, last: int) -> list[int]:
    """`first`, its doubles below `last`, and `last`."""
    found = []
    while first < last:
        found.append(first)
        first *= 2
    return [*found, last]


def is_attention(work: Work) -> bool:
    """Whether an operator looks at the key-value cache."""
    return work.flash is not None or work.of_cache


def without_attention(pass_: Pass) -> Pass:
    """The pass without its attention; what waited for it waits for what it waited for."""
    edges = set(pass_.edges)
    for gone in (i for i, work in enumerate(pass_.works) if is_attention(work)):
        before = [a for a, b in edges if b == gone]
        after = [b for a, b in edges if a == gone]
        edges = {edge for edge in edges if gone not in edge} | set(product(before, after))
    return _kept(pass_, edges, lambda work: not is_attention(work))


def only_attention(pass_: Pass) -> Pass:
    """The attention of a pass alone."""
    return _kept(pass_, set(pass_.edges), is_attention)


def _kept(pass_: Pass, edges: set[tuple[int, int]], keep: Callable[[Work], bool]) -> Pass:
    at = {old: new for new, old in enumerate(i for i, work in enumerate(pass_.works) if keep(work))}
    between = sorted((at[a], at[b]) for a, b in edges if a in at and b in at)
    return Pass(tuple(pass_.works[i] for i in at), tuple(between))


@dataclass(frozen=True, slots=True)
class ChainCosts:
    """Costs of the layers of a chain on one device, (L,) each: seconds, joules of events, kernels launched."""

    seconds: Floats
    joules: Floats
    kernels: Floats


@dataclass(frozen=True, slots=True)
class Chips:
    """Architectures on a network, at some fidelity of the cost model; `table` has a row for each, costed side by side.

    Layers are costed once: those without experts are the same objects however experts are dealt.
    """

    model: CostModel
    table: ArchitectureTable
    _known: dict[tuple[int, Callable[[Pass], Pass]], tuple[Layer, Floats]] = field(default_factory=dict)

    def each(self, chains: Sequence[LayerChain], part: Callable[[Pass], Pass], row: int = 0) -> list[Floats]:
        """Seconds, joules and kernels of a part of every layer of some inference chains on one of them, (L, 3) each.

        Layers of all chains are costed together, which is faster than one after the other.
        """
        layers = {id(layer): layer for chain in chains for layer in chain.layers}
        new = {at: layer for at, layer in layers.items() if (at, part) not in self._known}
        if new:
            figures = self._costed(
                replace(chains[0], layers=tuple(new.values()), index=(*range(len(new)),)), part
            )
            self._known.update({(at, part): (new[at], found) for at, found in zip(new, figures, strict=True)})
        return [
            np.array([self._known[id(chain.layers[u]), part][1][row] for u in chain.index])
            for chain in chains
        ]

    def _costed(self, chain: LayerChain, part: Callable[[Pass], Pass]) -> Floats:
        """Seconds, joules and kernels of a part of each layer on every architecture, (L, A, 3)."""
        layers = tuple(replace(layer, forward=part(layer.forward)) for layer in chain.layers)
        rows = np.arange(len(self.table))
        kernels = np.flatnonzero(self.model.factors.simt_of >= 0)
        if len(kernels):  # of all layers at once: they are kept
            self.model.fastest_s([w for layer in layers for w in layer.forward.works], kernels[:1])
        timed = TimedChain(replace(chain, layers=layers), self.model, self.table)
        _, times = timed.exact(rows, SolveLimits(lambda: np.inf, PASS_STATES))
        found = np.zeros((len(layers), len(rows), 3))
        for layer, pass_ in enumerate(timed.forward):
            found[layer, :, 0] = times.forward_s[:, layer]
            if pass_.work.works:
                found[layer, :, 1] = dynamic_j(pass_events(pass_.costs, rows), self.table)
                found[layer, :, 2] = len(pass_.work.works)
        return found


@dataclass(frozen=True, slots=True)
class Chip:
    """One architecture among some that are costed together; `table` has one row."""

    among: Chips
    row: int
    table: ArchitectureTable

    @classmethod
    def alone(cls, model: CostModel, table: ArchitectureTable) -> Chip:
        """The only architecture of a table."""
        return cls(Chips(model, table), 0, table)

    @classmethod
    def of(cls, among: Chips, row: int) -> Chip:
        """One of several."""
        return cls(among, row, among.table.take([row]))

    def costs(self, chain: LayerChain, part: Callable[[Pass], Pass]) -> ChainCosts:
        """Costs of a part of every layer of an inference chain."""
        return self.each([chain], part)[0]

    def each(self, chains: Sequence[LayerChain], part: Callable[[Pass], Pass]) -> list[ChainCosts]:
        """The same of some chains."""
        found = self.among.each(chains, part, self.row)
        return [ChainCosts(one[:, 0], one[:, 1], one[:, 2]) for one in found]


PROMPTS = 8  # that a prefill pool takes at once at most
LEAST_CHUNK = 128  # tokens; smaller chunks leave the products of a chip idle
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
    pass takes beside decode at most.
    """

    served: Served
    chip: Chip
    width: int
    traffic: Traffic
    chunks: tuple[int, ...]
    largest_batch: int
    experts: int = 1
    prompts: int = 1

    @property
    def sharding(self) -> Sharding:
        """How layers are divided."""
        return Sharding(self.width, expert=self.experts)

    @cached_property
    def base(self) -> LayerChain:
        """The chain that decodes one sequence. InputError for a model whose attention is not flash attention."""
        chain = self._decode(1, self.traffic.prompt_tokens)
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
        """Attention of decoding sequences by their number, at each of `contexts`."""
        chains = [self.decode_chains(context) for context in self.contexts]
        return tuple(self._line(self.batch_points, costs) for costs in self._attentions_of(chains))

    @cached_property
    def batch_points(self) -> list[int]:
        """Decoding sequences at which their attention is costed."""
        return doublings(1, self.largest_batch)

    def decode_chains(self, context: int) -> list[LayerChain]:
        """The model on every number of `batch_points` decoding sequences of some context."""
        return _ends_first(self.batch_points, lambda batch: self._decode(batch, context))

    @cached_property
    def contexts(self) -> tuple[int, ...]:
        """Tokens in the cache before the first and before the last decode pass of a request."""
        return tuple(sorted({self.traffic.prompt_tokens, self.traffic.last_context}))

    @cached_property
    def chunk_attention(self) -> Mapping[int, Line]:
        """Attention of a chunk of one prompt by the tokens before it, for every size of `chunks`."""
        costs = self._attentions_of([self.chunk_chains(chunk) for chunk in self.chunks])
        each = zip(self.chunks, costs, strict=True)
        return {chunk: self._line(self.befores(chunk), some) for chunk, some in each}

    @cached_property
    def prompt_attention(self) -> Line:
        """Attention of whole prompts by their number, to which it is proportional but for what is launched once."""
        return self._line(self.prompt_points, self.chip.each(self.prompt_chains, only_attention))

    @property
    def prompt_points(self) -> list[int]:
        """Whole prompts at which their attention is costed: one, and as many as a pass takes at most."""
        return [1, max(PROMPTS, self.prompts)]

    @property
    def prompt_chains(self) -> list[LayerChain]:
        """The model on as many whole prompts as `prompt_points`."""
        prefill = self.served.prefill(self.traffic.prompt_tokens)
        return [prefill.chain(prompts, self.sharding) for prompts in self.prompt_points]

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
        """Cache of one sequence on one device, (L,) each: when it begins to decode, and when it ends."""
        first, last = self.contexts[0], self.contexts[-1]
        ends = [_positions(self._decode(1, c), "cache_bytes") for c in (first, last)]
        return ends[0], ends[1]

    @cached_property
    def prompt_flops(self) -> float:
        """Model FLOPs of one prompt, all devices together, with logits of its last token alone."""
        whole = self.served.prefill(self.traffic.prompt_tokens).chain(1, 1)
        flops = np.array([whole.layers[u].model_flops for u in whole.index])
        flops[self.samples] /= self.traffic.prompt_tokens
        return float(flops.sum())

    @cached_property
    def token_points(self) -> list[int]:
        """Tokens of a pass at which everything but attention is costed."""
        prompt = self.traffic.prompt_tokens
        beside = max(*self.chunks, self.prompts * prompt)
        most = max(PROMPTS * prompt, self.largest_batch + beside)
        doubled = doublings(1, most)
        return sorted({*doubled, *(n * 3 // 2 for n in doubled if n in _FINE and n * 3 // 2 < most)})

    @cached_property
    def token_chains(self) -> list[LayerChain]:
        """The model on every number of tokens of `token_points`."""
        return _ends_first(self.token_points, lambda n: self._decode(n, self.traffic.prompt_tokens))

    def _decode(self, batch: int, context: int) -> LayerChain:
        return self.served.decode(context).chain(batch, self.sharding)

    def _attentions_of(self, lines: Sequence[Sequence[LayerChain]]) -> Iterator[list[ChainCosts]]:
        """Attention of the chains of some lines, all of them costed together."""
        self.chip.each([chain for chains in lines for chain in chains], only_attention)
        return (self.chip.each(chains, only_attention) for chains in lines)

    def befores(self, chunk: int) -> list[int]:
        """Tokens of a prompt before a chunk of it, least and most."""
        return sorted({0, self.traffic.prompt_tokens - chunk})

    def chunk_chains(self, chunk: int) -> list[LayerChain]:
        """The model on a chunk of a prompt, after the least and the most earlier tokens."""
        return [self.served.prefill(chunk, before).chain(1, self.sharding) for before in self.befores(chunk)]

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
