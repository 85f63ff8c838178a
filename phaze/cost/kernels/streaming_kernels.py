"""Operators without products: tensors streamed from memory or cache past the vector ALUs.

A kernel takes a launch and the longest of four things: the memory, for tensors that the cache does not still
hold from the kernel before; the cache, for those that it does; the arithmetic; and on SIMT chips the loads
and stores themselves, where threads move less at a time than the chip would let them. A softmax or norm
reads a row again for every reduction that must be complete before the next one starts; those reads come from
the core's own buffer as long as the rows that the core has in work fit there.

The constants of a `StreamLaw` are fitted per chip family (`streams.yaml` for SIMT chips,
`serial_streams.yaml` for others); everything else comes from the hardware fields. Arrays are over operators.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from phaze.arrays import Floats
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.hardware.derived_figures import (
    hbm_bandwidth_bytes_per_s,
    local_buffer_bytes,
    multiprocessors,
    peak_clock_hz,
    vector_alus,
)
from phaze.workload.work import Work

# Reads of a row after its first: a softmax takes the maximum, then the sum, then divides; a norm takes its
# statistics, then divides.
_REREADS: Mapping[str, int] = MappingProxyType({"softmax": 2, "loss": 2, "norm": 1})
_HELD = 8  # how suddenly a cache stops holding tensors as they outgrow it
_MISSED = 4  # the same for rows in a core's buffer
_BLOCK_THREADS, _CORE_THREADS = (
    1024,
    2048,
)  # threads that walk a row together, and those that a core has in work


@dataclass(frozen=True, slots=True)
class StreamChip:
    """Figures of a chip that the law needs, at its peak clock; `row_bytes` is the local buffer of one core."""

    cores: float
    alus: float
    clock_hz: float
    memory_bytes_per_s: float
    cache_bytes: float
    row_bytes: float


@dataclass(frozen=True, slots=True)
class StreamLaw:
    """Constants of one chip family; by default what they stand for costs nothing.

    `launch_cycles`, `row_launch_cycles`: one kernel, and what one over rows takes more. `memory_efficiency`:
    share of the memory bandwidth that streams get. `cache_share`: of operators that move this share of the
    cache, half of the bytes are found there; `cache_bytes_per_cycle`: cache bandwidth per core.
    `alu_efficiency`, `row_efficiency`: share of the ALUs' rate, where elements are independent and where
    threads wait for the rest of their row. `norm_rows`, `softmax_rows`: rows that a core has in work.
    `accesses_per_cycle`: loads and stores per core; `step_cycles`: from one to the next of a thread that
    walks a row.
    """

    launch_cycles: float
    memory_efficiency: float
    row_launch_cycles: float = 0.0
    cache_share: float = 0.0
    cache_bytes_per_cycle: float = math.inf
    alu_efficiency: float = 1.0
    row_efficiency: float = 1.0
    norm_rows: float = 0.0
    softmax_rows: float = 0.0
    accesses_per_cycle: float = math.inf
    step_cycles: float = 0.0


@dataclass(frozen=True, slots=True)
class Streams:
    """Operators without products, arrays of one length; fields as in `Work`, `rereads` of each row."""

    stream_bytes: Floats
    vector_cycles: Floats
    rows: Floats
    access_bytes: Floats
    rereads: Floats
    row_threads: Floats

    @classmethod
    def of(cls, works: Sequence[Work]) -> Streams:
        """Figures of operators that the law needs."""
        columns = [
            (
                w.stream_bytes,
                w.vector_cycles,
                w.rows,
                w.access_bytes,
                _REREADS.get(w.kind, 0) if w.rows else 0,
                w.row_threads or _BLOCK_THREADS,
            )
            for w in works
        ]
        return cls(*np.array(columns, dtype=np.float64).reshape(-1, 6).T)

    @classmethod
    def moving(cls, moved_bytes: Floats) -> Streams:
        """Operators that move so many bytes each and compute next to nothing."""
        none = np.zeros(len(moved_bytes))
        return cls(moved_bytes, none, none, none, none, none + _BLOCK_THREADS)


def streams_s(streams: Streams, chip: StreamChip, law: StreamLaw) -> Floats:
    """Seconds of each operator on an otherwise idle chip, launch included."""
    by_row = streams.rows > 0
    launch = law.launch_cycles + by_row * law.row_launch_cycles
    rate = np.where(by_row, law.row_efficiency, law.alu_efficiency) * chip.cores * chip.alus
    cycles = np.maximum(streams.vector_cycles / rate, _access_cycles(streams, chip, law))
    busy: Floats = np.maximum(cycles / chip.clock_hz, _moving_s(streams, chip, law))
    return launch / chip.clock_hz + busy


def memory_s(moved_bytes: Floats, chip: StreamChip, law: StreamLaw) -> Floats:
    """Seconds of streams from memory."""
    return moved_bytes / (law.memory_efficiency * chip.memory_bytes_per_s)


def _moving_s(streams: Streams, chip: StreamChip, law: StreamLaw) -> Floats:
    """Seconds of the bytes, from the cache the share that it still holds and from memory the others."""
    in_work = np.where(streams.rereads == 1, law.norm_rows, law.softmax_rows)
    filled = in_work * _input_row_bytes(streams) / chip.row_bytes
    missed = streams.rereads * filled**_MISSED / (1 + filled**_MISSED)
    moved = streams.stream_bytes * (1 + missed / 2)
    memory = memory_s(moved, chip, law)
    cache = moved / (law.cache_bytes_per_cycle * chip.cores * chip.clock_hz)
    cache_bytes = max(law.cache_share * chip.cache_bytes, 1.0)
    held = 1 / (1 + (streams.stream_bytes / cache_bytes) ** _HELD)
    return memory - held * np.maximum(memory - cache, 0.0)


def _access_cycles(streams: Streams, chip: StreamChip, law: StreamLaw) -> Floats:
    """Cycles of loads and stores narrower than the chip's: all cores' rate, or rows walked wave by wave."""
    narrow = streams.access_bytes > 0
    accesses = (
        streams.stream_bytes * (1 + streams.rereads / 2) / np.where(narrow, streams.access_bytes, np.inf)
    )
    rows = np.maximum(streams.rows, 1)
    waves = np.ceil(rows * streams.row_threads / (_CORE_THREADS * chip.cores))
    walked = waves * accesses / rows / streams.row_threads * law.step_cycles
    return np.maximum(
        accesses / (law.accesses_per_cycle * chip.cores), np.where(streams.rows > 0, walked, 0.0)
    )


def _input_row_bytes(streams: Streams) -> Floats:
    """Bytes of a row that are read; half of what the operator moves, the other half is written."""
    return streams.stream_bytes / np.maximum(streams.rows, 1) / 2


def _function_alus(chip: ArchitectureTable) -> float:
    """ALUs of a core for functions: of half the integer ALUs, special functions and conversions need as many cycles."""
    alus, of_integers = float(vector_alus(chip)[0]), float(chip["int32_alus"][0])
    return (min(alus, of_integers) if of_integers else alus) / _cores(chip)


def _cores(chip: ArchitectureTable) -> float:
    """Cores that run blocks of threads: multiprocessors of a SIMT chip, vector cores of others."""
    return float((multiprocessors(chip) if chip["simt"][0] else chip["vector_cores"])[0])


def stream_chip(chip: ArchitectureTable) -> StreamChip:
    """The fields of a chip, a table of one, that the law needs."""
    cores = _cores(chip)
    return StreamChip(
        cores=cores,
        alus=_function_alus(chip),
        clock_hz=float(peak_clock_hz(chip)[0]),
        memory_bytes_per_s=float(hbm_bandwidth_bytes_per_s(chip)[0]),
        cache_bytes=float(chip["global_buffer_bytes"][0]),
        row_bytes=float(local_buffer_bytes(chip)[0]) / cores,
    )
