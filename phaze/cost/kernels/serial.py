"""Matrix products alone on a chip of few large systolic arrays and a large software-managed memory.

Nothing is there yet to compute on while the first operands arrive, and the last results leave when they are
complete: a product that fits into what a compiler gives one kernel of the on-chip memory is loaded, computed
and stored one after the other. Of a larger one only so many bytes are not hidden behind the compute,
or the other way round. Where neither operand stays on the chip, they are read again as the best tiles in
that memory demand. Edge tiles of the arrays are computed as whole ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze.arrays import Floats
from phaze.cost.tiling import traffic_bytes
from phaze.hardware.derived import hbm_bandwidth_bytes_per_s, local_buffer_bytes, product_flops_per_s
from phaze.hardware.table import ArchitectureTable
from phaze.workload.work import Gemm

_SUBLANES = 8  # rows of a register tile, to which the streamed side is padded
_KERNEL_BYTES = 16 * 2.0**20  # on-chip memory of one kernel: XLA's default limit on TPUs of one TensorCore
_RESIDENT = 0.5  # share of the on-chip memory that one operand can have to itself


@dataclass(frozen=True, slots=True)
class SerialChip:
    """What the law needs of a chip; arrays of `rows` (contraction) by `columns` (outputs)."""

    rows: float
    columns: float
    memory_bytes_per_s: float
    on_chip_bytes: float

    @property
    def kernel_bytes(self) -> float:
        """What one kernel has of the on-chip memory."""
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
