"""What many strategies share: layers, their division into chunks, what is recomputed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Floats, Integers
from phaze.placement.strategy.division import Division
from phaze.placement.strategy.estimate import Estimator
from phaze.placement.strategy.load import boundary_bytes
from phaze.placement.strategy.needs import ChunkNeeds, recomputed
from phaze.placement.strategy.passes import ChunkPasses, GroupPasses
from phaze.placement.strategy.strategy import Strategy


@dataclass(frozen=True)
class Bases:
    """Strategies (B,) of one number of chunks (C), cut into the same groups of layers (G).

    `which` (V,): the one that each of many is, but for replicas, schedule, ZeRO and order.
    """

    estimator: Estimator
    strategies: tuple[Strategy, ...]
    which: Integers

    @classmethod
    def of(cls, estimator: Estimator, strategies: Sequence[Strategy]) -> Bases:
        """Of many strategies."""
        found: dict[Hashable, int] = {}
        which = np.array([found.setdefault(_base(s), len(found)) for s in strategies])
        first = np.unique(which, return_index=True)[1]
        return cls(estimator, tuple(strategies[at] for at in first.tolist()), which)

    @cached_property
    def divisions(self) -> list[Division]:
        """The chunks of each."""
        return [self.estimator.division(s) for s in self.strategies]

    @cached_property
    def first_groups(self) -> Integers:
        """The group that every chunk starts with, (B, C)."""
        return np.array([division.first_groups for division in self.divisions])

    @cached_property
    def again(self) -> Flags:
        """Groups that run again, (B, G)."""
        return np.array([recomputed(d, s) for d, s in zip(self.divisions, self.strategies, strict=True)])

    @cached_property
    def groups(self) -> GroupPasses:
        """What every group of layers takes, without exchanges of ZeRO."""
        return GroupPasses(np.array([self.estimator.passes(s) for s in self.strategies]))

    @property
    def passes(self) -> ChunkPasses:
        """The same of every chunk, (B, C)."""
        return self.groups.chunks(self.first_groups, self.again, self.estimator.framework)

    @property
    def sent_bytes(self) -> Floats:
        """What goes from each chunk to the next, (B, C - 1)."""
        chains = [self.estimator.figures(s).chain for s in self.strategies]
        return np.array([boundary_bytes(*each) for each in zip(chains, self.divisions, strict=True)])

    @property
    def sizes(self) -> tuple[Floats, NDArray[np.intp]]:
        """`LayerFigures.parameters` of distinct groups, (3, B, K); which each group is (G,)."""
        each = [self.estimator.figures(s).sizes(s.grain) for s in self.strategies]
        stacked = np.concatenate([sizes[:, which] for sizes, which in each])
        distinct, which = np.unique(stacked, axis=1, return_inverse=True)
        return distinct.reshape(-1, 3, distinct.shape[1]).transpose(1, 0, 2), which.ravel()

    @property
    def held(self) -> Floats:
        """`LayerFigures.parameters` of every chunk, and its groups of layers, (4, B, C)."""
        found = []
        for s, division in zip(self.strategies, self.divisions, strict=True):
            sizes = np.add.reduceat(self.estimator.figures(s).parameters, division.first_layers, axis=1)
            found.append([*sizes, [last + 1 - first for first, last in division.chunks]])
        return np.array(found, dtype=np.float64).transpose(1, 0, 2)

    @property
    def tied(self) -> Floats:
        """Parameters that the first and the last device both have, (B,)."""
        figures = (self.estimator.figures(s) for s in self.strategies)
        return np.array([each.tied_parameters for each in figures], dtype=np.float64)

    @cached_property
    def needs(self) -> ChunkNeeds:
        """What every chunk needs of memory, (B, C)."""
        e, rows = self.estimator, zip(self.strategies, self.divisions, self.again, strict=True)
        each = [ChunkNeeds.of(e.needs(s), division, again) for s, division, again in rows]
        return ChunkNeeds(*(np.array([getattr(one, f.name) for one in each]) for f in fields(ChunkNeeds)))


def _base(strategy: Strategy) -> Hashable:
    s = strategy
    return (
        s.microbatch,
        s.sharding,
        s.recompute,
        s.recomputed,
        s.kept,
        s.offloaded,
        s.stages,
        s.grain,
        s.joins_ends,
    )
