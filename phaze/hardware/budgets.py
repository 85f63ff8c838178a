"""Budgets: the architectures that keep them, and the smallest budget that something keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce

import numpy as np

from phaze.arrays import Flags, Floats
from phaze.errors import Shortfall
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.economics.network_share import NetworkDraw
from phaze.hardware.economics.package_price import DEFAULT, price_usd
from phaze.hardware.silicon.die_area import area_mm2, exceeds_reticle, exceeds_shoreline
from phaze.hardware.silicon.package_power import cooling_share, tdp_w


class Limit(StrEnum):
    """Limit that can rule an architecture out."""

    POWER = "power"
    AREA = "area"
    POWER_DENSITY = "power density"
    PRICE = "price"
    RETICLE = "reticle"
    SHORELINE = "shoreline"
    HEAT = "heat"


BUDGETS = {Limit.POWER: "W", Limit.AREA: "mm2", Limit.POWER_DENSITY: "W/mm2", Limit.PRICE: "USD"}
"""The limits a user sets, with their units; the others are physical."""

_LEVERS = {
    Limit.POWER: (
        "lower the clock (--dvfs or --clock)",
        "take a newer node (--node)",
        "offer fewer HBM stacks",
    ),
    Limit.AREA: (
        "offer smaller global buffers or fewer cores (--space)",
        "take a newer node (--node)",
    ),
    Limit.POWER_DENSITY: (
        "lower the clock (--dvfs or --clock)",
        "offer larger global buffers, which spread the power (--space)",
        "take an older node (--node)",
    ),
    Limit.PRICE: (
        "offer smaller dies or fewer HBM stacks (--space)",
        "take an older node (--node)",
    ),
}

Amounts = Mapping[Limit, float]


def _unknown() -> Amounts:
    return dict.fromkeys(BUDGETS, math.inf)


@dataclass(frozen=True)
class Demand:
    """Smallest amount of every budget over architectures that can be built; infinite where there is none.

    `alone` leaves the other budgets aside, `held` counts only architectures that keep the others. `nearest` is
    what the architecture takes that exceeds its budgets least: `excess` is the largest of its ratios to them.
    Demands of blocks of a space combine with `merge`.
    """

    alone: Amounts = field(default_factory=_unknown)
    held: Amounts = field(default_factory=_unknown)
    nearest: Amounts = field(default_factory=_unknown)
    excess: float = math.inf

    @property
    def built(self) -> bool:
        """Whether any of them can be built at all."""
        return self.alone[Limit.AREA] < math.inf

    def merge(self, other: Demand) -> Demand:
        """The demand over two sets of architectures together."""
        near = self if self.excess <= other.excess else other
        return Demand(
            {limit: min(self.alone[limit], other.alone[limit]) for limit in BUDGETS},
            {limit: min(self.held[limit], other.held[limit]) for limit in BUDGETS},
            near.nearest,
            near.excess,
        )


@dataclass(frozen=True)
class Weighed:
    """Architectures held against budgets: TDP in W times a margin, area in mm2, (A,), and whom each limit rules out."""

    tdp_w: Floats
    area_mm2: Floats
    over: dict[Limit, Flags]

    @property
    def kept(self) -> Flags:
        """Whom no limit rules out, (A,)."""
        return within_budget(self.over)


def weigh(
    table: ArchitectureTable,
    power_w: float | None = None,
    area_limit_mm2: float | None = None,
    margin: float = 1.0,
    power_density_w_per_mm2: float | None = None,
    price_limit_usd: float | None = None,
    economics: Economics = DEFAULT,
    network: NetworkDraw | None = None,
) -> Weighed:
    """Architectures with what they take of each budget; None is no budget.

    Power is TDP x `margin`, and of a `network` what a device's share of it draws. Power density is TDP x `margin` over
    the total silicon of the package; the price is what a package costs to make.
    """
    area, power = area_mm2(table), tdp_w(table, margin)
    given = _given(power_w, area_limit_mm2, power_density_w_per_mm2, price_limit_usd)
    amounts = _amounts(
        power,
        area,
        price_usd(table, area, economics) if Limit.PRICE in given else area,
        0.0 if network is None or Limit.POWER not in given else network.of(table),
    )
    none = np.zeros(len(table), dtype=np.bool_)
    over = {
        **{limit: amounts[limit] > given[limit] if limit in given else none for limit in BUDGETS},
        Limit.RETICLE: exceeds_reticle(table, area),
        Limit.SHORELINE: exceeds_shoreline(table, area),
        Limit.HEAT: cooling_share(table) > 1.0,
    }
    return Weighed(power, area, over)


def within_budget(masks: dict[Limit, Flags]) -> Flags:
    """Architectures that no limit rules out."""
    return ~reduce(np.logical_or, masks.values())


def power_limit_w(
    table: ArchitectureTable, power_w: float | None = None, power_density_w_per_mm2: float | None = None
) -> Floats:
    """The power in W that both budgets leave to each architecture; infinite without any."""
    limit: Floats = np.full(len(table), math.inf if power_w is None else power_w)
    if power_density_w_per_mm2 is not None:
        limit = np.minimum(limit, power_density_w_per_mm2 * area_mm2(table))
    return limit


def smallest_demand(
    table: ArchitectureTable,
    power_w: float | None = None,
    area_limit_mm2: float | None = None,
    margin: float = 1.0,
    power_density_w_per_mm2: float | None = None,
    price_limit_usd: float | None = None,
    economics: Economics = DEFAULT,
    network: NetworkDraw | None = None,
) -> Demand:
    """The smallest budgets that some architecture of the table would keep."""
    given = _given(power_w, area_limit_mm2, power_density_w_per_mm2, price_limit_usd)
    density, price = power_density_w_per_mm2, price_limit_usd
    weighed = weigh(table, power_w, area_limit_mm2, margin, density, price, economics, network)
    masks, area = weighed.over, weighed.area_mm2
    beside = 0.0 if network is None else network.of(table)
    amounts = _amounts(weighed.tdp_w, area, price_usd(table, area, economics), beside)
    built = ~(masks[Limit.RETICLE] | masks[Limit.SHORELINE] | masks[Limit.HEAT])
    return Demand(
        {limit: _smallest(amounts[limit], built) for limit in BUDGETS},
        {limit: _smallest(amounts[limit], built & _keeps_others(masks, limit)) for limit in BUDGETS},
        *_nearest(amounts, built, given),
    )


def shortfalls(
    demand: Demand,
    power_w: float | None = None,
    area_limit_mm2: float | None = None,
    power_density_w_per_mm2: float | None = None,
    price_limit_usd: float | None = None,
) -> tuple[Shortfall, ...]:
    """Why nothing keeps the budgets: each budget that is too small by itself.

    Where they are too small only together: for each, the smallest amount that would do with the others held;
    and where none alone would do, what to raise at the same time.
    """
    given = _given(power_w, area_limit_mm2, power_density_w_per_mm2, price_limit_usd)

    def missed(amounts: Amounts) -> tuple[Shortfall, ...]:
        return tuple(
            Shortfall(str(limit), budget, amounts[limit], BUDGETS[limit], _LEVERS[limit])
            for limit, budget in given.items()
            if amounts[limit] > budget
        )

    if alone := missed(demand.alone):
        return alone
    if held := tuple(short for short in missed(demand.held) if short.demand < math.inf):
        return held
    return missed(demand.nearest) if demand.excess < math.inf else ()


def _given(*budgets: float | None) -> dict[Limit, float]:
    """Budgets that are given, in the order of `BUDGETS`."""
    return {limit: budget for limit, budget in zip(BUDGETS, budgets, strict=True) if budget is not None}


def _amounts(power: Floats, area: Floats, price: Floats, beside: Floats | float = 0.0) -> dict[Limit, Floats]:
    """Amounts of every budget, (A,); `beside`: power outside the package."""
    density = power / area
    return {
        Limit.POWER: power + beside,
        Limit.AREA: area,
        Limit.POWER_DENSITY: density,
        Limit.PRICE: price,
    }


def _keeps_others(masks: dict[Limit, Flags], limit: Limit) -> Flags:
    return ~reduce(np.logical_or, (masks[other] for other in BUDGETS if other is not limit))


def _nearest(amounts: dict[Limit, Floats], built: Flags, given: dict[Limit, float]) -> tuple[Amounts, float]:
    """Amounts of the architecture whose largest ratio to a budget is smallest, and that ratio."""
    if not given or not built.any():
        return _unknown(), math.inf
    ratios = reduce(np.maximum, (amounts[limit] / budget for limit, budget in given.items()))
    row = int(np.argmin(np.where(built, ratios, math.inf)))
    return {limit: float(amounts[limit][row]) for limit in BUDGETS}, float(ratios[row])


def _smallest(values: Floats, allowed: Flags) -> float:
    return float(np.min(values[allowed], initial=math.inf))
