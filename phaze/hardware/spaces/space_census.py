"""Count the architectures of a space: the grid, what its constraints leave, what each budget rules out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from phaze.arrays import Floats
from phaze.hardware.budgets import Limit, weigh
from phaze.hardware.spaces.design_space import DesignSpace


@dataclass(frozen=True)
class Extent:
    """Some architectures: how many, and from the smallest to the largest area (mm2) and TDP (W).

    The ends are infinite where there is none. Extents of blocks combine with `merge`.
    """

    count: int = 0
    area_mm2: tuple[float, float] = (math.inf, -math.inf)
    tdp_w: tuple[float, float] = (math.inf, -math.inf)

    @classmethod
    def of(cls, area: Floats, power: Floats) -> Extent:
        """The extent of the architectures with these areas and powers."""
        return cls(len(area), _ends(area), _ends(power))

    def merge(self, other: Extent) -> Extent:
        """Both together."""
        return Extent(
            self.count + other.count,
            _widest(self.area_mm2, other.area_mm2),
            _widest(self.tdp_w, other.tdp_w),
        )


@dataclass(frozen=True)
class Census:
    """Numbers of architectures of a space: `grid` before its constraints, `all` with them, `within` the budgets.

    `over` counts for each limit those it rules out, whatever other limits do.
    """

    grid: int
    all: Extent
    within: Extent
    over: Mapping[Limit, int] = field(default_factory=dict)


def census(
    space: DesignSpace,
    power_w: float | None = None,
    area_limit_mm2: float | None = None,
    margin: float = 1.0,
    power_density_w_per_mm2: float | None = None,
) -> Census:
    """Count the whole space, block by block; None is no budget, TDP counts with `margin`."""
    everything, within = Extent(), Extent()
    # Nobody asks a census for prices.
    over: dict[Limit, int] = dict.fromkeys((limit for limit in Limit if limit is not Limit.PRICE), 0)
    for _, table in space.blocks():
        found = weigh(table, power_w, area_limit_mm2, margin, power_density_w_per_mm2)
        fits, area, power = found.kept, found.area_mm2, found.tdp_w
        everything = everything.merge(Extent.of(area, power))
        within = within.merge(Extent.of(area[fits], power[fits]))
        over = {limit: count + int(found.over[limit].sum()) for limit, count in over.items()}
    return Census(space.grid_size, everything, within, over)


def _ends(values: Floats) -> tuple[float, float]:
    return float(np.min(values, initial=math.inf)), float(np.max(values, initial=-math.inf))


def _widest(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return min(one[0], other[0]), max(one[1], other[1])
