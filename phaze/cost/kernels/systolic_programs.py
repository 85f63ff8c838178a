"""Chips of few large systolic arrays: matrix products alone, and operators of a whole model as one compiled program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.cost.kernels.fitted_constants import Constants, fitted_constants
from phaze.cost.tiling import traffic_bytes
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import (
    hbm_bandwidth_bytes_per_s,
    local_buffer_bytes,
    peak_clock_hz,
    product_flops_per_s,
    vector_alus,
)
from phaze.hardware.hardware_fields import code
from phaze.workload.work import Flash, Gemm, Traffic, Work

_SUBLANES = 8  # rows of a register tile, to which the streamed side is padded
_KERNEL_BYTES = 16 * 2.0**20  # on-chip memory of one kernel: XLA's default limit on TPUs of one TensorCore
_RESIDENT = 0.5  # share of the on-chip memory that one operand can have to itself


@dataclass(frozen=True, slots=True)
class SerialChip:
    """Figures of a chip that the law needs; arrays of `rows` (contraction) by `columns` (outputs)."""

    rows: float
    columns: float
    memory_bytes_per_s: float
    on_chip_bytes: float

    @property
    def kernel_bytes(self) -> float:
        """Bytes of the on-chip memory that one kernel has."""
        return min(_KERNEL_BYTES, _RESIDENT * self.on_chip_bytes)


@dataclass(frozen=True, slots=True)
class SerialLaw:
    """Constants of one chip family: launch, and shares of the peak and of the bandwidth each way."""

    launch_s: float
    efficiency: float
    load_efficiency: float
    store_efficiency: float


@dataclass(frozen=True, slots=True)
class SerialProducts:
    """Products (m x k) (k x n), `groups` of each, arrays of one length; bytes read and written in all.

    `peak_flop_per_s`: of the chip for these operands' format.
    """

    groups: Floats
    m: Floats
    k: Floats
    n: Floats
    load_bytes: Floats
    store_bytes: Floats
    peak_flop_per_s: Floats


def serial_products_s(products: SerialProducts, chip: SerialChip, law: SerialLaw) -> Floats:
    """Seconds of each product on an otherwise idle chip, launch included."""
    compute = padded_flops(products, chip) / (law.efficiency * products.peak_flop_per_s)
    load = products.load_bytes / (law.load_efficiency * chip.memory_bytes_per_s)
    memory = load + products.store_bytes / (law.store_efficiency * chip.memory_bytes_per_s)
    exposed = np.minimum(1.0, chip.kernel_bytes / (products.load_bytes + products.store_bytes))
    seconds: Floats = np.maximum(compute, memory) + exposed * np.minimum(compute, memory)
    return law.launch_s + seconds


def padded_flops(products: SerialProducts | Gemm, chip: SerialChip) -> Floats:
    """Operations with the edge tiles of the arrays as whole ones."""
    m = np.ceil(products.m / _SUBLANES) * _SUBLANES
    k = np.ceil(products.k / chip.rows) * chip.rows
    n = np.ceil(products.n / chip.columns) * chip.columns
    flops: Floats = 2.0 * products.groups * m * k * n
    return flops


def load_bytes(gemm: Gemm, chip: SerialChip) -> float:
    """Bytes of operands read; each once where one of them stays on the chip."""
    if min(gemm.a_bytes, gemm.b_bytes) <= _RESIDENT * chip.on_chip_bytes * gemm.groups:
        return gemm.a_bytes + gemm.b_bytes
    return float(traffic_bytes(gemm, chip.kernel_bytes, depth=chip.rows)) - gemm.c_bytes


def serial_chip(chip: ArchitectureTable) -> SerialChip:
    """The fields of a chip, a table of one, that the law needs."""
    return SerialChip(
        rows=float(chip["tensor_core_rows"][0]),
        columns=float(chip["tensor_core_columns"][0]),
        memory_bytes_per_s=float(hbm_bandwidth_bytes_per_s(chip)[0]),
        on_chip_bytes=float(chip["global_buffer_bytes"][0] + local_buffer_bytes(chip)[0]),
    )


def systolic_products_s(gemms: Sequence[Gemm], chip: ArchitectureTable, law: SerialLaw) -> Floats:
    """Seconds of each product on a chip, a table of one, (G,)."""
    groups, m, k, n = np.array([(g.groups, g.m, g.k, g.n) for g in gemms], dtype=np.float64).T
    one = serial_chip(chip)
    load, store = np.array([(load_bytes(g, one), g.c_bytes) for g in gemms]).T
    peak = {f: float(product_flops_per_s(chip, f)[0]) for f in {g.operands for g in gemms}}
    rates = np.array([peak[g.operands] for g in gemms])
    return serial_products_s(SerialProducts(groups, m, k, n, load, store, rates), one, law)


FILE = "programs.yaml"


@dataclass(frozen=True, slots=True)
class ProgramLaw:
    """Constants of one chip family.

    `operator_s`: what an operator takes beyond its work. `efficiency`: share of the arrays' peak in products that
    are large enough for all of them, `attention_efficiency` in those of flash attention, which wait for the softmax
    between them, `attention_block` queries by as many keys at a time. `memory_efficiency`: share of the memory
    bandwidth.
    """

    operator_s: float
    efficiency: float
    attention_efficiency: float
    attention_block: float
    memory_efficiency: float


def is_measured(family: str) -> bool:
    """Whether there are constants of a family."""
    return family in fitted_constants(ProgramLaw, FILE)


def measured(table: ArchitectureTable) -> NDArray[np.bool_]:
    """Architectures that are systolic chips of a measured family, (A,)."""
    codes = [code("family", family) for family in fitted_constants(ProgramLaw, FILE)]
    return np.isin(table["family"], codes) & ~np.asarray(table["simt"], dtype=np.bool_)


def program_s(works: Sequence[Work], chip: ArchitectureTable, constants: Constants) -> Floats:
    """Seconds of each operator, none a collective, on a chip, a table of one, (O,); NaN where nothing is fitted."""
    law = constants.law(ProgramLaw, FILE)
    if law is None:
        return np.full(len(works), np.nan)
    one, clock = serial_chip(chip), float(peak_clock_hz(chip)[0])
    alus, bandwidth = float(vector_alus(chip)[0]), law.memory_efficiency * one.memory_bytes_per_s
    seconds = np.empty(len(works))
    for o, work in enumerate(works):
        visible = 1.0 if work.flash is None else _visible(work.flash, law.attention_block)
        share = law.efficiency if work.flash is None else law.attention_efficiency
        arrays = sum(_flops_s(gemm, chip, one) for gemm in work.gemms) * visible / share
        vector = visible * work.vector_cycles / (alus * clock)
        moved = work.stream_bytes + sum(_bytes(gemm, one) for gemm in work.gemms)
        seconds[o] = law.operator_s + max(arrays, vector, moved / bandwidth)
    return seconds


def _flops_s(gemm: Gemm, chip: ArchitectureTable, one: SerialChip) -> float:
    """Seconds of a product at the arrays' peak, edges padded."""
    return float(padded_flops(gemm, one)) / float(product_flops_per_s(chip, gemm.operands)[0])


def _visible(flash: Flash, block: float) -> float:
    """Share of the scores in blocks that a causal mask does not hide as a whole."""
    return min(1.0, flash.visible + block / (2 * flash.queries)) if flash.visible < 1 else 1.0


def _bytes(gemm: Gemm, one: SerialChip) -> float:
    """Bytes of a product that is no part of a larger kernel."""
    return load_bytes(gemm, one) + gemm.c_bytes if gemm.traffic is Traffic.TILED else 0.0
