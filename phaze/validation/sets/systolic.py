"""SCALE-Sim, the reference simulator of systolic arrays."""

from __future__ import annotations

import numpy as np

from phaze.cost.rung import Rung
from phaze.cost.systolic import Dataflow, scalesim_cycles
from phaze.validation.cases import Judged
from phaze.validation.columns import Columns
from phaze.workload.work import Gemm


def compute_cycles(columns: Columns) -> Judged:
    """Cycles without stalls of single products; the roofline is multiply-accumulates over array size."""
    m, n, k, rows, width, measured = (
        columns.numbers(name) for name in ("M", "N", "K", "array_rows", "array_cols", "compute_cycles")
    )
    flows = [Dataflow(text) for text in columns["dataflow"]]
    cycles = [
        scalesim_cycles(flow, _gemm(int(a), int(b), int(c)), int(r), int(w))
        for flow, a, b, c, r, w in zip(flows, m, k, n, rows, width, strict=True)
    ]
    return Judged(
        measured,
        {Rung.ROOFLINE: m * n * k / (rows * width), Rung.ANALYTIC: np.array(cycles, dtype=np.float64)},
        {},
    )


def _gemm(m: int, k: int, n: int) -> Gemm:
    return Gemm(1, m, k, n, 0.0, 0.0, 0.0)
