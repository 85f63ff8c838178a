"""A workload made from a forward operator graph, whichever front end it came from."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Set
from copy import copy
from dataclasses import dataclass, replace
from math import gcd
from types import MappingProxyType
from typing import Protocol

from phaze.errors import InputError, Remark
from phaze.workload.fusion_rules import ALL_FUSION, Fusion
from phaze.workload.layers.branching_layers import branching_graph, branching_segments, layer_edges
from phaze.workload.layers.layer_builder import build_layer, tied_parameters
from phaze.workload.layers.layer_cutting import Segment, cut, distinct_names, whole_context
from phaze.workload.layers.layer_reuse import Interpolated, Repeats, Signatures, interpolate_layers
from phaze.workload.operators.low_precision import Recipe, with_recipe
from phaze.workload.operators.operator_graph import OperatorGraph, OpKind
from phaze.workload.operators.operator_steps import OperatorContext, integer, word
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.sharding.expert_parallelism import has_idle_experts
from phaze.workload.sharding.layer_division import UndividedModel
from phaze.workload.sharding.shard_roles import among_experts, in_expert
from phaze.workload.sharding.shardable_layers import classify_segments, mix_chains
from phaze.workload.training.activation_recompute import multiplies_activations
from phaze.workload.training.backward_pass import differentiable, model_parameters
from phaze.workload.training.training_loss import with_loss
from phaze.workload.training.training_numerics import Optimizer, Precision, in_precision, numerics
from phaze.workload.work import Format, Layer, LayerChain, LayerEdge, LayerGraph
from phaze.workload.workload import Mode, Numerics

TOKENS_PER_STEP = 4 * 2**20
"""Default global batch in training, in tokens, whatever the number of devices.

