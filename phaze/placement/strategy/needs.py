"""What layers keep in memory, by groups of them and by chunks of a pipeline, whatever ranks divide."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.placement.cluster import Recompute
from phaze.placement.strategy.again import named
from phaze.placement.strategy.division import Division
from phaze.placement.strategy.strategy import Strategy
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.work import Layer, LayerChain

INPUT = "input"
"""Name of the tensor that a group of layers starts from, among those that lie in the memory of the host."""


@dataclass(frozen=True)
class GroupNeeds:
    """What every group of layers holds on a device, (G,) each.

    `shared`, `experts`, `whole`: parameters, the last of layers that tensor ranks keep whole; `scaled_bytes`: copies of
    them in few bits. `saved_bytes`, `spared_bytes`: kept of a microbatch for backward (in inference its key-value
    cache), and what is kept instead where the group recomputes; `away_bytes`: what its host then keeps.
    `working_bytes`: alive only while a layer runs. `scores_bytes`: what the loss reads.
    """

    shared: Floats
    experts: Floats
    scaled_bytes: Floats
    whole: Floats
    saved_bytes: Floats
    spared_bytes: Floats
    away_bytes: Floats
    working_bytes: Floats
    scores_bytes: Floats

    @classmethod
    def of(
        cls,
        chain: LayerChain,
        division: Division,
        kept: Set[str] = frozenset(),
        offloaded: Set[str] = frozenset(),
    ) -> GroupNeeds:
        """Needs of the groups of a division; with sequence parallelism a device keeps its own part of an input.

        `kept`, `offloaded`: as of a strategy.
        """
        groups = [[chain.layers[i] for i in chain.index[a : b + 1]] for a, b in division.groups]
        divided = chain.sharding.tensor if chain.sharding.sequence else 1
        experts, kinds = _sums(groups, "expert_parameters"), chain.sharding.whole
        whole = _sums([[one for one in some if one.shardable in kinds] for some in groups], "parameters")
        losses = [[layer for layer in layers if layer.kind == OpKind.LOSS] for layers in groups]
        inputs = np.array([layers[0].input_bytes / divided for layers in groups])
        at_host = INPUT in offloaded
        return cls(
            shared=_sums(groups, "parameters") - experts - whole,
            experts=experts,
            scaled_bytes=_sums(groups, "scaled_weight_bytes"),
            whole=whole,
            saved_bytes=_sums(groups, "saved_bytes") + _sums(groups, "cache_bytes"),
            spared_bytes=(not at_host) * inputs + [_results_bytes(layers, kept) for layers in groups],
            away_bytes=at_host * inputs + [_results_bytes(layers, offloaded) for layers in groups],
            working_bytes=np.array([max(layer.working_bytes for layer in layers) for layers in groups]),
            scores_bytes=_sums(losses, "saved_bytes"),
        )

    def take(self, groups: NDArray[np.intp]) -> GroupNeeds:
        """Those of some groups."""
        return GroupNeeds(*(getattr(self, f.name)[groups] for f in fields(self)))

    @property
    def parameters(self) -> Floats:
        """All of them, (G,)."""
        return self.shared + self.experts + self.whole


def _results_bytes(layers: Sequence[Layer], kept: Set[str]) -> float:
    """Results of the products of a group that have the names."""
    works = (work for layer in layers for work in layer.forward.works if named(work, kept))
    return sum(work.gemms[-1].c_bytes for work in works if work.gemms)


def _sums(groups: Sequence[Sequence[Layer]], field: str) -> Floats:
    return np.array([sum(getattr(layer, field) for layer in layers) for layers in groups], dtype=np.float64)


@dataclass(frozen=True)
class ChunkNeeds:
    """The same of every chunk, (C,) each, whatever the schedule and whatever ranks divide.

    `kept_bytes`: of a microbatch, for backward; `away_bytes`: what its host keeps instead. `working_bytes` has what a
    group keeps where it recomputes. `largest`: parameters of the largest group that repeats, `ends` those of all that
    do not (embeddings, head). `widest_bytes`: what one group keeps, at most. Of several choices of groups that
    recompute, `kept_bytes`, `away_bytes`, `working_bytes` and `widest_bytes` have one row each, (..., C).
    """

    shared: Floats
    experts: Floats
    scaled_bytes: Floats
    whole: Floats
    kept_bytes: Floats
    away_bytes: Floats
    working_bytes: Floats
    largest: Floats
    ends: Floats
    scores_bytes: Floats
    widest_bytes: Floats

    @classmethod
    def of(cls, groups: GroupNeeds, division: Division, again: NDArray[np.bool_]) -> ChunkNeeds:
        """Needs of the chunks of a division whose groups recompute or not, (..., G)."""
        first, g, body = division.first_groups, groups, np.array(division.body)
        kept = np.where(again, g.spared_bytes, g.saved_bytes)
        return cls(
            shared=np.add.reduceat(g.shared, first),
            experts=np.add.reduceat(g.experts, first),
            scaled_bytes=np.add.reduceat(g.scaled_bytes, first),
            whole=np.add.reduceat(g.whole, first),
            kept_bytes=np.add.reduceat(kept, first, axis=-1),
            away_bytes=np.add.reduceat(again * g.away_bytes, first, axis=-1),
            working_bytes=np.maximum.reduceat(g.working_bytes + again * g.saved_bytes, first, axis=-1),
            largest=np.maximum.reduceat(body * g.parameters, first),
            ends=np.add.reduceat(~body * g.parameters, first),
            scores_bytes=np.add.reduceat(g.scores_bytes, first),
            widest_bytes=np.maximum.reduceat(kept, first, axis=-1),
        )

    def take(self, rows: NDArray[np.int64]) -> ChunkNeeds:
        """Those of some of many models, (B, C) each."""
        return ChunkNeeds(*(getattr(self, f.name)[rows] for f in fields(self)))


def recomputed(division: Division, strategy: Strategy) -> NDArray[np.bool_]:
    """Groups (G,) that run their forward pass again: the first so many of the repeated ones of every chunk."""
    if strategy.recompute is not Recompute.FULL:
        return np.zeros(len(division.groups), dtype=bool)
    said = strategy.recomputed
    return division.first_blocks(
        division.blocks if said is None else np.broadcast_to(said, len(division.chunks))
    )
