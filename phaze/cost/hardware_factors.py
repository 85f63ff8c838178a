"""Distinct combinations of the fields that matter to a cost, and the one that each architecture shows.

Compute depends on the tensor cores, on the vector cores, traffic on the buffers and memories: a few
hundred combinations each where their product has hundreds of thousands. Costs are worked out per
combination and gathered per architecture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.cost.fidelity import Fidelity
from phaze.cost.simt_chips import SimtSide
from phaze.cost.software_losses import SoftwareLosses, software_losses
from phaze.hardware.architecture_table import ArchitectureTable, factor
from phaze.hardware.derived_figures import (
    hbm_bandwidth_bytes_per_s,
    local_buffer_bytes_per_group,
    narrow_speed,
)
from phaze.workload.work import Format

_CLOCK_LEVELS = 16
_FEW = 3  # clocks that tell about the others: the ends and one between
_DENSE = (
    4  # times as many combinations as architectures: so many flags are looked through rather than keys sorted
)
_LARGEST = 1 << 62
_TENSOR = (
    "tensor_cores",
    "tensor_core_rows",
    "tensor_core_columns",
    "local_bytes",
    "global_buffer_bytes_per_cycle",
    "fp8_speed",
    "fp4_speed",
    "int8_speed",
)
_VECTOR = ("vector_cores", "vector_core_alus")
_MEMORY = ("global_buffer_bytes", "hbm_bytes_per_s", "link_bandwidth_bytes_per_s")
_FIELDS = (_TENSOR, _VECTOR, _MEMORY)


@dataclass(frozen=True)
class TensorSide:
    """Distinct tensor-core configurations, one value each."""

    cores: Floats
    rows: Floats
    columns: Floats
    local_buffer_bytes: Floats  # one buffer, of the cores that share it
    buffer_bytes_per_cycle: Floats  # global buffer to all local buffers
    fp8_speed: Floats  # products of the format in the place of one in the arrays' own precision
    fp4_speed: Floats
    int8_speed: Floats


@dataclass(frozen=True)
class VectorSide:
    """Distinct vector-core configurations, one value each."""

    cores: Floats
    alus: Floats


@dataclass(frozen=True)
class MemorySide:
    """Distinct combinations of global buffer, HBM and link, one value each."""

    global_buffer_bytes: Floats
    hbm_bytes_per_s: Floats
    link_bytes_per_s: Floats


@dataclass(frozen=True)
class Coding:
    """Finds the combination that an architecture shows: mixed-radix numbers of its fields' known values.

    `numbers` (combinations,): the number of every known combination, ascending; `combination` the one it stands for.
    """

    fields: tuple[str, ...]
    values: tuple[Floats, ...]
    numbers: NDArray[np.int64]
    combination: Rows

    @classmethod
    def of(cls, fields: tuple[str, ...], columns: list[Floats]) -> Coding:
        """The coding of known combinations, one column per field."""
        values = tuple(np.unique(column) for column in columns)
        numbers = np.zeros(len(columns[0]), dtype=np.int64)
        for known, column in zip(values, columns, strict=True):
            numbers = numbers * len(known) + np.searchsorted(known, column)
        order = np.argsort(numbers, kind="stable")
        return cls(fields, values, numbers[order], order)

    @property
    def usable(self) -> bool:
        """Whether the numbers do not overflow."""
        return math.prod(len(v) for v in self.values) < _LARGEST

    def find(self, table: ArchitectureTable) -> Rows | None:
        """The combination of each architecture, (A,); None where one of them is not known."""
        numbers = np.zeros(len(table), dtype=np.int64)
        for known, name in zip(self.values, self.fields, strict=True):
            column = table[name]
            digit = np.minimum(np.searchsorted(known, column), len(known) - 1)
            if not np.array_equal(known[digit], column):
                return None
            numbers = numbers * len(known) + digit
        at = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        return self.combination[at] if np.array_equal(self.numbers[at], numbers) else None


@dataclass(frozen=True)
class FewClocks:
    """Architectures at the nearest of a few clocks: combinations with tensor sides, and with vector sides.

    Of each the shown numbers, ascending, and which every architecture has, (A,), at a clock no lower than its own and
    at one no higher. `shorter` (A,): its cycle over that of the latter, at most 1.
    """

    tensor: tuple[tuple[Rows, Rows], ...]
    vector: tuple[tuple[Rows, Rows], ...]
    shorter: Floats


@dataclass(frozen=True)
class Factors:
    """Distinct combinations, and for each architecture the one it shows on every side.

    `losses`: of software, on those that are not SIMT architectures.

    `clock_level[i]` is a level of `level_cycle_s` that is at most `cycle_s[i]`: equal to it while there
    are few distinct clocks. Only lower bounds may use it. `simt_of[i]` is the number of a SIMT architecture in
    `simt`, which the sides say too little about, -1 for others.
    """

    tensor: TensorSide
    vector: VectorSide
    memory: MemorySide
    tensor_of: Rows
    vector_of: Rows
    memory_of: Rows
    cycle_s: Floats
    level_cycle_s: Floats
    clock_level: Rows
    codings: tuple[Coding, Coding, Coding]
    simt: SimtSide
    simt_of: Rows
    losses: SoftwareLosses

    def shown(self, rows: Rows) -> list[tuple[int, int, int, float, int]]:
        """Factors of latencies on the architectures at `rows`: a combination of every side, the clock, the chip.

        The last is the number of a SIMT architecture.
        """
        sides = (self.tensor_of, self.vector_of, self.memory_of, self.cycle_s, self.simt_of)
        return list(zip(*(side[rows].tolist() for side in sides), strict=True))

    @cached_property
    def tensor_pairs(self) -> tuple[Rows, Rows]:
        """Shown combinations of clock level, tensor and memory side, ascending numbers, and which each shows, (A,)."""
        return self._pairs(len(self.tensor.cores), self.tensor_of)

    @cached_property
    def vector_pairs(self) -> tuple[Rows, Rows]:
        """The same with the vector side."""
        return self._pairs(len(self.vector.cores), self.vector_of)

    def _pairs(self, sides: int, side_of: Rows, levels: Rows | None = None) -> tuple[Rows, Rows]:
        """Combinations with sides of one kind; `levels`: what stands for each clock level."""
        memories, level_of = len(self.memory.hbm_bytes_per_s), self.clock_level
        level_of = level_of if levels is None else levels[level_of]
        numbers, most = (level_of * sides + side_of) * memories + self.memory_of, len(self.level_cycle_s)
        if (most := most * sides * memories) > _DENSE * len(numbers):
            found, which = np.unique(numbers, return_inverse=True)
            return found, which.ravel()
        shown = np.zeros(most, dtype=np.bool_)
        shown[numbers] = True
        return np.flatnonzero(shown), (np.cumsum(shown) - 1)[numbers]

    @cached_property
    def few_clocks(self) -> FewClocks | None:
        """Combinations at a few of the clocks for architectures at all of them; None where there are no more."""
        clocks = len(self.level_cycle_s)
        if clocks <= _FEW or (self.level_cycle_s[self.clock_level] != self.cycle_s).any():
            return None
        few = np.linspace(0, clocks - 1, _FEW).round().astype(np.intp)
        faster = few[np.searchsorted(few, np.arange(clocks), side="right") - 1]
        slower = few[np.searchsorted(few, np.arange(clocks), side="left")]
        sides = (len(self.tensor.cores), self.tensor_of), (len(self.vector.cores), self.vector_of)
        tensor, vector = (tuple(self._pairs(*side, levels) for levels in (faster, slower)) for side in sides)
        return FewClocks(tensor, vector, self.cycle_s / self.level_cycle_s[slower][self.clock_level])

    def on(self, table: ArchitectureTable) -> Factors | None:
        """The same combinations with the positions of other architectures; None where one shows a new one."""
        full, cycle_s = _full(table), 1.0 / np.asarray(table["clock_hz"], dtype=np.float64)
        found = [c.find(full) if c.usable else None for c in self.codings]
        level = np.searchsorted(self.level_cycle_s, cycle_s, side="right") - 1
        tensor_of, vector_of, memory_of = found
        simt_of = self.simt.find(table)
        if tensor_of is None or vector_of is None or memory_of is None or simt_of is None:
            return None
        if level.min(initial=0) < 0:
            return None
        return replace(
            self,
            tensor_of=tensor_of,
            vector_of=vector_of,
            memory_of=memory_of,
            cycle_s=cycle_s,
            clock_level=level.astype(np.intp),
            simt_of=simt_of,
        )

    def has_memories_of(self, table: ArchitectureTable) -> bool:
        """Whether they have the buffers, memories and links of all other architectures, and their kind of cores."""
        *_, memories = self.codings
        if not memories.usable or self.simt.find(table) is None:
            return False
        return memories.find(table.replace(hbm_bytes_per_s=hbm_bandwidth_bytes_per_s(table))) is not None


def factor_table(table: ArchitectureTable, rung: Fidelity) -> Factors:
    """Factor a table of architectures into its sides."""
    full = _full(table)
    (tensor, tensor_of), (vector, vector_of), (memory, memory_of) = (_side(full, f) for f in _FIELDS)
    cycle_s = 1.0 / np.asarray(table["clock_hz"], dtype=np.float64)
    levels, level_of = _levels(cycle_s)
    simt, simt_of = SimtSide.of(table, rung)
    return Factors(
        TensorSide(*tensor),
        VectorSide(*vector),
        MemorySide(*memory),
        tensor_of,
        vector_of,
        memory_of,
        cycle_s,
        levels,
        level_of,
        codings=(Coding.of(_TENSOR, tensor), Coding.of(_VECTOR, vector), Coding.of(_MEMORY, memory)),
        simt=simt,
        simt_of=simt_of,
        losses=software_losses(rung),
    )


def _full(table: ArchitectureTable) -> ArchitectureTable:
    """The table with the derived columns that combinations are made of."""
    return table.replace(
        hbm_bytes_per_s=hbm_bandwidth_bytes_per_s(table),
        local_bytes=local_buffer_bytes_per_group(table),
        fp8_speed=narrow_speed(table, Format.FP8),
        fp4_speed=narrow_speed(table, Format.FP4),
        int8_speed=narrow_speed(table, Format.INT8),
    )


def _side(table: ArchitectureTable, fields: tuple[str, ...]) -> tuple[list[Floats], Rows]:
    """Columns of the distinct combinations of some fields, and the combination of each architecture."""
    rows, inverse = factor(table, fields)
    return [np.asarray(table[name][rows], dtype=np.float64) for name in fields], inverse


def _levels(cycle_s: Floats) -> tuple[Floats, Rows]:
    """Few cycle times from below: the distinct ones, or a geometric ladder where there are many."""
    levels, level_of = np.unique(cycle_s, return_inverse=True)
    if len(levels) > _CLOCK_LEVELS:
        levels = np.geomspace(levels[0], levels[-1], _CLOCK_LEVELS + 1)[:-1] * (1 - 1e-12)
        level_of = np.searchsorted(levels, cycle_s, side="right") - 1
    return levels, level_of.astype(np.intp)
