"""Operators of a whole model as one compiled program on a chip of few large systolic arrays.

A compiler that sees the whole model (XLA) places the operators one after the other and copies the operands of
the next one into on-chip memory while the present one computes. So unlike a product alone (`serial.py`), an
operator pays the longest of arithmetic on the arrays, arithmetic on the vector units and its bytes, and beyond them
only what its first and last tile cannot hide. Element-wise work that is fused to a product hides behind it;
masked blocks of flash attention are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.cost.kernels.fitted import Constants, fitted
from phaze.cost.kernels.serial import SerialChip, load_bytes, padded_flops, serial_chip
from phaze.hardware.derived import peak_clock_hz, product_flops_per_s, vector_alus
from phaze.hardware.fields import code
from phaze.hardware.table import ArchitectureTable
from phaze.workload.work import Flash, Gemm, Traffic, Work

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
    return family in fitted(ProgramLaw, FILE)


def measured(table: ArchitectureTable) -> NDArray[np.bool_]:
    """Which architectures are systolic chips of a measured family, (A,)."""
    codes = [code("family", family) for family in fitted(ProgramLaw, FILE)]
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
