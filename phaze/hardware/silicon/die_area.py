"""Die area by component, fitted to silicon or by PHAZE's own law, and the limits that follow from it."""

from __future__ import annotations

from functools import reduce

import numpy as np

from phaze.arrays import Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import (
    MIB,
    hbm_sites,
    local_buffer_bytes,
    macs,
    register_bytes,
    vector_alus,
)
from phaze.hardware.hardware_fields import code
from phaze.hardware.physical_constants import constants, lookup

UM2 = 1e-6
"""One um2 in mm2."""
_HARVESTED = ("mac", "lane", "int32", "fp64", "simt", "registers", "local")


def area_parts_mm2(table: ArchitectureTable) -> dict[str, Floats]:
    """Area of each component in mm2, all dies together; the parts sum to `area_mm2`.

    Where `area_law` is `phaze`, components that PHAZE gives no area are 0 and registers count with the MACs
    and lanes. Raises InputError for sizes PHAZE's law does not list.
    """
    parts = _silicon_parts_mm2(table)
    by_phaze = np.flatnonzero(table["area_law"] == code("area_law", "phaze"))
    if len(by_phaze):
        law = _phaze_parts_mm2(table.take(by_phaze))
        for name, part in parts.items():
            part[by_phaze] = law.get(name, 0.0)
    return parts


def area_mm2(table: ArchitectureTable) -> Floats:
    """Total silicon of the package in mm2, by each architecture's area law."""
    return _total(area_parts_mm2(table))


def silicon_area_mm2(table: ArchitectureTable) -> Floats:
    """Total silicon by the fitted law whatever `area_law` says."""
    return _total(_silicon_parts_mm2(table))


def powered_area_mm2(table: ArchitectureTable) -> Floats:
    """Silicon that draws background power and leaks, by the fitted law: all but cores that are switched off."""
    parts = _silicon_parts_mm2(table)
    cores = _total({name: part for name, part in parts.items() if name in _HARVESTED})
    return _total(parts) - (1.0 - table["enabled_fraction"]) * cores * (1.0 + constants()["overhead"])


