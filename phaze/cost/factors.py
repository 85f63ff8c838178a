"""Which distinct combination of the fields that matter to a cost each architecture shows.

Compute depends on the tensor cores, on the vector cores, traffic on the buffers and memories: a few
hundred combinations each where their product has hundreds of thousands. Costs are worked out per
combination and gathered per architecture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.hardware.derived import hbm_bandwidth_bytes_per_s, local_buffer_bytes_per_group
from phaze.hardware.table import ArchitectureTable, factor

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

_CLOCK_LEVELS = 16


@dataclass(frozen=True)
class TensorSide:
    """Distinct tensor-core configurations, one value each."""

    cores: Floats
    rows: Floats
    columns: Floats
    local_buffer_bytes: Floats  # one buffer, of the cores that share it
    buffer_bytes_per_cycle: Floats  # global buffer to all local buffers


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
class Factors:
    """Distinct combinations, and for each architecture the one it shows on every side.

    `clock_level[i]` is a level of `level_cycle_s` that is at most `cycle_s[i]`: equal to it while there
    are few distinct clocks. Only lower bounds may use it.
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


def factor_table(table: ArchitectureTable) -> Factors:
    """Factor a table of architectures into its sides."""
    full = table.replace(
        hbm_bytes_per_s=hbm_bandwidth_bytes_per_s(table),
        local_bytes=local_buffer_bytes_per_group(table),
    )
    tensor, tensor_of = _side(
        full,
        "tensor_cores",
        "tensor_core_rows",
        "tensor_core_columns",
        "local_bytes",
        "global_buffer_bytes_per_cycle",
    )
    vector, vector_of = _side(full, "vector_cores", "vector_core_alus")
    memory, memory_of = _side(full, "global_buffer_bytes", "hbm_bytes_per_s", "link_bandwidth_bytes_per_s")
    cycle_s = 1.0 / np.asarray(table["clock_hz"], dtype=np.float64)
    levels, level_of = _levels(cycle_s)
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
    )


def _side(table: ArchitectureTable, *fields: str) -> tuple[list[Floats], Rows]:
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
