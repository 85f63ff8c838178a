"""PHAZE's filter on area: neither too large for the budget nor much too small for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.hardware.area import area_mm2
from phaze.hardware.table import ArchitectureTable


@dataclass(frozen=True)
class AreaFilter:
    """At most `limit_mm2`, and at least `floor` of it unless one kind of core is single."""

    limit_mm2: float
    floor: float

    def keeps(self, table: ArchitectureTable) -> NDArray[np.bool_]:
        """Which architectures pass. The tolerance keeps the machine that sets the limit."""
        area = area_mm2(table)
        single = (table["tensor_cores"] == 1) | (table["vector_cores"] == 1)
        large = area >= self.floor * self.limit_mm2 * (1.0 - 1e-12)
        return np.asarray((area <= self.limit_mm2 * (1.0 + 1e-12)) & (large | single))
