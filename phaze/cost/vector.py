"""Operators on vector cores: cycles, and the memory traffic that no tiling can change."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from phaze.arrays import Floats
from phaze.workload.work import Traffic, Work


def vector_cycles(work: Work, alus: ArrayLike, cores: ArrayLike = 1) -> Floats:
    """Cycles on `cores` vector cores of `alus` fp32 ALUs each; elements are dealt evenly to all ALUs."""
    lanes = np.asarray(alus, dtype=np.float64) * np.asarray(cores, dtype=np.float64)
    cycles: Floats = np.ceil(work.vector_cycles / lanes)
    return cycles


def stream_bytes(work: Work, global_buffer_bytes: ArrayLike) -> Floats:
    """HBM bytes beside those of tiled products.

    A flash kernel re-reads the tensors that stream past the block it holds, once per further block. Half
    of the global buffer holds the block; the other half takes what streams past it. A buffer below two
    bytes holds one byte at a time.
    """
    held = np.maximum(np.asarray(global_buffer_bytes, dtype=np.float64) / 2, 1.0)
    blocks = np.ceil(work.reread_rows_bytes / held)
    bytes_: Floats = work.stream_bytes + work.reread_bytes * np.maximum(blocks - 1, 0)
    return bytes_


def passing_bytes(work: Work) -> float:
    """Bytes between the global buffer and vector cores.

    Operands of products inside a fused kernel are streamed tensors too; they are counted with the
    products and not twice.
    """
    fused = any(gemm.traffic is Traffic.FUSED for gemm in work.gemms)
    return 0.0 if fused else work.stream_bytes
