"""SCALE-Sim, the reference simulator of systolic arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from phaze.cost.fidelity import Fidelity
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.scalesim.scalesim_cycles import Dataflow, scalesim_cycles
from phaze.validation.scalesim.scalesim_stalls import Interfaces, stalled_run
from phaze.workload.work import Gemm

_SIZES = ("M", "K", "N", "array_rows", "array_cols")


def compute_cycles(columns: Columns) -> Judged:
    """Cycles without stalls of single products."""
    return _judged(columns, "compute_cycles", [scalesim_cycles(*case) for case in _cases(columns)])


def stalled_cycles(columns: Columns) -> Judged:
    """Cycles of single products with buffers of finite size and bandwidth, one-byte words."""
    sizes, rates = columns.numbers("sram_kb_each") * 1024, columns.numbers("dram_bw_words_per_cycle")
    cycles = [
        stalled_run(*case, Interfaces(int(size), int(rate))).cycles
        for case, size, rate in zip(_cases(columns), sizes, rates, strict=True)
    ]
    return _judged(columns, "tool_total_cycles", cycles)


def _cases(columns: Columns) -> Iterator[tuple[Dataflow, Gemm, int, int]]:
    sizes = np.stack([columns.numbers(name) for name in _SIZES], axis=1).astype(np.int64)
    for flow, (m, k, n, rows, width) in zip(columns["dataflow"], sizes.tolist(), strict=True):
        yield Dataflow(flow), Gemm(1, m, k, n, 0.0, 0.0, 0.0), rows, width


def _judged(columns: Columns, measured: str, cycles: Sequence[int]) -> Judged:
    """All rows; the roofline is multiply-accumulates over array size."""
    m, k, n, rows, width = (columns.numbers(name) for name in _SIZES)
    predicted = {
        Fidelity.ROOFLINE: m * n * k / (rows * width),
        Fidelity.ANALYTIC: np.array(cycles, dtype=np.float64),
    }
    return Judged(columns.numbers(measured), predicted, {})
