"""Which architectures of a space keep the budgets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phaze.errors import InfeasibleError
from phaze.explore.request import Budgets
from phaze.hardware.budgets import over_budget, shortfalls, smallest_demand, within_budget
from phaze.hardware.table import ArchitectureTable


def rows_within(table: ArchitectureTable, budgets: Budgets, space: str) -> NDArray[np.intp]:
    """Positions of the architectures that keep the budgets, the reticle and the shoreline.

    Raises InfeasibleError, with the smallest budgets that would do, where there is none.
    """
    limits = (budgets.power_w, budgets.area_mm2)
    rows = np.flatnonzero(within_budget(over_budget(table, *limits, budgets.tdp_margin)))
    if not len(rows):
        demand = smallest_demand(table, *limits, budgets.tdp_margin)
        raise InfeasibleError(
            f"no architecture of space {space} keeps the budgets", shortfalls(demand, *limits)
        )
    return rows
