"""Figures that follow from the hardware fields alone; every function gives one value per architecture."""

from __future__ import annotations

import numpy as np

from phaze.arrays import Flags, Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.hardware_fields import code, given_or
from phaze.hardware.physical_constants import constants

_STAND_INS = {"tf32": "fp32", "fp4": "fp8"}  # at whose rate formats run that a chip lacks
GIB = 2.0**30
MIB = 2.0**20
KIB = 2.0**10


def macs(table: ArchitectureTable) -> Floats:
    """Multiply-accumulate units of all tensor cores in use."""
    per_core = table["tensor_core_rows"] * table["tensor_core_columns"]
    return np.asarray(table["tensor_cores"] * per_core, dtype=np.float64)


def vector_alus(table: ArchitectureTable) -> Floats:
    """fp32 ALUs of all vector cores in use."""
    return np.asarray(table["vector_cores"] * table["vector_core_alus"], dtype=np.float64)


def tile_holders(table: ArchitectureTable) -> Floats:
    """Units of a SIMT chip that hold a tile of a product each: the tensor cores that share a local buffer."""
    return np.asarray(np.maximum(table["tensor_cores"] / table["tensor_cores_per_local_buffer"], 1.0))


def multiprocessors(table: ArchitectureTable) -> Floats:
    """Units of a SIMT chip that run blocks of threads: a vector core and the tensor cores at a local buffer.

    Where there are more of one than of the other, each unit has more than one of it: blocks need both.
    """
    both: Floats = np.minimum(tile_holders(table), table["vector_cores"])
    return both


def peak_clock_hz(table: ArchitectureTable) -> Floats:
    """Published peak clock, at most the one that the nominal voltage gives; never below the sustained clock."""
    clock = np.asarray(table["clock_hz"], dtype=np.float64)
    return np.maximum(np.minimum(given_or(table, "peak_clock_hz", clock), nominal_clock_hz(table)), clock)


def boost_clock_hz(table: ArchitectureTable) -> Floats:
    """Clock of kernels that leave the board power enough; the peak clock where none is known, and never less.

    boost x min(clock / clock that it goes with, 1): firmware holds a reading of many kernels to the limit and lowers
    the clock of all of them. Source: docs/decisions/0079-what-a-board-draws.md.
    """
    clock = np.asarray(table["clock_hz"], dtype=np.float64)
    peak = peak_clock_hz(table)
    boost: Floats = np.maximum(given_or(table, "boost_clock_hz", peak), peak)
    share = np.minimum(clock / given_or(table, "boost_reference_clock_hz", clock), 1.0)
    held: Floats = np.maximum(boost * share, clock)
    return held


def under_load(table: ArchitectureTable) -> ArchitectureTable:
    """The architectures at the clocks that whole models leave them."""
    clock = np.asarray(table["clock_hz"], dtype=np.float64)
    return table.replace(clock_hz=np.minimum(clock, given_or(table, "loaded_clock_hz", clock)))


def peak_flops_per_s(table: ArchitectureTable) -> Floats:
    """Peak rate of the tensor cores, dense, in their own precision, at the peak clock."""
    return 2.0 * macs(table) * peak_clock_hz(table)


def sustained_flops_per_s(table: ArchitectureTable) -> Floats:
    """Sustained FLOP/s, at the clock that latencies use."""
    return np.asarray(2.0 * macs(table) * table["clock_hz"])


def product_flops_per_s(table: ArchitectureTable, operands: str | None) -> Floats:
    """Peak rate of products at the peak clock for operands of a format (a name of `precision`, or tf32).

    None: the tensor cores' own precision. Formats that the tensor cores lack run on the vector ALUs.
    """
    own = peak_flops_per_s(table)
    if operands is None:
        return own
    vector = 2.0 * vector_alus(table) * peak_clock_hz(table)
    if operands in _STAND_INS:
        rate = product_flops_per_s(table, _STAND_INS[operands]) / own
        if operands == "fp4":
            rate = np.maximum(rate, constants().column(table, "precision", "fp4_rate"))
        return given_or(table, f"{operands}_rate", rate) * own
    is_own = table["precision"] == code("precision", operands)
    lacking = vector / own if operands == "fp32" else np.ones(len(table))
    if operands == "fp8":
        lacking = constants().column(table, "precision", "fp8_rate")
    return given_or(table, f"{operands}_rate", np.where(is_own, 1.0, lacking)) * own