Llama 2 of all sizes trained with 4 million tokens (Touvron et al., arXiv 2307.09288, section 2.2 and table 1), Llama 3
405B began with as many (arXiv 2407.21783, section 3.4.1), GPT-3 had 3.2 million (arXiv 2005.14165, table 2.1).
"""
SAMPLES_PER_DEVICE = 32
"""Default of models without tokens, on each device: mini-batches of 256 on eight of them (arXiv 1512.03385)."""
MOST_SAMPLES = 65536
"""At most, as published for DLRM; ImageNet has been trained in 32,768 (You et al., arXiv 1709.05011)."""
_LINE = 3  # chains that tell another
SEQUENCES_PER_DEVICE = 8  # the same where every sequence has its key-value cache in memory (decode)


class ForwardModel(Protocol):
    """Model of a front end: the forward graph at any batch size, without a loss."""

    @property
    def name(self) -> str:
        """Short name of the model."""

    @property
    def heads(self) -> int | None:
        """Attention heads that tensor parallelism divides; None where there are none."""

    def graph(self, batch: int) -> OperatorGraph:
        """Forward graph of `batch` samples; its outputs are logits."""


@dataclass(frozen=True)
class _Divided:
    """The undivided model at one microbatch size, cut into layers; `tied`: parameters that several layers read.

    `edges` between layers, where branches are layers of their own.
    """

    whole: UndividedModel
    unique: tuple[Segment, ...]
    index: tuple[int, ...]
    names: tuple[str, ...]
    tied: frozenset[str]
    edges: tuple[LayerEdge, ...] = ()


_Kept = tuple[Sharding, bool, bool]
"""Sharding, selective recompute, and whether it keeps products."""


class GraphWorkload:
    """Workload over a forward model. Chains are cached; the object is otherwise unchanging."""

    def __init__(
        self,
        model: ForwardModel,
        mode: Mode,
        *,
        global_batch: int | None = None,
        optimizer: Optimizer = Optimizer.ADAM,
        precision: Precision = Precision.BF16,
        expert_plan: tuple[int, int, int] | None = None,
        noise_scale: float | None = None,
        fusion: Set[Fusion] = ALL_FUSION,
        recipe: Recipe | None = None,
        sequence_length: int | None = None,
        context: int = 0,
        short: tuple[ForwardModel, Repeats] | None = None,
    ) -> None:
        """Wrap a forward model; without `global_batch` it is 4 million tokens in training, else so many per device.

        `short`: the same model with fewer blocks, where they repeat.
        """
        self._short = short
        self._sequence_length = sequence_length
        self._context = context
        self._model = model
        self._mode = mode
        self._global_batch = global_batch
        self._numerics = numerics(optimizer, mode, precision)
        self._precision = precision
        self._expert_plan = expert_plan
        self._noise_scale = noise_scale
        self._fusion = fusion
        self._recipe = recipe
        self._in_recipe: dict[Recipe, GraphWorkload] = {}
        self._branches = False
        self._branching: GraphWorkload | None = None
        self._divided: dict[int, _Divided] = {}
        self._chains: dict[_Kept, dict[int, LayerChain]] = {}
        self._interpolated: Interpolated = {}
        self._layers: dict[Hashable, Layer] = {}
        self._parameter_count: int | None = None
        self._experts: int | None = None

    @property
    def name(self) -> str:
        """Short name, as in results."""
        return self._model.name

    @property
    def sequence_length(self) -> int | None:
        """Tokens of one sample; None where samples are no sequences, or nobody said."""
        return self._sequence_length

    @property
    def context(self) -> int:
        """Tokens of each sequence that are in the key-value cache before the pass."""
        return self._context

    @property
    def fusion(self) -> Set[Fusion]:
        """Rules of fusion that are on."""
        return self._fusion

    @property
    def mode(self) -> Mode:
        """Training, prefill or decode."""
        return self._mode

    @property
    def numerics(self) -> Numerics:
        """Bytes and vector work per parameter."""
        return self._numerics

    @property
    def operands(self) -> Format | None:
        """Format in which products take their operands; None: the tensor cores' own."""
        return self._precision.operands

    def in_recipe(self, recipe: Recipe) -> GraphWorkload:
        """The same model with its linear layers in few bits (cached)."""
        if recipe not in self._in_recipe:
            other = self._anew()
            other._recipe = recipe
            self._in_recipe[recipe] = other
        return self._in_recipe[recipe]

    def _anew(self) -> GraphWorkload:
        """The same workload, of which no layer is known yet."""
        other = copy(self)
        other._divided, other._layers, other._chains, other._interpolated = {}, {}, {}, {}
        other._branching = None
        return other

    @property
    def recipe(self) -> Recipe | None:
        """Recipe by which linear layers run in few bits, if they do."""
        return self._recipe

    @property
    def expert_plan(self) -> tuple[int, int, int] | None:
        """Published hand-made plan for 1024 devices (pipeline, tensor, data), if one is known."""
        return self._expert_plan

    @property
    def noise_scale(self) -> float | None:
        """Published gradient noise scale of a whole training, in samples, if one is known."""
        return self._noise_scale

    def global_batch(self, devices: int) -> int:
        """Samples per iteration: the workload's own, otherwise in training 4 million tokens on any devices.

        Whole sequences, a power of two of them. Of samples without tokens, and of prefill, 32 per device, 65,536 at
        most; of decode 8 sequences per device.
        """
        if self._global_batch is not None:
            return self._global_batch
        if self._mode is Mode.DECODE:
            return SEQUENCES_PER_DEVICE * devices
        if self._mode is Mode.TRAINING and self._sequence_length is not None:
            return 1 << max(1, TOKENS_PER_STEP // self._sequence_length).bit_length() - 1
        return min(SAMPLES_PER_DEVICE * devices, MOST_SAMPLES)

    @property
    def parameter_count(self) -> int:
        """Trained parameters of the whole model, tied ones once."""
        if self._parameter_count is None:
            self._parameter_count = sum(t.elements for t in model_parameters(self._model.graph(1)))
        return self._parameter_count

    def tensor_parallel_widths(self, limit: int) -> tuple[int, ...]:
        """Powers of two that divide the heads, every divisor for odd heads, 1 without heads."""
        heads = self._model.heads
        if heads is None:
            return (1,)
        divisors = [t for t in range(1, min(limit, heads) + 1) if heads % t == 0]
        powers = tuple(t for t in divisors if t & (t - 1) == 0)
        return tuple(divisors) if heads % 2 else powers

    def tensor_parallel_divisors(self, limit: int) -> tuple[int, ...]:
        """Every divisor of the heads that also divides those of keys and values, or is a multiple of them."""
        heads = self._model.heads
        if heads is None:
            return (1,)
        keys = getattr(self._model, "kv_heads", None) or heads
        divisors = (t for t in range(1, min(limit, heads) + 1) if heads % t == 0)
        return tuple(t for t in divisors if keys % t == 0 or t % keys == 0)

    @property
    def expert_count(self) -> int:
        """Experts of a layer that has some, their greatest common divisor where layers differ; 0 without experts."""
        if self._experts is None:
            graph = self._model.graph(1)
            self._experts = gcd(*(integer(op, "experts", 1) for op in graph.operators if in_expert(op)))
        return self._experts

    def expert_parallel_divisors(self, limit: int) -> tuple[int, ...]:
        """Every divisor of the experts of all layers that have some; 1 without experts."""
        experts = self.expert_count
        return tuple(e for e in range(1, min(limit, experts) + 1) if experts % e == 0) or (1,)

    def operator_graph(self, microbatch: int) -> OperatorGraph:
        """The whole forward graph as run: with its loss in training, without dropout in inference.

        Raises InputError for a model that computes nothing, or in training has nothing to train.
        """
        return self._prepared(self._model, microbatch)

    def _prepared(self, model: ForwardModel, microbatch: int) -> OperatorGraph:
        graph = model.graph(microbatch)
        graph = with_loss(graph) if self._mode is Mode.TRAINING else without_dropout(graph)
        if all(op.kind is OpKind.VIEW for op in graph.operators):
            msg = f"{self.name}: the model computes nothing in {self._mode}: it only moves data"
            raise InputError(msg)
        return with_recipe(in_precision(graph, self._precision), self._recipe)

    def rules_context(self, graph: OperatorGraph) -> OperatorContext:
        """Context of the undivided graph for rules."""
        training = self._mode is Mode.TRAINING
        return whole_context(graph, training=training, operands=self.operands)

    def chain(
        self,
        microbatch: int,
        sharding: int | Sharding,
        *,
        selective: bool = False,
        keeps_products: bool = False,
    ) -> LayerChain:
        """The model as a chain of layers (cached); a number is a tensor-parallel width.

        `selective`: keep nothing inside attention, run it again in backward. `keeps_products`: then
        run all again but attention and every second product. Raises ValueError for sizes below 1,
        InputError for a degree of which the model has nothing to divide.
        """
        if microbatch < 1:
            msg = f"microbatch {microbatch} must be at least 1"
            raise ValueError(msg)
        key = (Sharding.of(sharding), selective, keeps_products)
        known = self._chains.setdefault(key, {})
        if microbatch not in known:
            between = None if key[0].load else self._between(microbatch, known)  # reached ones are on no line
            known[microbatch] = between or self._build(microbatch, *key)
        return known[microbatch]

    def layer_graph(
        self,
        microbatch: int,
        sharding: int | Sharding,
        *,
        selective: bool = False,
        keeps_products: bool = False,
    ) -> LayerGraph:
        """The model as a graph of layers, branches in one piece each; options and errors are those of `chain`."""
        if self._branching is None:
            self._branching = self._anew()
            self._branching._branches = True
        other = self._branching
        order = other.chain(microbatch, sharding, selective=selective, keeps_products=keeps_products)
        return LayerGraph(order, other._cut(microbatch).edges)

    def _between(self, microbatch: int, known: Mapping[int, LayerChain]) -> LayerChain | None:
        """Chain between those of smaller and larger microbatches, where three are known."""
        if len(known) < _LINE or not min(known) < microbatch < max(known):
            return None
        if has_idle_experts(self._cut(min(known)).whole.graph):
            return None  # how many are reached is on no line
        inner = next(size for size in known if min(known) < size < max(known))
        three = [known[min(known)], known[inner], known[max(known)]]
        return interpolate_layers(three, microbatch, self._interpolated)

    def _build(
        self, microbatch: int, sharding: Sharding, selective: bool, keeps_products: bool
    ) -> LayerChain:
        if sharding.replicated:
            rest = {"selective": selective, "keeps_products": keeps_products}
            divided = self.chain(microbatch, sharding.divided, **rest)
            return mix_chains(divided, self.chain(microbatch, sharding.undivided, **rest), sharding)
        parts = self._cut(microbatch)
        parts.whole.check(sharding)
        layers = tuple(
            self._layer(microbatch, number, sharding, selective=selective, keeps_products=keeps_products)
            for number in range(len(parts.unique))
        )
        keeps = self._mode is Mode.DECODE
        return LayerChain(
            self.name, microbatch, sharding, layers, parts.index, parts.names, keeps_cache=keeps
        )

    def _layer(
        self, microbatch: int, number: int, sharding: Sharding, *, selective: bool, keeps_products: bool
    ) -> Layer:
        """A unique layer on one device.

        The same however experts are divided where it has none, and whatever attention keeps where it has no such.
        """
        parts = self._cut(microbatch)
        segment, whole = parts.unique[number], parts.whole
        if not any(map(among_experts, segment.operators)):
            sharding = replace(sharding, expert=1, folded=False, load=None)
        by_operator = selective and keeps_products
        selective = by_operator or (selective and multiplies_activations(segment.operators, whole.ctx))
        key = microbatch, number, sharding, selective, by_operator
        if key not in self._layers:
            kept = {"selective": selective, "keeps_products": by_operator}
            self._layers[key] = build_layer(
                segment, whole, sharding, fusion=self._fusion, tied=parts.tied, **kept
            )
        return self._layers[key]

    def _cut(self, microbatch: int) -> _Divided:
        """Layers of the undivided model, isomorphic ones once (cached per microbatch)."""
        if microbatch not in self._divided:
            self._divided[microbatch] = self._from_short(microbatch) or self._parts(self._model, microbatch)
        return self._divided[microbatch]

    def _from_short(self, microbatch: int) -> _Divided | None:
        """The layers of all blocks from those of a few."""
        if self._short is None or self._branches:
            return None
        model, repeats = self._short
        parts = self._parts(model, microbatch)
        extended = repeats.extended(parts.index, parts.names)
        if extended is None:  # nor do layers of other microbatches tell: all have the same names
            self._short = None
            return None
        return replace(parts, index=extended[0], names=extended[1])

    def _parts(self, model: ForwardModel, microbatch: int) -> _Divided:
        graph = self._prepared(model, microbatch)
        if self._branches:
            graph = branching_graph(graph)
        ctx = self.rules_context(graph)
        segments = self._segments(graph, ctx)
        signatures, numbers = Signatures(graph, ctx), dict[Hashable, int]()
        unique: list[Segment] = []
        index = []
        for segment in segments:
            key = (signatures.of(segment), segment.shardable)
            if key not in numbers:
                numbers[key] = len(unique)
                unique.append(segment)
            index.append(numbers[key])
        names, tied = distinct_names(segments), tied_parameters(segments, ctx)
        edges = layer_edges(segments, ctx) if self._branches else ()
        return _Divided(UndividedModel(graph, ctx), tuple(unique), tuple(index), names, tied, edges)

    def _segments(self, graph: OperatorGraph, ctx: OperatorContext) -> tuple[Segment, ...]:
        if self._branches:
            return branching_segments(graph, ctx, self._fusion)
        return classify_segments(cut(graph, ctx, fusion=self._fusion), graph)


def answerable_mode(model: ForwardModel, mode: Mode) -> Mode:
    """The mode, or prefill in place of training where nothing can be trained, with a remark."""
    if mode is not Mode.TRAINING:
        return mode
    graph = model.graph(1)
    if not differentiable(graph).isdisjoint(graph.outputs):
        return mode
    msg = f"{model.name}: nothing in it can be trained, so this is one forward pass (as --mode prefill)"
    warnings.warn(msg, Remark, stacklevel=2)
    return Mode.PREFILL


def without_dropout(graph: OperatorGraph) -> OperatorGraph:
    """Take dropouts out and switch attention dropout off: a forward-only pass drops nothing."""
    source: dict[str, str] = {}
    operators = []
    for op in graph.operators:
        inputs = tuple(source.get(t, t) for t in op.inputs)
        if op.kind is OpKind.ELEMENTWISE and word(op, "function") == "dropout":
            source[op.outputs[0]] = inputs[0]
        elif op.kind is OpKind.ATTENTION:
            attributes = MappingProxyType({**op.attributes, "dropout": False})
            operators.append(replace(op, inputs=inputs, attributes=attributes))
        else:
            operators.append(replace(op, inputs=inputs))
    outputs = tuple(source.get(t, t) for t in graph.outputs)
    return replace(graph, operators=tuple(operators), outputs=outputs)
