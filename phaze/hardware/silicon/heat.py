"""Temperature of the junction: full load heats the silicon, hot silicon leaks more, and both settle or run away."""

from __future__ import annotations

import numpy as np

from phaze.arrays import Flags, Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.hardware_fields import code
from phaze.hardware.physical_constants import constants

_STEPS = 30  # Newton's method on a convex function from its left: quadratic, a dozen steps at most


def is_cooled(table: ArchitectureTable) -> Flags:
    """Whether an architecture says what carries its heat away, (A,)."""
    return np.asarray(table["cooling"] != code("cooling", "unlimited"))


def uncooled(table: ArchitectureTable) -> ArchitectureTable:
    """The same architectures with nothing said of their cooling: leakage at the reference temperature."""
    return table.replace(cooling=np.full(len(table), code("cooling", "unlimited"), dtype=np.int8))


def junction_c(table: ArchitectureTable, area_mm2: Floats, steady_w: Floats, leakage_w: Floats) -> Floats:
    """Temperature in C, (A,), at which the power of full load and the leakage that it causes settle; inf: never.

    T = coolant + resistance / area x (steady + leakage exp(growth (T - reference))), the least solution. The right side
    is convex in T, so that Newton's method from its left ends there, or finds the slope without a solution: thermal
    runaway (Liu et al., DATE 2007, solve the same for a grid). `leakage_w` is that at the reference temperature.
    """
    c = constants()
    growth, reference = c["leakage_growth_per_k"], c["leakage_reference_c"]
    per_w = c.column(table, "cooling", "resistance_mm2_k_per_w") / area_mm2
    least = c.column(table, "cooling", "coolant_c") + per_w * steady_w
    found = np.array(least, dtype=np.float64)
    for _ in range(_STEPS):
        heated = per_w * leakage_w * np.exp(growth * (np.minimum(found, _BEYOND_C) - reference))
        slope = 1.0 - growth * heated
        missing = np.maximum(least + heated - found, 0.0)
        step = np.where(
            slope > 0, missing / np.where(slope > 0, slope, 1.0), np.where(missing > 0, np.inf, 0.0)
        )
        found = found + step
    return np.where(found < _BEYOND_C, found, np.inf)


_BEYOND_C = 1000.0
"""No silicon is as hot; keeps exponentials finite."""


def leakage_growth(table: ArchitectureTable, area_mm2: Floats, steady_w: Floats, leakage_w: Floats) -> Floats:
    """Leakage at the temperature of full load over that at the reference, (A,); of hotter junctions, at their limit."""
    c = constants()
    settled = np.minimum(junction_c(table, area_mm2, steady_w, leakage_w), c["junction_limit_c"])
    hotter = np.exp(c["leakage_growth_per_k"] * (settled - c["leakage_reference_c"]))
    return np.where(is_cooled(table), hotter, 1.0)


def heat_share(table: ArchitectureTable, area_mm2: Floats, steady_w: Floats, leakage_w: Floats) -> Floats:
    """Heat of full load with the junction at its limit over what the cooling carries there, (A,); 0: unlimited.

    At most 1 means that the junction settles at its limit or below, from whatever temperature up to there.
    """
    c = constants()
    limit = c["junction_limit_c"]
    hot = steady_w + leakage_w * np.exp(c["leakage_growth_per_k"] * (limit - c["leakage_reference_c"]))
    over = limit - c.column(table, "cooling", "coolant_c")
    resistance = c.column(table, "cooling", "resistance_mm2_k_per_w")
    return np.where(is_cooled(table), hot * resistance / (area_mm2 * over), 0.0)
