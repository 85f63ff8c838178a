"""Power of the package at full load (TDP) by component, and energy per event for the cost model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeVar

import numpy as np

from phaze.arrays import Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import (
    KIB,
    global_buffer_bandwidth_bytes_per_s,
    hbm_bandwidth_bytes_per_s,
    local_buffer_bytes_per_core,
    macs,
    narrow_speed,
    nominal_clock_hz,
    vector_alus,
)
from phaze.hardware.physical_constants import constants
from phaze.hardware.silicon.die_area import area_mm2, powered_area_mm2
from phaze.hardware.silicon.heat import heat_share, is_cooled, leakage_growth

T = TypeVar("T")
_FEW = 64  # architectures; what follows from a space of them is too large to keep

PJ = 1e-12
"""One pJ in J."""
BITS = 8.0
"""Bits per byte."""


@dataclass(frozen=True)
class EnergyConstants:
    """Energy per event and standing power, one value per architecture, at its node and sustained clock.

    Losses of the voltage regulators are included in what the chip itself draws. A byte over a link is charged
    once at each end. Background power falls to `idle_background` of itself when nothing runs. `kernel_w`: what a
    GPU draws beyond that as long as a kernel runs, whatever it does: clocks of busy cores, scheduling, operand
    collectors and load-store units, at the activity that its TDP stands for; `kernel_alu_cycles_per_s` are contained
    in it. `narrow_mac_j`,
    `narrow_operand_j_per_mac`: of operands in 8 bits or less where the chip is faster on them, else as of others;
    `fp4_share`: what one in 4 bits takes of that.
    """

    mac_j: Floats
    operand_j_per_mac: Floats
    narrow_mac_j: Floats
    narrow_operand_j_per_mac: Floats
    fp4_share: Floats
    alu_cycle_j: Floats
    local_buffer_j_per_byte: Floats
    global_buffer_j_per_byte: Floats
    hbm_j_per_byte: Floats
    link_j_per_byte: Floats
    background_w: Floats
    idle_background: Floats
    kernel_w: Floats
    kernel_alu_cycles_per_s: Floats
    leakage_w: Floats
    hbm_background_w: Floats


def relative_voltage(table: ArchitectureTable, clock_hz: Floats) -> Floats:
    """Supply voltage at a clock, relative to the node's nominal one."""
    slope = _by_control(table, "voltage_slope") * clock_hz / nominal_clock_hz(table)
    return np.maximum(_by_control(table, "voltage_floor"), _by_control(table, "voltage_at_rest") + slope)


def once(table: ArchitectureTable, name: str, find: Callable[[ArchitectureTable], T]) -> T:
    """What follows from a table and the constants; of few architectures it is kept, for many passes ask for it."""
    if len(table) > _FEW:
        return find(table)
    known, kept = constants(), table.kept.get(name)
    if kept is None or kept[0] is not known:
        kept = table.kept[name] = known, find(table)
    found: T = kept[1]
    return found


def energy_constants(table: ArchitectureTable) -> EnergyConstants:
    """Energy per event of every architecture, leakage at the temperature of full load where a cooling is given."""
    return once(table, "energy constants", _energy_constants)


def _energy_constants(table: ArchitectureTable) -> EnergyConstants:
    e = _at_reference(table)
    if not np.any(is_cooled(table)):
        return e
    steady = reduce(np.add, (part for name, part in _parts_w(table, e).items() if name != "leakage"))
    growth = leakage_growth(table, area_mm2(table), steady, e.leakage_w)
    return replace(e, leakage_w=e.leakage_w * growth)


def steady_and_leakage_w(table: ArchitectureTable) -> tuple[Floats, Floats]:
    """Power of full load in W without leakage, and leakage at the reference temperature, (A,) each."""
    parts = _parts_w(table, _at_reference(table))
    leakage = parts.pop("leakage")
    return reduce(np.add, parts.values()), leakage


def cooling_share(table: ArchitectureTable) -> Floats:
    """Heat of full load over what the cooling carries with the junction at its limit, (A,); 0: unlimited."""
    if not np.any(is_cooled(table)):
        return np.zeros(len(table))
    return heat_share(table, area_mm2(table), *steady_and_leakage_w(table))


