"""Which architectures keep the budgets, and what the smallest budget would be that something keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from phaze.errors import Shortfall
from phaze.hardware.area import area_mm2, exceeds_reticle, exceeds_shoreline
from phaze.hardware.power import tdp_w
from phaze.hardware.table import ArchitectureTable

Mask = NDArray[np.bool_]


class Limit(StrEnum):
    """What can rule an architecture out."""

    POWER = "power"
    AREA = "area"
    RETICLE = "reticle"
    SHORELINE = "shoreline"


@dataclass(frozen=True)
class Demand:
    """Smallest power (W) and area (mm2) over architectures that can be built; infinite where there is none.

    `power_within_area_w` counts only those within the area budget, `area_within_power_mm2` those within
    the power budget. Demands of blocks of a space combine with `merge`.
    """

    power_w: float = math.inf
    area_mm2: float = math.inf
    power_within_area_w: float = math.inf
    area_within_power_mm2: float = math.inf

    def merge(self, other: Demand) -> Demand:
        """The demand over two sets of architectures together."""
        return Demand(
            min(self.power_w, other.power_w),
            min(self.area_mm2, other.area_mm2),
            min(self.power_within_area_w, other.power_within_area_w),
            min(self.area_within_power_mm2, other.area_within_power_mm2),
        )


def over_budget(
    table: ArchitectureTable,
    power_w: float | None = None,
    area_limit_mm2: float | None = None,
    margin: float = 1.0,
) -> dict[Limit, Mask]:
    """For each limit, the architectures it rules out; None is no budget. Power is TDP x `margin`."""
    area = area_mm2(table)
    none = np.zeros(len(table), dtype=np.bool_)
    return {
        Limit.POWER: none if power_w is None else tdp_w(table, margin) > power_w,
        Limit.AREA: none if area_limit_mm2 is None else area > area_limit_mm2,
        Limit.RETICLE: exceeds_reticle(table, area),
        Limit.SHORELINE: exceeds_shoreline(table, area),
    }


def within_budget(masks: dict[Limit, Mask]) -> Mask:
    """Architectures that no limit rules out."""
    return ~reduce(np.logical_or, masks.values())


def smallest_demand(
    table: ArchitectureTable,
    power_w: float | None = None,
    area_limit_mm2: float | None = None,
    margin: float = 1.0,
) -> Demand:
    """The smallest budgets that some architecture of the table would keep."""
    masks = over_budget(table, power_w, area_limit_mm2, margin)
    power, area = tdp_w(table, margin), area_mm2(table)
    built = ~(masks[Limit.RETICLE] | masks[Limit.SHORELINE])
    return Demand(
        _smallest(power, built),
        _smallest(area, built),
        _smallest(power, built & ~masks[Limit.AREA]),
        _smallest(area, built & ~masks[Limit.POWER]),
    )


def shortfalls(
    demand: Demand, power_w: float | None = None, area_limit_mm2: float | None = None
) -> tuple[Shortfall, ...]:
    """Why nothing keeps the budgets: each budget that is too small by itself, or both where only together."""
    power = math.inf if power_w is None else power_w
    area = math.inf if area_limit_mm2 is None else area_limit_mm2
    alone = []
    if demand.power_w > power:
        alone.append(_power_shortfall(power, demand.power_w))
    if demand.area_mm2 > area:
        alone.append(_area_shortfall(area, demand.area_mm2))
    if alone:
        return tuple(alone)
    together = []
    if power < demand.power_within_area_w < math.inf:
        together.append(_power_shortfall(power, demand.power_within_area_w))
    if area < demand.area_within_power_mm2 < math.inf:
        together.append(_area_shortfall(area, demand.area_within_power_mm2))
    return tuple(together)


def _power_shortfall(limit: float, demand: float) -> Shortfall:
    levers = ("lower the clock (--dvfs or --clock)", "take a newer node (--node)", "offer fewer HBM stacks")
    return Shortfall("power", limit, demand, "W", levers)


def _area_shortfall(limit: float, demand: float) -> Shortfall:
    levers = ("offer smaller global buffers or fewer cores (--space)", "take a newer node (--node)")
    return Shortfall("area", limit, demand, "mm2", levers)


def _smallest(values: NDArray[np.float64], allowed: Mask) -> float:
    return float(np.min(values[allowed], initial=math.inf))