def exceeds_reticle(table: ArchitectureTable, area: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether one die of the given total `area` (mm2) is larger than an exposure field."""
    return np.asarray(area / table["n_dies"] > constants()["reticle_mm2"])


def exceeds_shoreline(table: ArchitectureTable, area: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether the HBM sites need more than two edges of the dies of the given total `area` (mm2).

    PHAZE's law has no HBM interfaces, so the limit does not apply to it.
    """
    silicon = table["area_law"] == code("area_law", "silicon")
    return np.asarray(silicon & (hbm_sites(table) > _hbm_room(table, area)))


def reticle_share(table: ArchitectureTable, area: Floats) -> Floats:
    """One die of the given total `area` (mm2) over an exposure field."""
    return np.asarray(area / table["n_dies"] / constants()["reticle_mm2"])


def shoreline_share(table: ArchitectureTable, area: Floats) -> Floats:
    """HBM sites over what two edges have room for, whatever the area law; room for none counts as for one."""
    return np.asarray(hbm_sites(table) / np.maximum(1.0, _hbm_room(table, area)))


def _hbm_room(table: ArchitectureTable, area: Floats) -> Floats:
    """HBM sites for which two edges of the dies of the given total `area` (mm2) have room."""
    edge = 2.0 * np.sqrt(area / table["n_dies"])
    per_site = constants().column(table, "hbm_generation", "shoreline_mm")
    return np.asarray(table["n_dies"] * np.floor(edge / per_site))


def _silicon_parts_mm2(table: ArchitectureTable) -> dict[str, Floats]:
    """Areas by the fitted law: core, then overhead on the core, then interfaces; harvested cores count.

    area = (1 + overhead) x sum over units of number x area x node factor / enabled + memory sites x area
    + 2 x GB/s of links x area + dies x misc. Units after Horowitz (ISSCC 2014), interfaces after LLMCompass (arXiv
    2312.03134), fitted to die photos (docs/decisions/0013-silicon.md).
    """
    c = constants()
    logic = c.column(table, "node", "logic")
    parts = _core_parts_mm2(table, logic)
    parts["overhead"] = c["overhead"] * _total(parts)
    hbm_shrink = 1.0 + c["logic_io_share_hbm"] * (logic - 1.0)
    link_shrink = 1.0 + c["logic_io_share_link"] * (logic - 1.0)
    per_site = c.column(table, "hbm_generation", "area_mm2")
    parts["hbm_phy"] = hbm_sites(table) * per_site * hbm_shrink
    links = _on_die(table, "link_on_die_bytes_per_s", table["link_bandwidth_bytes_per_s"])
    # The constant is per GB/s of both directions summed; the field is per direction.
    parts["link"] = 2.0 * links * 1e-9 * c["link_area_mm2_per_gb_per_s"] * link_shrink
    parts["misc"] = table["n_dies"] * c["misc_area_mm2"] * logic
    return parts


def _core_parts_mm2(table: ArchitectureTable, logic: Floats) -> dict[str, Floats]:
    c = constants()
    sram = c.column(table, "node", "sram")
    on_die = 1.0 / table["enabled_fraction"]
    gates = logic * on_die * UM2
    lanes = vector_alus(table) * gates
    memory = sram * on_die / MIB
    on_die_global = _on_die(table, "global_buffer_on_die_bytes", table["global_buffer_bytes"])
    per_mib = c.column(table, "global_buffer_kind", "area_mm2_per_mib")
    per_port = c.column(table, "global_buffer_kind", "port_mm2_per_byte_per_cycle")
    return {
        "mac": ~table["vector_products"] * macs(table) * c.column(table, "precision", "area_um2") * gates,
        "lane": lanes * c["lane_area_um2"],
        "int32": table["int32_alus"] * gates * c["int32_area_um2"],
        "fp64": table["fp64_alus"] * gates * c["fp64_area_um2"],
        "simt": table["simt"] * lanes * c["simt_area_um2"],
        "registers": register_bytes(table) * memory * c["register_area_mm2_per_mib"],
        "local": local_buffer_bytes(table) * memory * c["local_area_mm2_per_mib"],
        "global": on_die_global * per_mib * sram / MIB
        + table["global_buffer_bytes_per_cycle"] * per_port * logic,
    }


def _on_die(table: ArchitectureTable, field: str, in_use: Floats) -> Floats:
    """What is on the die where some of it is switched off: what is given, and never less than what is in use."""
    return np.fmax(table[field], in_use)


def _phaze_parts_mm2(table: ArchitectureTable) -> dict[str, Floats]:
    """PHAZE: cores with registers and a scratchpad each, one global buffer, nothing else."""
    law = constants().phaze
    per_core = table["tensor_core_rows"] * table["tensor_core_columns"]
    kib = np.maximum(1.0, per_core / 64.0)
    vector_kib = np.maximum(1.0, table["vector_core_alus"] / 64.0)
    scratchpads = law.scratchpad_um2_by_kib
    tensor = lookup(scratchpads, kib, "PHAZE's area law (tensor core scratchpad, KiB)")
    vector = lookup(scratchpads, vector_kib, "PHAZE's area law (vector core scratchpad, KiB)")
    mib = table["global_buffer_bytes"] / MIB
    buffer = lookup(law.global_buffer_um2_by_mib, mib, "PHAZE's area law (global buffer, MiB)")
    return {
        "mac": macs(table) * law.mac_um2 * UM2,
        "lane": vector_alus(table) * law.alu_um2 * UM2,
        "local": (table["tensor_cores"] * tensor + table["vector_cores"] * vector) * UM2,
        "global": buffer * UM2,
    }


def _total(parts: dict[str, Floats]) -> Floats:
    return reduce(np.add, parts.values())
