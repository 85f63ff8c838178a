"""Matrix products of a systolic chip whose kernels load, compute and store one after the other.

What TPU kernels of a single product do that fits into the on-chip memory: nothing is there yet to compute
on while the operands arrive, and the result leaves when it is complete. Edge tiles of the arrays are
computed as whole ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SUBLANES = 8  # rows of a register tile, to which the streamed side is padded


@dataclass(frozen=True, slots=True)
class SerialChip:
    """What the law needs of a chip; arrays of `rows` (contraction) by `columns` (outputs)."""

    rows: float
    columns: float
    peak_flop_per_s: float
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
    """Products (m x k) (k x n), `groups` of each, arrays of one length; bytes of operands and of results."""

    groups: Floats
    m: Floats
    k: Floats
    n: Floats
    load_bytes: Floats
    store_bytes: Floats


def serial_products_s(products: SerialProducts, chip: SerialChip, law: SerialLaw) -> Floats:
    """Seconds of each product on an otherwise idle chip, launch included."""
    m = np.ceil(products.m / _SUBLANES) * _SUBLANES
    k = np.ceil(products.k / chip.rows) * chip.rows
    n = np.ceil(products.n / chip.columns) * chip.columns
    compute = 2.0 * products.groups * m * k * n / (law.efficiency * chip.peak_flop_per_s)
    load = products.load_bytes / (law.load_efficiency * chip.memory_bytes_per_s)
    store = products.store_bytes / (law.store_efficiency * chip.memory_bytes_per_s)
    seconds: Floats = law.launch_s + load + compute + store
    return seconds
