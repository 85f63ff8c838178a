"""Price of a package, from published estimates: dies, HBM, interposer, module; and the price of energy.

Manufacturing cost, not a list price: design, masks, software and margins are not in it.
"""

from __future__ import annotations

from functools import cache, reduce

import numpy as np

from phaze.arrays import Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import GIB, hbm_capacity_bytes, hbm_sites
from phaze.hardware.physical_constants import ConstantFile, read_constants
from phaze.hardware.silicon.die_area import silicon_area_mm2

MM2_PER_CM2 = 100.0
JOULE_PER_KWH = 3.6e6


class Prices(ConstantFile):
    """The content of `price.yaml`."""

    file = "price.yaml"


@cache
def prices() -> Prices:
    """All prices, each with its source."""
    return read_constants(Prices)


def price_usd(table: ArchitectureTable, area_mm2: Floats | None = None) -> Floats:
    """Manufacturing cost of each package in USD; infinite where not one whole die fits on a wafer."""
    return reduce(np.add, price_parts_usd(table, area_mm2).values())


def price_parts_usd(table: ArchitectureTable, area_mm2: Floats | None = None) -> dict[str, Floats]:
    """Cost of each part in USD, `dies`, `hbm`, `packaging` and `module`; the parts sum to `price_usd`.

    Memory that stands on the board, GDDR and LPDDR, needs no interposer.
    `area_mm2` is the total silicon of each package where it is known better than by the model, for instance
    published. Wafer price and defects follow the node, so PHAZE's own area law (22 nm) is not used here.
    """
    p = prices()
    area = silicon_area_mm2(table) if area_mm2 is None else np.asarray(area_mm2, dtype=np.float64)
    footprint = p.column(table, "hbm_generation", "footprint_mm2")
    stands = area + hbm_sites(table) * footprint
    interposer = np.where(footprint > 0.0, p["interposer_margin"] * stands, 0.0)
    return {
        "dies": table["n_dies"] * _die_usd(table, area / table["n_dies"]),
        "hbm": hbm_capacity_bytes(table) / GIB * p.column(table, "hbm_generation", "usd_per_gib"),
        "packaging": interposer * p["packaging_usd_per_mm2"],
        "module": np.full(len(table), p["module_usd"]),
    }


def dies_per_wafer(die_mm2: Floats) -> Floats:
    """Dies on a wafer, good or bad: its area over a die's with scribe lane, less what the round edge cuts.

    Zero where less than one whole die is left. The formula is the textbook one (Hennessy and Patterson).
    """
    p = prices()
    side = np.sqrt(die_mm2) + p["scribe_lane_mm"]
    diameter = p["wafer_diameter_mm"] - 2.0 * p["wafer_edge_mm"]
    dies = np.pi * (diameter / 2.0) ** 2 / side**2 - np.pi * diameter / (np.sqrt(2.0) * side)
    return np.where(dies >= 1.0, dies, 0.0)


def die_yield(die_mm2: Floats, defects_per_cm2: Floats | float) -> Floats:
    """Share of dies without any defect: the negative binomial law, defects cluster on wafers."""
    clustering = prices()["defect_clustering"]
    expected = np.asarray(die_mm2, dtype=np.float64) / MM2_PER_CM2 * defects_per_cm2
    share: Floats = (1.0 + expected / clustering) ** -clustering
    return share


def electricity_usd(
    energy_j: Floats | float,
    usd_per_kwh: float | None = None,
    power_usage_effectiveness: float | None = None,
) -> Floats:
    """Price of the energy at the accelerators in USD, with the data centre's own share; None: default of the file."""
    p = prices()
    price = p["electricity_usd_per_kwh"] if usd_per_kwh is None else usd_per_kwh
    overhead = (
        p["power_usage_effectiveness"] if power_usage_effectiveness is None else power_usage_effectiveness
    )
    return np.asarray(energy_j, dtype=np.float64) / JOULE_PER_KWH * overhead * price


def _die_usd(table: ArchitectureTable, die_mm2: Floats) -> Floats:
    """Wafer price over the dies that can be sold; chips with spare cores also sell some that have a defect."""
    p = prices()
    flawless = die_yield(die_mm2, p.column(table, "node", "defects_per_cm2"))
    spare = table["enabled_fraction"] < 1.0
    sold = flawless + (1.0 - flawless) * np.where(spare, p["harvested_share"], 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(p.column(table, "node", "wafer_usd") / (dies_per_wafer(die_mm2) * sold))
