"""Memory footprint of a plan: bytes of groups of layers and of chunks, and those of a device of each stage."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phaze.arrays import Flags, Floats, Integers
from phaze.parallel.chunk_division import Division
from phaze.parallel.cluster import Recompute
from phaze.parallel.framework import Framework, ParameterBytes
from phaze.parallel.parallel_plan import NOTHING, Offload, ParallelPlan, Zero
from phaze.parallel.training.iteration import MemoryBreakdown
from phaze.parallel.training.memory.recomputation import has_name
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.work import Layer, LayerChain
from phaze.workload.workload import Numerics

INPUT = "input"
"""Name of the tensor that a group of layers starts from, among those that lie in the memory of the host."""


@dataclass(frozen=True)
class GroupFootprint:
    """Memory footprint of every group of layers on a device, (G,) each.

    `shared`, `experts`, `whole`: parameters, the last of layers that tensor ranks keep whole; `scaled_bytes`: copies of
    them in few bits; `frozen_bytes`: weights that are not trained. `saved_bytes`, `spared_bytes`: kept of a microbatch
    for backward (in inference its key-value cache), and what is kept instead where the group recomputes; `away_bytes`:
    what its host then keeps, `again_bytes` what it then keeps of itself while its backward pass runs.
    `working_bytes`: alive only while a layer runs. `scores_bytes`: what the loss reads.
    """

    shared: Floats
    experts: Floats
    scaled_bytes: Floats
    frozen_bytes: Floats
    replicated: Floats
    saved_bytes: Floats
    spared_bytes: Floats
    away_bytes: Floats
    again_bytes: Floats
    working_bytes: Floats
    scores_bytes: Floats

    @classmethod
    def of(
        cls,
        chain: LayerChain,
        division: Division,
        kept: Set[str] = frozenset(),
        offloaded: Set[str] = frozenset(),
    ) -> GroupFootprint:
        """Needs of the groups of a division; with sequence parallelism a device keeps its own part of an input.

        `kept`, `offloaded`: as of a plan.
        """
        kinds: dict[tuple[int, ...], int] = {}
        which = [kinds.setdefault(chain.index[a : b + 1], len(kinds)) for a, b in division.groups]
        groups = [[chain.layers[i] for i in one] for one in kinds]
        divided = chain.sharding.tensor if chain.sharding.sequence else 1
        experts, replicated = _sums(groups, "expert_parameters"), chain.sharding.replicated
        whole = _sums([[one for one in some if one.shardable in replicated] for some in groups], "parameters")
        losses = [[layer for layer in layers if layer.kind == OpKind.LOSS] for layers in groups]
        inputs = np.array([layers[0].input_bytes / divided for layers in groups])
        at_host = INPUT in offloaded
        saved = _sums(groups, "saved_bytes") + _sums(groups, "cache_bytes")
        found = cls(
            shared=_sums(groups, "parameters") - experts - whole,
            experts=experts,
            scaled_bytes=_sums(groups, "scaled_weight_bytes"),
            frozen_bytes=_sums(groups, "frozen_weight_bytes"),
            replicated=whole,
            saved_bytes=saved,
            spared_bytes=(not at_host) * inputs + [_results_bytes(layers, kept) for layers in groups],
            away_bytes=at_host * inputs + [_results_bytes(layers, offloaded) for layers in groups],
            again_bytes=saved,
            working_bytes=np.array([max(layer.working_bytes for layer in layers) for layers in groups]),
            scores_bytes=_sums(losses, "saved_bytes"),
        )
        return found.take(np.array(which))

    @classmethod
    def stacked(cls, models: Sequence[GroupFootprint]) -> GroupFootprint:
        """Footprint of models of as many groups, (B, 1, G)."""
        each = (np.array([getattr(one, f.name) for one in models]) for f in fields(cls))
        return cls(*(values[:, None] for values in each))

    def take(self, groups: NDArray[np.intp]) -> GroupFootprint:
        """Footprint of some groups."""
        return GroupFootprint(*(getattr(self, f.name)[groups] for f in fields(self)))

    @property
    def parameters(self) -> Floats:
        """Parameters of all sorts, (G,)."""
        return self.shared + self.experts + self.replicated

    def weights_of(self, some: Flags) -> GroupFootprint:
        """Footprint of the weights of some groups alone, (..., G): others have none."""
        sorts = ("shared", "experts", "replicated", "scaled_bytes")
        return replace(self, **{sort: getattr(self, sort) * some for sort in sorts})


def _results_bytes(layers: Sequence[Layer], kept: Set[str]) -> float:
    """Results of the products of a group that have the names."""
    works = (work for layer in layers for work in layer.forward.works if has_name(work, kept))
    return sum(work.gemms[-1].c_bytes for work in works if work.gemms)


def _sums(groups: Sequence[Sequence[Layer]], field: str) -> Floats:
    return np.array([sum(getattr(layer, field) for layer in layers) for layers in groups], dtype=np.float64)


@dataclass(frozen=True)
class ChunkFootprint:
    """Memory footprint of every chunk, (C,) each, whatever the schedule and whatever ranks divide.

    `kept_bytes`: of a microbatch, for backward; `away_bytes`: what its host keeps instead. `working_bytes` has what a
    group keeps where it recomputes. `largest`: parameters of the largest group that repeats, `ends` those of all that
    do not (embeddings, head). `widest_bytes`: what one group keeps, at most. Of several choices of groups that
    recompute, `kept_bytes`, `away_bytes`, `working_bytes` and `widest_bytes` have one row each, (..., C).
    """

    shared: Floats
    experts: Floats
    scaled_bytes: Floats
    frozen_bytes: Floats
    replicated: Floats
    kept_bytes: Floats
    away_bytes: Floats
    working_bytes: Floats
    largest: Floats
    ends: Floats
    scores_bytes: Floats
    widest_bytes: Floats

    @classmethod
    def of(
        cls, groups: GroupFootprint, division: Division, recomputation: NDArray[np.bool_]
    ) -> ChunkFootprint:
        """Needs of the chunks of a division whose groups recompute or not, (..., G)."""
        return cls.cut(groups, division.first_groups, division.body, recomputation)

    @classmethod
    def cut(
        cls,
        groups: GroupFootprint,
        first_groups: Integers,
        body: Sequence[bool],
        recomputation: NDArray[np.bool_],
    ) -> ChunkFootprint:
        """Needs of chunks that start with some groups, (C,), or of many models (B, C) with groups (B, ..., G)."""
        g, repeats = groups, np.array(body)
        kept = np.where(recomputation, g.spared_bytes, g.saved_bytes)

        def total(values: Floats) -> Floats:
            return _by_chunk(np.add, values, first_groups)

        def most(values: Floats) -> Floats:
            return _by_chunk(np.maximum, values, first_groups)

        kept_bytes = total(kept)
        away = total(recomputation * g.away_bytes) if g.away_bytes.any() else np.zeros_like(kept_bytes)
        return cls(
            shared=total(g.shared),
            experts=total(g.experts),
            scaled_bytes=total(g.scaled_bytes),
            frozen_bytes=total(g.frozen_bytes),
            replicated=total(g.replicated),
            kept_bytes=kept_bytes,
            away_bytes=away,
            working_bytes=most(g.working_bytes + recomputation * g.again_bytes),
            largest=most(repeats * g.parameters),
            ends=total(~repeats * g.parameters),
            scores_bytes=total(g.scores_bytes),
            widest_bytes=most(kept),
        )

    @property
    def parameters(self) -> Floats:
        """Parameters of all sorts, (..., C)."""
        return self.shared + self.experts + self.replicated

    def on_devices(self, figure: str, own: NDArray[np.int64]) -> Floats:
        """Sums of a figure over the chunks of every device, (..., p), which plans that differ in ZeRO share."""
        key = figure, id(own)
        if key not in self._known:
            self._known[key] = own, getattr(self, figure)[..., own].sum(axis=-1)
        return self._known[key][1]

    @cached_property
    def _known(self) -> dict[tuple[str, int], tuple[NDArray[np.int64], Floats]]:
        """Sums that were asked for, with the chunks of the devices."""
        return {}

    def take(self, rows: NDArray[np.int64]) -> ChunkFootprint:
        """Footprint of some of many models, (B, C) each."""
        return ChunkFootprint(*(getattr(self, f.name)[rows] for f in fields(self)))


def _by_chunk(combine: np.ufunc, values: Floats, first_groups: Integers) -> Floats:
    """Values of groups (..., G) combined by chunk, (..., C); of many models (B, ..., G) each with cuts of its own."""
    if first_groups.ndim == 1:
        found: Floats = combine.reduceat(values, first_groups, axis=-1)
        return found
    lead, count = values.shape[:-1], values.shape[-1]
    starts = count * np.arange(np.prod(lead)).reshape(lead)
    cuts = first_groups.reshape(len(first_groups), *[1] * (len(lead) - 1), -1)
    summed = combine.reduceat(values.reshape(-1), (starts[..., None] + cuts).ravel())
    return np.asarray(summed.reshape(*lead, -1))


def recomputed_groups(division: Division, plan: ParallelPlan) -> NDArray[np.bool_]:
    """Groups (G,) that run their forward pass again, or a part of it.

    The first so many of the repeated ones of every chunk, or those of which the plan says so itself.
    """
    if plan.recompute is not Recompute.FULL:
        return np.zeros(len(division.groups), dtype=bool)
    if plan.layers:
        found = np.zeros(len(division.groups), dtype=bool)
        again = [one.again != NOTHING for one in plan.layers]
        found[np.flatnonzero(division.body)] = np.repeat(again, [one.blocks for one in plan.layers])
        return found
    recomputed = plan.recomputed
    return division.first_blocks(
        division.blocks if recomputed is None else np.broadcast_to(recomputed, len(division.chunks))
    )


def sharded_groups(division: Division, plan: ParallelPlan) -> Flags:
    """Groups (G,) whose weights replicas divide beside others that each keeps whole."""
    found = np.zeros(len(division.groups), dtype=np.bool_)
    if plan.shards_layers:
        sharded = [run.sharded for run in plan.layers]
        found[np.flatnonzero(division.body)] = np.repeat(sharded, [run.blocks for run in plan.layers])
    return found


@dataclass(frozen=True)
class PlanMemory:
    """Memory of the devices of a pipeline that hold some of the chunks each, under one plan.

    `state`: bytes of a parameter. `divided_by`: ranks that divide shared parameters, those of experts and whole ones
    where more plans differ in nothing else, (V, 1) each, whose chunks need (V, C); None: the plan's own. `sharded`:
    weights that replicas divide where these are some groups' alone.
    """

    footprint: ChunkFootprint
    plan: ParallelPlan
    framework: Framework
    numerics: Numerics
    state: ParameterBytes
    divided_by: Sequence[ArrayLike] | None = None
    sharded: ChunkFootprint | None = None

    def devices(
        self, chunks: ArrayLike, held: ArrayLike, waiting_bytes: ArrayLike = 0.0
    ) -> tuple[MemoryBreakdown, ...]:
        """Needs of every device: its `chunks` (p, slots), and microbatches in flight for each (p, K, slots).

        Of K combinations of microbatches in flight the one that needs most counts. `waiting_bytes` (p,): tensors from
        other devices that are not yet read.
        """
        own = np.asarray(chunks)
        none = np.zeros(len(own))
        (kept, working), buffers = self.activations_bytes(own, held), self._passing(own)
        live = kept + (1 + self.framework.fragmentation) * np.asarray(waiting_bytes), working
        reserved, host = none + self.framework.reserved_bytes, self.host_bytes(own, held)
        columns = np.array([*self.states_bytes(own), *live, buffers, reserved, host])
        return tuple(MemoryBreakdown(*row) for row in columns.T.tolist())

    def fixed_bytes(self, chunks: ArrayLike) -> Floats:
        """Bytes of every device, (..., p), whatever is recomputed."""
        own = np.asarray(chunks)
        weights, gradients, states = self.states_bytes(own)
        return weights + gradients + states + self._passing(own) + self.framework.reserved_bytes

    def states_bytes(self, own: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
        """Weights, gradients and optimizer states that every device itself keeps, (..., p) each."""
        weights, gradients, states = self._states_bytes(own)
        none, offload = np.zeros_like(weights), self.plan.offload
        if Offload.OPTIMIZER in offload:
            gradients = states = none
        return (none if Offload.WEIGHTS in offload else weights), gradients, states

    def host_bytes(self, own: NDArray[np.int64], held: ArrayLike) -> Floats:
        """Bytes of every device in the memory of its host, (..., p)."""
        offload = self.plan.offload
        if not offload and not self.plan.offloaded:
            return np.zeros(len(own))
        weights, gradients, states = self._states_bytes(own)
        found = _in_flight_bytes(self.footprint.away_bytes, own, held)
        if Offload.ACTIVATIONS in offload:
            found = found + _in_flight_bytes(self.footprint.kept_bytes, own, held)
        if Offload.OPTIMIZER in offload:
            found = found + gradients + states
        return found + weights if Offload.WEIGHTS in offload else found

    def _states_bytes(self, own: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
        """Bytes of weights, gradients and optimizer states under ZeRO, wherever they lie, (..., p) each.

        Each is bytes x parameters, divided by the D ranks of its sort: optimizer states from stage 1, gradients from
        stage 2 (where they are reduced after every microbatch), weights from stage 3 (Rajbhandari et al., arXiv
        1910.02054, section 3.1).
        """
        s, n, state = self.plan, self.footprint, self.state
        whole = self._parameters(own)
        divided = whole
        if s.zero >= Zero.OPTIMIZER:
            each = (n.on_devices(sort, own) for sort in ("shared", "experts", "replicated"))
            divided = divided_parameters(self._ranks, *each)
        always = self.framework.reduces_every_microbatch
        weights = state.weight * (divided if s.zero >= Zero.WEIGHTS else whole)
        gradients = state.gradient * (divided if s.zero >= Zero.GRADIENTS and always else whole)
        states = state.optimizer * (divided if s.zero >= Zero.OPTIMIZER else whole)
        if (some := self.sharded) is not None:
            each = (some.on_devices(sort, own) for sort in ("shared", "experts", "replicated"))
            saved = some.on_devices("parameters", own) - divided_parameters(self._ranks, *each)
            gradients = gradients - state.gradient * saved * always
            weights = weights - state.weight * saved - some.on_devices("scaled_bytes", own)
        if s.zero < Zero.WEIGHTS:  # what is gathered anew is scaled anew
            weights = weights + n.on_devices("scaled_bytes", own)
        weights = weights + n.on_devices("frozen_bytes", own)
        return weights, gradients, states

    def activations_bytes(self, own: NDArray[np.int64], held: ArrayLike) -> tuple[Floats, Floats]:
        """Bytes of activations kept for backward, and of those that live while a layer runs, (..., p) each.

        kept = (1 + fragmentation) x max over moments of the sum over chunks of microbatches in flight x kept per chunk;
        live = (1 + fragmentation) x (max working + score copies x scores). What a transformer block keeps agrees with
        Korthikanti et al. (arXiv 2205.05198); see docs/reference/formulas/memory.md.
        """
        n, lost = self.footprint, 1 + self.framework.fragmentation
        kept = _in_flight_bytes(n.kept_bytes, own, held)
        if Offload.ACTIVATIONS in self.plan.offload:
            kept = np.minimum(kept, 2 * n.widest_bytes[..., own].max(axis=-1))
        scores = self.framework.score_copies * n.on_devices("scores_bytes", own)
        return lost * kept, lost * (n.working_bytes[..., own].max(axis=-1) + scores)

    def _parameters(self, own: NDArray[np.int64]) -> Floats:
        return self.footprint.on_devices("parameters", own)

    @property
    def _ranks(self) -> Sequence[ArrayLike]:
        return self.divided_by or ranks_of(self.plan)

    def _passing(self, own: NDArray[np.int64]) -> Floats:
        """Weights gathered or fetched, and gradients of two groups, or chunks that swap, on their way to the host."""
        s, state, found = self.plan, self.state, np.zeros((*self.footprint.shared.shape[:-1], len(own)))
        swaps = s.schedule.chunk_by_chunk
        if (some := self.sharded) is not None:  # the one that runs, and the one gathered ahead
            two, every = 2 * some.largest[..., own].max(axis=-1), some.on_devices("parameters", own)
            found = found + state.gathered * np.minimum(two, every)
        if s.zero >= Zero.WEIGHTS or (Offload.WEIGHTS in s.offload and not swaps):
            found = found + self._gathered(own)
        if Offload.WEIGHTS in s.offload and swaps:
            found = found + state.gathered * self._swapped_parameters(own, divided=s.zero >= Zero.WEIGHTS)
        if Offload.OPTIMIZER in s.offload and swaps:
            found = found + state.gradient * self._swapped_parameters(own, divided=s.zero >= Zero.GRADIENTS)
        elif Offload.OPTIMIZER in s.offload:
            ranks = np.asarray(self._ranks[0] if s.zero >= Zero.GRADIENTS else 1)
            found = found + state.gradient * self._passing_parameters(own) / ranks
        return found

    def _swapped_parameters(self, own: NDArray[np.int64], *, divided: bool) -> Floats:
        """Parameters of two of the chunks of every device, or of ranks' parts of them, (..., p)."""
        n, held = self.footprint, self.footprint.parameters
        if divided:
            held = divided_parameters(self._ranks, n.shared, n.experts, n.replicated)
        found: Floats = np.minimum(2 * held[..., own].max(axis=-1), held[..., own].sum(axis=-1))
        return found

    def _gathered(self, own: NDArray[np.int64]) -> Floats:
        """Weights that are whole (ZeRO 3): of the group that runs, of the one gathered ahead, of embeddings and head.

        The gradients of the latter wait for the end of backward. Without resharding all weights are whole.
        """
        each = self.state.gathered
        ends = self.footprint.on_devices("ends", own)
        waiting = self.numerics.weight_bytes * ends * (self.plan.zero >= Zero.WEIGHTS)
        if not self.plan.reshards and Offload.WEIGHTS not in self.plan.offload:
            whole: Floats = each * self._parameters(own) + waiting
            return whole
        found: Floats = each * (self._passing_parameters(own) + ends) + waiting
        return found

    def _passing_parameters(self, own: NDArray[np.int64]) -> Floats:
        """Parameters of two of the groups that repeat, or of all where there are no two, (..., p)."""
        n = self.footprint
        body = self._parameters(own) - n.on_devices("ends", own)
        found: Floats = np.minimum(2 * n.largest[..., own].max(axis=-1), body)
        return found


def _in_flight_bytes(each: Floats, own: NDArray[np.int64], held: ArrayLike) -> Floats:
    """Most of what microbatches in flight (p, K, slots) keep on every device, `each` (..., C) for a chunk: (..., p)."""
    found: Floats = (np.asarray(held) * each[..., own][..., None, :]).sum(axis=-1).max(axis=-1)
    return found


def ranks_of(plan: ParallelPlan) -> tuple[int, int, int]:
    """Ranks that ZeRO divides shared parameters, those of experts, and whole ones over."""
    s = plan
    ranks = s.shard_group or s.replicas
    return ranks, s.expert_replicas, ranks * s.sharding.tensor


def divided_parameters(ranks: Sequence[ArrayLike], shared: Floats, experts: Floats, whole: Floats) -> Floats:
    """Parameters per device of those that ZeRO divides over the ranks with the same ones, of each sort."""
    found: Floats = (
        shared / np.asarray(ranks[0]) + experts / np.asarray(ranks[1]) + whole / np.asarray(ranks[2])
    )
    return found
