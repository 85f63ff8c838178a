"""By how much architectures miss the limits of a search, known from their fields without evaluating anything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.explore.request import Budgets
from phaze.hardware.area import area_mm2, reticle_share, shoreline_share
from phaze.hardware.budgets import Limit, over_budget
from phaze.hardware.power import tdp_w
from phaze.hardware.price import price_usd
from phaze.hardware.space import DesignSpace
from phaze.hardware.table import ArchitectureTable

FloatArray = NDArray[np.float64]
_LEAST = 1e-9  # what is missed by less than numbers can tell is still missed


@dataclass(frozen=True)
class Limits:
    """The budgets of a search, what can be built, and what its space allows."""

    space: DesignSpace
    budgets: Budgets

    def missed(self, table: ArchitectureTable) -> dict[str, FloatArray]:
        """For each limit by what share of it each architecture misses it, (A,); at most 0 where it is kept."""
        return self._budgets(table) | self._space(table)

    def _budgets(self, table: ArchitectureTable) -> dict[str, FloatArray]:
        b, area = self.budgets, area_mm2(table)
        tdp = tdp_w(table, b.tdp_margin)
        shares = {Limit.RETICLE: reticle_share(table, area), Limit.SHORELINE: shoreline_share(table, area)}
        if b.power_w is not None:
            shares[Limit.POWER] = tdp / b.power_w
        if b.area_mm2 is not None:
            shares[Limit.AREA] = area / b.area_mm2
        if b.power_density_w_per_mm2 is not None:
            shares[Limit.POWER_DENSITY] = tdp / area / b.power_density_w_per_mm2
        if b.price_usd is not None:
            shares[Limit.PRICE] = price_usd(table, area) / b.price_usd
        over = over_budget(table, *b.limits)
        return {limit.value: _signed(share - 1.0, ~over[limit]) for limit, share in shares.items()}

    def _space(self, table: ArchitectureTable) -> dict[str, FloatArray]:
        space = self.space
        missed = {c.text: _signed(c.apart(table), c.keeps(table)) for c in space.constraints}
        for pin in space.pins:
            missed[f"{pin.field} as fixed"] = _signed(np.ones(len(table)), pin.holds(table.columns))
        if (area_filter := space.area_filter) is not None:
            share = area_mm2(table) / area_filter.limit_mm2
            beyond = np.maximum(share - 1.0, 1.0 - share / area_filter.floor if area_filter.floor else 0.0)
            missed["area filter"] = _signed(beyond, area_filter.keeps(table))
        return missed


def _signed(amount: FloatArray, kept: NDArray[np.bool_]) -> FloatArray:
    """The amount where a limit is missed, and no more than zero where it is kept."""
    return np.where(kept, np.minimum(amount, 0.0), np.maximum(amount, _LEAST))
