"""The dynamic program over suffixes of the chain: cuts and types together, one table per number of stages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from phaze.solvers.arrays import Floats
from phaze.solvers.placement.mixed.problem import Line, MixedChain, MixedStage


def suffix_values(
    chain: MixedChain, inner: Floats, last: Floats, stages: int, join: np.ufunc
) -> list[Floats]:
    """f[s - 1] (L + 1,): least cost of layers i.. in exactly s stages, for s up to `stages`.

    `inner` (K, L, L), `last` (K, L): cost of a stage on each type, infinite where it is not allowed; the costs
    of stages are joined by `join`, a sum or a maximum.
    """
    below = np.tri(chain.layers, k=-1, dtype=np.bool_)
    groups = np.where(below, np.inf, chain.per_group(inner))
    tables = [np.append(last.min(axis=0), np.inf)]
    for depth in range(2, stages + 1):
        cost = np.where(chain.deepest >= depth, groups, np.inf).min(axis=0)
        tables.append(np.append(join(cost, tables[-1][None, 1:]).min(axis=1), np.inf))
    return tables


@dataclass(frozen=True)
class Within:
    """Plans of one line whose stages keep two limits: the load, and what is done once, both in seconds."""

    line: Line
    load_s: float
    once_s: float

    @cached_property
    def inner_w(self) -> Floats:
        """Power of a stage that is not the last one, infinite where it breaks a limit, (K, L, L)."""
        chain = self.line.chain
        allowed = (chain.inner_s <= self.load_s) & (self.line.once_s <= self.once_s)
        return np.where(allowed, chain.power_w[:, None, None], np.inf)

    @cached_property
    def last_w(self) -> Floats:
        """The same of a last stage that starts with layer i, (K, L)."""
        chain = self.line.chain
        allowed = (chain.last_s <= self.load_s) & (self.line.once_s[:, :, -1] <= self.once_s)
        return np.where(allowed, chain.power_w[:, None], np.inf)

    @cached_property
    def tables(self) -> list[Floats]:
        """Least sum of the stages' powers; see `suffix_values`."""
        return suffix_values(self.line.chain, self.inner_w, self.last_w, self.line.stages, np.add)

    @property
    def mean_power_w(self) -> float:
        """Least mean power of a device within the limits; infinite if no plan keeps them."""
        return float(self.tables[-1][0]) / self.line.stages

    def plan(self) -> tuple[MixedStage, ...]:
        """The plan of least power: the earliest cuts and the type of least power, then load, then number."""
        first, found = 0, []
        for depth in range(self.line.stages, 1, -1):
            cost = np.where(self._fits(first, depth), self.inner_w[:, first], np.inf)
            cost[:, :first] = np.inf
            last = int(np.add(cost.min(axis=0), self.tables[depth - 2][1:]).argmin())
            found.append(self._stage(first, last, cost[:, last], self.line.chain.inner_s[:, first, last]))
            first = last + 1
        chain = self.line.chain
        found.append(self._stage(first, chain.layers - 1, self.last_w[:, first], chain.last_s[:, first]))
        return tuple(found)

    def _fits(self, first: int, depth: int) -> Floats:
        chain = self.line.chain
        return np.asarray(chain.deepest[chain.group, first] >= depth)

    @staticmethod
    def _stage(first: int, last: int, power_w: Floats, load_s: Floats) -> MixedStage:
        return MixedStage(first, last, int(np.lexsort((load_s, power_w))[0]))
