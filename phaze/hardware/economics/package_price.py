"""Price of a package, from published estimates: dies by wafer and yield, memory, interposer, bonding, module.

Manufacturing cost, not a list price: design, masks, software and margins are not in it.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from phaze.arrays import Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import GIB, hbm_capacity_bytes, hbm_sites
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.silicon.die_area import silicon_area_mm2

MM2_PER_CM2 = 100.0
DEFAULT = Economics()


def price_usd(
    table: ArchitectureTable, area_mm2: Floats | None = None, economics: Economics = DEFAULT
) -> Floats:
    """Manufacturing cost of each package in USD; infinite where not one whole die fits on a wafer."""
    return reduce(np.add, price_parts_usd(table, area_mm2, economics).values())


def price_parts_usd(
    table: ArchitectureTable, area_mm2: Floats | None = None, economics: Economics = DEFAULT
) -> dict[str, Floats]:
    """Cost of each part in USD, (A,) each; the parts sum to `price_usd`.

    Memory that stands on the board, GDDR and LPDDR, needs no interposer and is not bonded. What is lost in bonding is
    all that stands on the interposer. `area_mm2` is the total silicon of each package where it is known better than by
    the model, for instance published. Wafer price and defects follow the node, so PHAZE's own area law (22 nm) is
    not used here.
    """
    e = economics
    area = silicon_area_mm2(table) if area_mm2 is None else np.asarray(area_mm2, dtype=np.float64)
    footprint = e.column(table, "memory_footprint_mm2")
    bonded = footprint > 0.0
    stands = area + hbm_sites(table) * footprint
    dies = table["n_dies"] * _die_usd(table, area / table["n_dies"], e)
    memory = hbm_capacity_bytes(table) / GIB * e.column(table, "memory_usd_per_gib")
    packaging = np.where(bonded, e["interposer_margin"] * stands, 0.0) * e["packaging_usd_per_mm2"]
    survive = e["bonding_yield"] ** (table["n_dies"] + hbm_sites(table))
    return {
        "dies": dies,
        "memory": memory,
        "packaging": packaging,
        "bonding": np.where(bonded, (dies + memory + packaging) * (1.0 / survive - 1.0), 0.0),
        "module": np.full(len(table), e["module_usd"]),
    }


def dies_per_wafer(die_mm2: Floats, economics: Economics = DEFAULT) -> Floats:
    """Dies on a wafer, good or bad: its area over a die's with scribe lane, less what the round edge cuts.

    Zero where less than one whole die is left. The formula is the textbook one (Hennessy and Patterson).
    """
    side = np.sqrt(die_mm2) + economics["scribe_lane_mm"]
    diameter = economics["wafer_diameter_mm"] - 2.0 * economics["wafer_edge_mm"]
    dies = np.pi * (diameter / 2.0) ** 2 / side**2 - np.pi * diameter / (np.sqrt(2.0) * side)
    return np.where(dies >= 1.0, dies, 0.0)


def die_yield(die_mm2: Floats, defects_per_cm2: Floats | float, economics: Economics = DEFAULT) -> Floats:
    """Share of dies without any defect: the negative binomial law, defects cluster on wafers."""
    clustering = economics["defect_clustering"]
    expected = np.asarray(die_mm2, dtype=np.float64) / MM2_PER_CM2 * defects_per_cm2
    share: Floats = (1.0 + expected / clustering) ** -clustering
    return share


def sold_per_wafer(table: ArchitectureTable, die_mm2: Floats, economics: Economics = DEFAULT) -> Floats:
    """Dies of a wafer that can be sold, (A,); chips with spare cores also sell some that have a defect."""
    flawless = die_yield(die_mm2, economics.column(table, "defects_per_cm2"), economics)
    spare = table["enabled_fraction"] < 1.0
    share = flawless + (1.0 - flawless) * np.where(spare, economics["harvested_share"], 0.0)
    return np.asarray(dies_per_wafer(die_mm2, economics) * share)


def _die_usd(table: ArchitectureTable, die_mm2: Floats, economics: Economics) -> Floats:
    """Wafer price over the dies that can be sold."""
    with np.errstate(divide="ignore"):
        return np.asarray(economics.column(table, "wafer_usd") / sold_per_wafer(table, die_mm2, economics))
