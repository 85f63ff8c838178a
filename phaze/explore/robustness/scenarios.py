"""Scenarios of the constants, drawn together: a Latin hypercube in the logarithms of the factors.

Every constant takes one value in each of N equally likely slices of its range, in an order of its own
(McKay, Beckman, Conover, Technometrics 21(2), 1979): few scenarios cover every range evenly. Constants of the
network are drawn fewer times, each draw serving several scenarios: placements on one network share their work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.explore.robustness.uncertainty import Uncertainty
from phaze.hardware.area import area_parts_mm2
from phaze.hardware.power import power_parts_w
from phaze.hardware.table import ArchitectureTable

FloatArray = NDArray[np.float64]
NETWORKS = 8  # draws of the network


@dataclass(frozen=True)
class Scenarios:
    """Factors (N,) of every constant, by group and name; `network_of` (N,) tells which share a network."""

    uncertainty: Uncertainty
    factors: Mapping[tuple[str, str], FloatArray]
    network_of: NDArray[np.intp]

    @property
    def count(self) -> int:
        """How many scenarios."""
        return len(self.network_of)

    def of(self, group: str) -> dict[str, FloatArray]:
        """Factors of one group by name."""
        return {name: values for (part, name), values in self.factors.items() if part == group}

    def power_w(self, table: ArchitectureTable, margin: float) -> FloatArray:
        """TDP of every architecture in every scenario, (N, A) W, times `margin`."""
        return margin * self._total(power_parts_w(table), "power")

    def area_mm2(self, table: ArchitectureTable) -> FloatArray:
        """Area of every architecture in every scenario, (N, A) mm2."""
        return self._total(area_parts_mm2(table), "area")

    def _total(self, parts: Mapping[str, FloatArray], group: str) -> FloatArray:
        """Sum of parts (A,) each, times the factors of the constants that name them."""
        scale = {name: np.ones(self.count) for name in parts}
        ranges = getattr(self.uncertainty, group)
        for name, factor in self.of(group).items():
            for part in ranges[name].parts:
                scale[part] = scale[part] * factor
        total: FloatArray = sum(
            (scale[name][:, None] * part[None, :] for name, part in parts.items()), start=np.zeros((1, 1))
        )
        return total


def draw(uncertainty: Uncertainty, count: int, seed: int) -> Scenarios:
    """`count` scenarios; the same seed draws the same ones."""
    random = np.random.default_rng(seed)
    networks = min(NETWORKS, count)
    network_of = np.arange(count) % networks
    factors = {}
    for group, name, range_ in uncertainty.ranges():
        slices = networks if group == "network" else count
        place = (random.permutation(slices) + random.random(slices)) / slices
        factor = range_.low * (range_.high / range_.low) ** place
        factors[group, name] = factor[network_of] if group == "network" else factor
    return Scenarios(uncertainty, factors, network_of)
