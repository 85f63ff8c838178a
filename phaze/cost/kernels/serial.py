"""Matrix products of a systolic chip whose kernels load, compute and store one after the other.

What TPU kernels of a single product do that fits into the on-chip memory: nothing is there yet to compute
on while the operands arrive, and the result leaves when it is complete. Edge tiles of the arrays are
computed as whole ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.hardware.derived import hbm_bandwidth_bytes_per_s, product_flops_per_s
from phaze.hardware.table import ArchitectureTable
from phaze.workload.work import Gemm

Floats = NDArray[np.float64]

_SUBLANES = 8  # rows of a register tile, to which the streamed side is padded


@dataclass(frozen=True, slots=True)
class SerialChip:
    """What the law needs of a chip; arrays of `rows` (contraction) by `columns` (outputs)."""

    rows: float
    columns: float
    memory_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class SerialLaw:
    """Constants of one chip family: launch, and shares of the peak and of the bandwidth each way."""

    launch_s: float
    efficiency: float
    load_efficiency: float
    store_efficiency: float


@dataclass(frozen=True, slots=True)
class SerialProducts:
    """Products (m x k) (k x n), `groups` of each, arrays of one length; bytes of operands and of results.

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
    m = np.ceil(products.m / _SUBLANES) * _SUBLANES
    k = np.ceil(products.k / chip.rows) * chip.rows
    n = np.ceil(products.n / chip.columns) * chip.columns
    compute = 2.0 * products.groups * m * k * n / (law.efficiency * products.peak_flop_per_s)
    load = products.load_bytes / (law.load_efficiency * chip.memory_bytes_per_s)
    store = products.store_bytes / (law.store_efficiency * chip.memory_bytes_per_s)
    seconds: Floats = law.launch_s + load + compute + store
    return seconds


def serial_chip(chip: ArchitectureTable) -> SerialChip:
    """The fields of a chip, a table of one, that the law needs."""
    return SerialChip(
        rows=float(chip["tensor_core_rows"][0]),
        columns=float(chip["tensor_core_columns"][0]),
        memory_bytes_per_s=float(hbm_bandwidth_bytes_per_s(chip)[0]),
    )


def systolic_products_s(gemms: Sequence[Gemm], chip: ArchitectureTable, law: SerialLaw) -> Floats:
    """Seconds of each product on a chip, a table of one, (G,)."""
    groups, m, k, n = np.array([(g.groups, g.m, g.k, g.n) for g in gemms], dtype=np.float64).T
    load, store = np.array([(g.a_bytes + g.b_bytes, g.c_bytes) for g in gemms]).T
    rates = np.array([float(product_flops_per_s(chip, g.operands)[0]) for g in gemms])
    return serial_products_s(SerialProducts(groups, m, k, n, load, store, rates), serial_chip(chip), law)
