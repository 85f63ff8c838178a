"""Scaling activations to 8 or 4 bits before a product, as libraries do it while a model runs.

One scale per tensor takes several kernels: find the largest magnitude, turn it into a scale, convert. Scales
per block of 128 values in 8 bits, or of 16 in 4, are found and applied by one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze.arrays import Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import hbm_bandwidth_bytes_per_s
from phaze.workload.work import Unit, Work

PER_TENSOR = "quantise_tensor"
PER_BLOCK = "quantise_blocks"
TO_FP4 = "quantise_fp4"
FP4_BYTES = 0.5 + 1 / 16
"""Of an element, and its share of a scale in 8 bits for every 16."""

_BYTES = {
    PER_TENSOR: 2 + 2 + 1,
    PER_BLOCK: 2 + 1,
    TO_FP4: 2 + FP4_BYTES,
}  # 16-bit values read (twice for one scale), narrow ones written


@dataclass(frozen=True, slots=True)
class QuantiseLaw:
    """Constants of one chip family: launches of all kernels together, and traffic over what HBM would give.

    An `efficiency` above 1: the second pass finds its values in the cache.
    """

    tensor_launch_s: float
    tensor_efficiency: float
    block_launch_s: float
    block_efficiency: float
    fp4_launch_s: float
    fp4_efficiency: float


def quantisation(rows: int, columns: int, kind: str) -> Work:
    """Scaling (rows x columns) 16-bit values, to 8 bits with a scale `PER_TENSOR` or `PER_BLOCK`, or `TO_FP4`."""
    values = float(rows * columns)
    return Work(kind, kind, Unit.VECTOR, vector_cycles=2.0 * values, stream_bytes=_BYTES[kind] * values)


def quantise_s(works: Sequence[Work], chip: ArchitectureTable, law: QuantiseLaw) -> Floats:
    """Seconds of each scaling alone on a chip, a table of one, launches included, (O,)."""
    constants = {
        PER_TENSOR: (law.tensor_launch_s, law.tensor_efficiency),
        PER_BLOCK: (law.block_launch_s, law.block_efficiency),
        TO_FP4: (law.fp4_launch_s, law.fp4_efficiency),
    }
    launch, efficiency = np.array([constants[work.kind] for work in works]).T
    moved = np.array([work.stream_bytes for work in works])
    seconds: Floats = launch + moved / (efficiency * hbm_bandwidth_bytes_per_s(chip)[0])
    return seconds
