"""How SCALE-Sim, the reference simulator of systolic arrays, lays a product out, and its stall-free cycles.

The array keeps one operand (or the results) while the others stream through. What does not fit is done in
folds, one after the other without overlap: those of one column of folds first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from phaze.workload.work import Gemm


class Dataflow(StrEnum):
    """Which operand stays in the array (SCALE-Sim's words)."""

    WEIGHT_STATIONARY = "ws"
    OUTPUT_STATIONARY = "os"
    INPUT_STATIONARY = "is"


@dataclass(frozen=True, slots=True)
class Layout:
    """One product on an array of `rows` x `columns`.

    `along_rows`, `along_columns`: extents of what stays in the array; `steps`: length of what streams through.
    """

    dataflow: Dataflow
    rows: int
    columns: int
    along_rows: int
    along_columns: int
    steps: int

    @property
    def keeps_results(self) -> bool:
        """Both operands stream; otherwise one of them is loaded before each fold."""
        return self.dataflow is Dataflow.OUTPUT_STATIONARY

    @property
    def folds(self) -> list[tuple[int, int]]:
        """(row of folds, column of folds) in the order they are done."""
        return [(down, across) for across in range(self.column_folds) for down in range(self.row_folds)]

    @property
    def row_folds(self) -> int:
        """Folds that `along_rows` takes."""
        return -(-self.along_rows // self.rows)

    @property
    def column_folds(self) -> int:
        """Folds that `along_columns` takes."""
        return -(-self.along_columns // self.columns)

    @property
    def fold_cycles(self) -> int:
        """Load what stays (unless that is the results), stream, and let the wave leave the array."""
        load = 0 if self.keeps_results else self.rows
        return load + self.steps + self.rows + self.columns - 2

    @property
    def cycles(self) -> int:
        """All folds, whole ones at the edges too."""
        return self.row_folds * self.column_folds * self.fold_cycles


def array_layout(dataflow: Dataflow, gemm: Gemm, rows: int, columns: int) -> Layout:
    """One of the groups of a product as the tool maps it."""
    kept = {
        Dataflow.WEIGHT_STATIONARY: (gemm.k, gemm.n, gemm.m),
        Dataflow.OUTPUT_STATIONARY: (gemm.m, gemm.n, gemm.k),
        Dataflow.INPUT_STATIONARY: (gemm.k, gemm.m, gemm.n),
    }[dataflow]
    return Layout(dataflow, rows, columns, *kept)


def scalesim_cycles(dataflow: Dataflow, gemm: Gemm, rows: int, columns: int) -> int:
    """Stall-free cycles of SCALE-Sim (v2.0.2 and v3.0.0): tiles one after the other, no overlap.

    Source: rows of the tool's demand matrix, a closed form that held on all 3 795 runs compared; the
    tool's report prints one less.
    """
    return gemm.groups * array_layout(dataflow, gemm, rows, columns).cycles
