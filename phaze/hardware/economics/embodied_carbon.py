"""Carbon of making a package, by the method of ACT (Gupta et al., ISCA 2022), in kg CO2e."""

from __future__ import annotations

import numpy as np

from phaze.arrays import Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import GIB, hbm_capacity_bytes, hbm_sites
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.economics.package_price import DEFAULT, MM2_PER_CM2, sold_per_wafer
from phaze.hardware.silicon.die_area import silicon_area_mm2


def embodied_parts_kg(
    table: ArchitectureTable, area_mm2: Floats | None = None, economics: Economics = DEFAULT
) -> dict[str, Floats]:
    """Emissions of making each part of a package, (A,) each in kg CO2e; `area_mm2` as of `price_parts_usd`.

    Dies: the wafer's emissions, carbon per area x its area, over the dies that can be sold. That is ACT's carbon per
    area over yield, where what the round edge cuts off counts as lost, too. The interposer's silicon is in no
    published factor and not counted.
    """
    e = economics
    area = silicon_area_mm2(table) if area_mm2 is None else np.asarray(area_mm2, dtype=np.float64)
    wafer_cm2 = np.pi * (e["wafer_diameter_mm"] / 2.0) ** 2 / MM2_PER_CM2
    with np.errstate(divide="ignore"):
        die = (
            carbon_per_area_kg_per_cm2(table, e)
            * wafer_cm2
            / sold_per_wafer(table, area / table["n_dies"], e)
        )
    return {
        "dies": np.asarray(table["n_dies"] * die),
        "memory": hbm_capacity_bytes(table) / GIB * e.column(table, "memory_kg_per_gib"),
        "packaging": (table["n_dies"] + hbm_sites(table)) * e["package_kg"],
        "module": np.full(len(table), e["module_kg"]),
    }


def carbon_per_area_kg_per_cm2(table: ArchitectureTable, economics: Economics = DEFAULT) -> Floats:
    """Emissions of processing a wafer, per area, (A,): electricity of the fab, gases and raw materials (ACT's CPA)."""
    e = economics
    electricity = e["fab_carbon_intensity_kg_per_kwh"] * e.column(table, "fab_kwh_per_cm2")
    gases, materials = e.column(table, "fab_gas_kg_per_cm2"), e.column(table, "fab_materials_kg_per_cm2")
    return np.asarray(electricity + gases + materials)