def narrow_speed(table: ArchitectureTable, operands: str | None) -> Floats:
    """Multiply-accumulates of operands in 8 or 4 bits in the place of one in the tensor cores' own precision.

    1 where they are no faster: an array without the format would have to widen them first. None: the own precision.
    """
    own = peak_flops_per_s(table)
    return np.maximum(product_flops_per_s(table, operands) / own, 1.0)


def vector_flops_per_s(table: ArchitectureTable) -> Floats:
    """fp32 rate of the vector cores (a fused multiply-add is two) at the sustained clock."""
    return 2.0 * vector_alus(table) * table["clock_hz"]


def hbm_bandwidth_bytes_per_s(table: ArchitectureTable) -> Floats:
    """HBM bandwidth of the chip."""
    per_stack = constants().column(table, "hbm_generation", "bandwidth_bytes_per_s")
    return given_or(table, "hbm_bandwidth_bytes_per_s", table["hbm_stacks"] * per_stack)


def hbm_capacity_bytes(table: ArchitectureTable) -> Floats:
    """HBM capacity of the chip."""
    per_stack = constants().column(table, "hbm_generation", "capacity_gib") * GIB
    return given_or(table, "hbm_capacity_bytes", table["hbm_stacks"] * per_stack)


def hbm_sites(table: ArchitectureTable) -> Floats:
    """HBM interfaces on the dies, those without a stack included; one for every stack at least."""
    return np.fmax(table["hbm_sites_on_die"], table["hbm_stacks"])


def local_buffer_bytes(table: ArchitectureTable) -> Floats:
    """Local buffers of all tensor cores in use."""
    c = constants()
    kib = table["tensor_core_rows"] * table["tensor_core_columns"] * c["local_kib_per_mac"]
    rule = table["tensor_cores"] * np.maximum(kib, c["local_minimum_kib"]) * KIB
    return given_or(table, "local_buffer_bytes", rule)


def local_buffer_bytes_per_core(table: ArchitectureTable) -> Floats:
    """Share of one tensor core in the local buffers."""
    return local_buffer_bytes(table) / table["tensor_cores"]


def local_buffer_bytes_per_group(table: ArchitectureTable) -> Floats:
    """One local buffer: that of the tensor cores that share it."""
    sharing = np.minimum(table["tensor_cores_per_local_buffer"], table["tensor_cores"])
    shared: Floats = local_buffer_bytes_per_core(table) * sharing
    return shared


def register_bytes(table: ArchitectureTable) -> Floats:
    """Registers of all cores in use."""
    c = constants()
    rule = macs(table) * c["register_bytes_per_mac"] + vector_alus(table) * c["register_bytes_per_alu"]
    return given_or(table, "register_bytes", rule)


def global_buffer_bandwidth_bytes_per_s(table: ArchitectureTable) -> Floats:
    """Global buffer to all local buffers together, at the sustained clock."""
    rate: Floats = table["global_buffer_bytes_per_cycle"] * table["clock_hz"]
    return rate


def nominal_clock_hz(table: ArchitectureTable) -> Floats:
    """Clock at nominal voltage: the die's own where it is known, that of the process node elsewhere."""
    of_node = constants().column(table, "node", "nominal_clock_hz")
    return given_or(table, "nominal_clock_hz", of_node)


_ON_MATRIX = 1.5
"""Times the rate of the vector ALUs: products in fp32 that are faster run on the matrix cores."""


def fp32_on_vector(table: ArchitectureTable) -> Flags:
    """Whether products in fp32 run on vector ALUs beside the tensor cores, (A,)."""
    vector_peak = 2.0 * vector_alus(table) * peak_clock_hz(table)
    slower = product_flops_per_s(table, "fp32") < _ON_MATRIX * vector_peak
    return np.asarray(slower & ~table["vector_products"], dtype=np.bool_)