def _at_reference(table: ArchitectureTable) -> EnergyConstants:
    """The same with leakage at the reference temperature."""
    c = constants()
    rows = len(table)
    loss = 1.0 / c["regulator_efficiency"]
    voltage = relative_voltage(table, table["clock_hz"])
    switched = c.column(table, "node", "energy") * voltage**2 * loss * PJ
    area = powered_area_mm2(table)
    by_vector = table["vector_products"]
    lane_pj = _by_control(table, "lane_energy_pj")
    gated = np.where(table["simt"], c["idle_background_simt"], c["idle_background_vliw"])
    per_ghz = _by_control(table, "background_w_per_mm2_per_ghz")
    background = area * per_ghz * table["clock_hz"] * 1e-9 * voltage**2 * loss
    issued = vector_alus(table) * table["clock_hz"] * _by_control(table, "vector_activity")
    issued *= table["simt"] & ~by_vector
    product = np.where(table["simt"], c.column(table, "family", "product_energy"), 1.0)
    mac_pj = np.where(by_vector, lane_pj, c.column(table, "precision", "energy_pj") * product)
    operand_j = ~by_vector * _operand_bits(table) * c["operand_energy_pj_per_bit"] * product * switched
    speed = narrow_speed(table, "fp8")
    narrow = np.where(table["simt"] & (speed > 1), c.column(table, "family", "narrow_energy"), 1.0)
    faster_fp4 = narrow_speed(table, "fp4") > speed
    return EnergyConstants(
        mac_j=mac_pj * switched,
        operand_j_per_mac=operand_j,
        narrow_mac_j=np.where(speed > 1, c["narrow_mac_energy_pj"] * product * narrow, mac_pj) * switched,
        # As many bits to an array, and to a sum, for more products.
        narrow_operand_j_per_mac=operand_j * narrow / speed,
        fp4_share=np.where(faster_fp4, c["fp4_product_energy"], 1.0),
        alu_cycle_j=lane_pj * switched,
        local_buffer_j_per_byte=_sram_pj_per_byte(local_buffer_bytes_per_core(table)) * switched,
        global_buffer_j_per_byte=_sram_pj_per_byte(table["global_buffer_bytes"]) * switched,
        hbm_j_per_byte=c.column(table, "hbm_generation", "energy_pj_per_bit") * BITS * PJ,
        link_j_per_byte=np.full(rows, c["link_energy_pj_per_bit"] * BITS * PJ),
        background_w=background,
        idle_background=gated,
        kernel_w=table["simt"] * background * (1.0 - gated) + issued * lane_pj * switched,
        kernel_alu_cycles_per_s=issued,
        leakage_w=area
        * c["leakage_w_per_mm2"]
        * c.column(table, "node", "leakage")
        * leakage_share(table, voltage)
        * loss,
        hbm_background_w=table["hbm_stacks"] * c.column(table, "hbm_generation", "background_w"),
    )


def leakage_share(table: ArchitectureTable, voltage: Floats) -> Floats:
    """Leakage at a relative supply voltage over what the constant tells, (A,): 1 - s + s (V / V of the constant)^2."""
    falling = _by_control(table, "leakage_by_voltage")
    return np.asarray(1.0 - falling + falling * (voltage / _by_control(table, "leakage_voltage")) ** 2)


def power_parts_w(table: ArchitectureTable) -> dict[str, Floats]:
    """Power of each component in W at full load: MACs always busy, the rest by its activity.

    TDP = MACs x clock x energy per MAC + ALUs x clock x energy per cycle x activity + buffer bandwidth x energy per
    byte x activity + HBM bandwidth x energy per byte x activity + 2 x link bandwidth x energy per byte x activity
    + background + leakage (docs/decisions/0013-silicon.md, 0042-on-chip-memory.md, 0047-power-and-clock.md).

    Where products run on the vector ALUs, these are the MACs and counted there. An array of two formats is
    loaded most in the one that takes most.
    """
    return _parts_w(table, energy_constants(table))


def _parts_w(table: ArchitectureTable, e: EnergyConstants) -> dict[str, Floats]:
    c = constants()
    clock = table["clock_hz"]
    link_bytes_per_s = 2.0 * table["link_bandwidth_bytes_per_s"]  # both directions
    rates = (c.column(table, "precision", f"{name}_rate") for name in ("fp8", "fp4"))
    fp8, fp4 = (
        np.where(rate > 1.0, rate, 0.0) for rate in rates
    )  # arrays of one format are loaded in no other
    narrow_j = np.maximum(fp8, fp4 * e.fp4_share) * e.narrow_mac_j
    return {
        "mac": macs(table) * clock * np.maximum(e.mac_j, narrow_j),
        "operands": macs(table) * clock * e.operand_j_per_mac,
        "vector": ~table["vector_products"]
        * vector_alus(table)
        * clock
        * e.alu_cycle_j
        * _by_control(table, "vector_activity"),
        "buffer": global_buffer_bandwidth_bytes_per_s(table)
        * e.global_buffer_j_per_byte
        * _by_control(table, "buffer_activity"),
        "background": e.background_w,
        "leakage": e.leakage_w,
        "hbm": hbm_bandwidth_bytes_per_s(table) * e.hbm_j_per_byte * _by_control(table, "hbm_activity"),
        "hbm_background": e.hbm_background_w,
        "link": link_bytes_per_s * e.link_j_per_byte * c["link_activity"],
    }


def tdp_w(table: ArchitectureTable, margin: float = 1.0) -> Floats:
    """Power of the package at full load in W, HBM and links included, host excluded, times `margin`."""
    return margin * reduce(np.add, power_parts_w(table).values())


def _by_control(table: ArchitectureTable, constant: str) -> Floats:
    """A constant that differs between GPU-like and VLIW chips, one value per architecture."""
    c = constants()
    return np.where(table["simt"], c[f"{constant}_simt"], c[constant])


def _operand_bits(table: ArchitectureTable) -> Floats:
    """Bits moved per MAC: an operand feeds a row of MACs, a partial sum leaves after a column of them."""
    c = constants()
    operands = c.column(table, "precision", "operand_bits") / table["tensor_core_columns"]
    sums: Floats = c["accumulator_bits"] / table["tensor_core_rows"]
    return operands + sums


def _sram_pj_per_byte(capacity_bytes: Floats) -> Floats:
    c = constants()
    growth = c["sram_energy_pj_per_bit_at_64_kib"] * np.sqrt(capacity_bytes / (64 * KIB))
    return BITS * (c["sram_energy_pj_per_bit"] + growth)
