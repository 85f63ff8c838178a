"""Bytes that a device of each stage needs under a strategy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from phaze.arrays import Floats
from phaze.placement.strategy.framework import Framework
from phaze.placement.strategy.iteration import MemoryBreakdown
from phaze.placement.strategy.needs import ChunkNeeds
from phaze.placement.strategy.strategy import Offload, Strategy, Zero
from phaze.workload.workload import Numerics


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Bytes per parameter."""

    weight: float
    gradient: float
    optimizer: float

    @classmethod
    def of(cls, numerics: Numerics, framework: Framework) -> StateBytes:
        """As the workload's numerics have it, where the framework does not say otherwise."""
        rest = numerics.state_bytes - numerics.weight_bytes - numerics.gradient_bytes
        said = framework.weight_bytes, framework.gradient_bytes, framework.optimizer_bytes
        known = numerics.weight_bytes, numerics.gradient_bytes, rest
        return cls(*(k if s is None else s for s, k in zip(said, known, strict=True)))


@dataclass(frozen=True)
class StrategyMemory:
    """Memory of the devices of a pipeline that hold some of the chunks each, under one strategy.

    `divided_by`: ranks that divide shared parameters, those of experts and whole ones where more strategies differ in
    nothing else, (V, 1) each, whose chunks need (V, C); None: the strategy's own.
    """

    needs: ChunkNeeds
    strategy: Strategy
    framework: Framework
    numerics: Numerics
    divided_by: Sequence[ArrayLike] | None = None

    def devices(self, chunks: ArrayLike, held: ArrayLike) -> tuple[MemoryBreakdown, ...]:
        """Needs of every device: its `chunks` (p, slots), and microbatches in flight for each (p, K, slots).

        Of K combinations of microbatches in flight the one that needs most counts.
        """
        own = np.asarray(chunks)
        none = np.zeros(len(own))
        live, buffers = self.activations_bytes(own, held), self._passing(own)
        reserved, host = none + self.framework.reserved_bytes, self.host_bytes(own, held)
        columns = np.array([*self.states_bytes(own), *live, buffers, reserved, host])
        return tuple(MemoryBreakdown(*row) for row in columns.T.tolist())

    def fixed_bytes(self, chunks: ArrayLike) -> Floats:
        """What every device, (..., p), needs whatever is recomputed."""
        own = np.asarray(chunks)
        weights, gradients, states = self.states_bytes(own)
        return weights + gradients + states + self._passing(own) + self.framework.reserved_bytes

    def states_bytes(self, own: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
        """Weights, gradients and optimizer states that every device itself keeps, (..., p) each."""
        weights, gradients, states = self._states_bytes(own)
        none, offload = np.zeros_like(weights), self.strategy.offload
        if Offload.OPTIMIZER in offload:
            gradients = states = none
        return (none if Offload.WEIGHTS in offload else weights), gradients, states

    def host_bytes(self, own: NDArray[np.int64], held: ArrayLike) -> Floats:
        """What every device keeps in the memory of its host, (..., p)."""
        offload = self.strategy.offload
        if not offload and not self.strategy.offloaded:
            return np.zeros(len(own))
        weights, gradients, states = self._states_bytes(own)
        found = _held_bytes(self.needs.away_bytes, own, held)
        if Offload.ACTIVATIONS in offload:
            found = found + _held_bytes(self.needs.kept_bytes, own, held)
        if Offload.OPTIMIZER in offload:
            found = found + gradients + states
        return found + weights if Offload.WEIGHTS in offload else found

    def _states_bytes(self, own: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
        """The same wherever they lie."""
        s, n, state = self.strategy, self.needs, self._state
        whole = self._parameters(own)
        each = (n.shared, n.experts, n.whole)
        divided = divided_parameters(self._ranks, *(some[..., own].sum(axis=-1) for some in each))
        always = self.framework.reduces_every_microbatch
        weights = state.weight * (divided if s.zero >= Zero.WEIGHTS else whole)
        gradients = state.gradient * (divided if s.zero >= Zero.GRADIENTS and always else whole)
        states = state.optimizer * (divided if s.zero >= Zero.OPTIMIZER else whole)
        if s.zero < Zero.WEIGHTS:  # what is gathered anew is scaled anew
            weights = weights + n.scaled_bytes[..., own].sum(axis=-1)
        return weights, gradients, states

    def activations_bytes(self, own: NDArray[np.int64], held: ArrayLike) -> tuple[Floats, Floats]:
        """What is kept for backward, and what lives while a layer runs, (..., p) each."""
        n, lost = self.needs, 1 + self.framework.fragmentation
        kept = _held_bytes(n.kept_bytes, own, held)
        if Offload.ACTIVATIONS in self.strategy.offload:
            kept = np.minimum(kept, 2 * n.widest_bytes[..., own].max(axis=-1))
        scores = self.framework.score_copies * n.scores_bytes[..., own].sum(axis=-1)
        return lost * kept, lost * (n.working_bytes[..., own].max(axis=-1) + scores)

    def _parameters(self, own: NDArray[np.int64]) -> Floats:
        n = self.needs
        found: Floats = (n.shared + n.experts + n.whole)[..., own].sum(axis=-1)
        return found

    @property
    def _state(self) -> StateBytes:
        return StateBytes.of(self.numerics, self.framework)

    @property
    def _ranks(self) -> Sequence[ArrayLike]:
        return self.divided_by or ranks_of(self.strategy)

    def _passing(self, own: NDArray[np.int64]) -> Floats:
        """Weights gathered or fetched, and gradients of two groups on their way to the host."""
        s, state, found = self.strategy, self._state, np.zeros((*self.needs.shared.shape[:-1], len(own)))
        if s.zero >= Zero.WEIGHTS or Offload.WEIGHTS in s.offload:
            found = found + self._gathered(own)
        if Offload.OPTIMIZER in s.offload:
            ranks = np.asarray(self._ranks[0] if s.zero >= Zero.GRADIENTS else 1)
            found = found + state.gradient * self._passing_parameters(own) / ranks
        return found

    def _gathered(self, own: NDArray[np.int64]) -> Floats:
        """Weights that are whole (ZeRO 3): of the group that runs, of the one gathered ahead, of embeddings and head.

        The gradients of the latter wait for the end of backward. Without resharding all weights are whole.
        """
        said = self.framework.gathered_bytes
        each = self.numerics.weight_bytes if said is None else said
        ends = self.needs.ends[..., own].sum(axis=-1)
        waiting = self.numerics.weight_bytes * ends * (self.strategy.zero >= Zero.WEIGHTS)
        if not self.strategy.reshards and Offload.WEIGHTS not in self.strategy.offload:
            whole: Floats = each * self._parameters(own) + waiting
            return whole
        found: Floats = each * (self._passing_parameters(own) + ends) + waiting
        return found

    def _passing_parameters(self, own: NDArray[np.int64]) -> Floats:
        """Of two of the groups that repeat, or of all where there are no two, (..., p)."""
        n = self.needs
        body = self._parameters(own) - n.ends[..., own].sum(axis=-1)
        found: Floats = np.minimum(2 * n.largest[..., own].max(axis=-1), body)
        return found


def _held_bytes(each: Floats, own: NDArray[np.int64], held: ArrayLike) -> Floats:
    """Most of what microbatches in flight (p, K, slots) keep on every device, `each` (..., C) for a chunk: (..., p)."""
    found: Floats = (np.asarray(held) * each[..., own][..., None, :]).sum(axis=-1).max(axis=-1)
    return found


def ranks_of(strategy: Strategy) -> tuple[int, int, int]:
    """Ranks that ZeRO divides shared parameters, those of experts, and whole ones over."""
    s = strategy
    ranks = s.shard_group or s.replicas
    return ranks, s.expert_replicas, ranks * s.sharding.tensor


def divided_parameters(ranks: Sequence[ArrayLike], shared: Floats, experts: Floats, whole: Floats) -> Floats:
    """What a device has of parameters that ZeRO divides over the ranks with the same ones, of each sort."""
    found: Floats = (
        shared / np.asarray(ranks[0]) + experts / np.asarray(ranks[1]) + whole / np.asarray(ranks[2])
    )
    return found
