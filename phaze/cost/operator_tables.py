"""Costs of operators per distinct hardware combination, before they are gathered per architecture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from phaze.arrays import Floats
from phaze.cost.collective_times import link_s
from phaze.cost.core_cycles import (
    deals,
    dealt_gemm_cycles,
    fill_cycles,
    gemm_cycles,
    passing_bytes,
    stream_bytes,
    vector_cycles,
)
from phaze.cost.hardware_factors import Factors, MemorySide
from phaze.cost.tiling import traffic_bytes
from phaze.hardware.cluster_network import Network
from phaze.workload.work import Format, Gemm, Traffic, Unit, Work


@dataclass(frozen=True)
class GemmCosts:
    """One product on every tensor side (T,) and, for its HBM bytes, on every memory side (M,)."""

    single_cycles: Floats
    parallel_cycles: Floats
    buffer_bytes: Floats
    hbm_bytes: Floats


@dataclass(frozen=True)
class OperatorTables:
    """Operators (last axis O) on tensor sides (T, O), vector sides (V, O) and memory sides (M, O).

    Cycles at the chip's clock where they depend on it, seconds where they do not. `parallel` means all
    cores of the kinds an operator uses; `link` marks collectives, which have no such mode. `launch_s` (O,): what
    an operator takes beyond its work, wherever it runs.
    """

    tensor_single_cycles: Floats
    tensor_parallel_cycles: Floats
    fill_cycles: Floats
    launch_s: Floats
    buffer_bytes: Floats
    buffer_cycles: Floats
    vector_single_cycles: Floats
    vector_parallel_cycles: Floats
    hbm_bytes: Floats
    hbm_s: Floats
    link_s: Floats
    link: np.ndarray[tuple[int], np.dtype[np.bool_]]

    @cached_property
    def on_chip_cycles(self) -> tuple[Floats, Floats]:
        """Tensor cycles or global-buffer cycles, whichever are more, single and parallel (T, O)."""
        return (
            np.maximum(self.tensor_single_cycles, self.buffer_cycles),
            np.maximum(self.tensor_parallel_cycles, self.buffer_cycles),
        )

    @cached_property
    def off_chip_s(self) -> Floats:
        """HBM or link seconds, whichever are more (M, O)."""
        return np.maximum(self.hbm_s, self.link_s)

    @cached_property
    def total_hbm_s(self) -> Floats:
        """HBM seconds of all operators, (M,)."""
        total: Floats = self.hbm_s.sum(axis=1)
        return total

    @cached_property
    def total_buffer_cycles(self) -> Floats:
        """Global-buffer cycles of all operators, (T,)."""
        total: Floats = self.buffer_cycles.sum(axis=1)
        return total


class GemmTables:
    """Costs of distinct products on the sides of one table of architectures; each is worked out once."""

    def __init__(self, factors: Factors) -> None:
        """Find the distinct array shapes and buffers; nothing is costed yet."""
        tensor, memory = factors.tensor, factors.memory
        self._tensor = tensor
        self._deals = deals(tensor.cores)
        shapes = np.stack(
            [tensor.rows, tensor.columns, tensor.local_buffer_bytes, tensor.fp8_speed, tensor.fp4_speed]
        )
        self._shapes, self._shape_of = np.unique(shapes, axis=1, return_inverse=True)
        self._shape_of = self._shape_of.ravel()
        self._buffers, self._buffer_of = np.unique(memory.global_buffer_bytes, return_inverse=True)
        self._known: dict[Gemm, GemmCosts] = {}

    def __getitem__(self, gemm: Gemm) -> GemmCosts:
        """Costs of one product."""
        if gemm not in self._known:
            self._known[gemm] = self._cost(gemm)
        return self._known[gemm]

    def _cost(self, gemm: Gemm) -> GemmCosts:
        t = self._tensor
        rows, columns, local, *narrow = self._shapes
        speed = dict(zip((Format.FP8, Format.FP4), narrow, strict=True)).get(
            gemm.operands, np.ones_like(rows)
        )
        # One search over tilings for all buffers: those that HBM fills, and those that feed the arrays.
        of_hbm = len(self._buffers)
        capacity = np.concatenate([self._buffers, local])
        moved = traffic_bytes(gemm, capacity, depth=np.concatenate([np.ones(of_hbm), rows * speed]))
        hbm = moved[:of_hbm] if gemm.traffic is Traffic.TILED else np.zeros(of_hbm)
        return GemmCosts(
            gemm_cycles(gemm, rows, columns, speed)[self._shape_of],
            dealt_gemm_cycles(
                gemm, t.rows, t.columns, self._deals, t.buffer_bytes_per_cycle, speed[self._shape_of]
            ),
            moved[of_hbm:][self._shape_of],
            hbm[self._buffer_of],
        )


def operator_tables(
    works: tuple[Work, ...], factors: Factors, gemms: GemmTables, network: Network
) -> OperatorTables:
    """Cost all operators on all sides."""
    tensor, vector, memory, losses = factors.tensor, factors.vector, factors.memory, factors.losses
    fed = 1.0 / losses.array_efficiency
    link = np.array([w.unit is Unit.LINK for w in works], dtype=np.bool_)
    costs = [[gemms[g] for g in work.gemms] for work in works]
    tensor_shape, memory_shape = (len(tensor.rows), len(works)), (len(memory.hbm_bytes_per_s), len(works))
    fill = fill_cycles(tensor.rows, tensor.columns)[:, None] * np.array([len(w.gemms) for w in works])
    passing = np.array([passing_bytes(w) for w in works])
    buffer = _columns(tensor_shape, ([c.buffer_bytes for c in cs] for cs in costs)) + passing
    hbm = _columns(memory_shape, ([c.hbm_bytes for c in cs] for cs in costs))
    hbm += _columns(memory_shape, ([stream_bytes(w, memory.global_buffer_bytes)] for w in works))
    vector_shape = (len(vector.cores), len(works))
    return OperatorTables(
        tensor_single_cycles=fed * _columns(tensor_shape, ([c.single_cycles for c in cs] for cs in costs)),
        tensor_parallel_cycles=fed
        * _columns(tensor_shape, ([c.parallel_cycles for c in cs] for cs in costs)),
        fill_cycles=fill,
        launch_s=np.where(link, 0.0, losses.operator_s),
        buffer_bytes=buffer,
        buffer_cycles=buffer / tensor.buffer_bytes_per_cycle[:, None],
        vector_single_cycles=_columns(vector_shape, ([vector_cycles(w, vector.alus)] for w in works)),
        vector_parallel_cycles=_columns(
            vector_shape, ([vector_cycles(w, vector.alus, vector.cores)] for w in works)
        ),
        hbm_bytes=hbm,
        hbm_s=hbm / (losses.memory_efficiency * memory.hbm_bytes_per_s[:, None]),
        link_s=_columns(memory_shape, ([_link_s(w, memory, network)] for w in works)),
        link=link,
    )


def _columns(shape: tuple[int, int], parts: Iterable[list[Floats]]) -> Floats:
    """Table whose column o is the sum of the o-th list of vectors."""
    table = np.zeros(shape)
    for column, vectors in enumerate(parts):
        for values in vectors:
            table[:, column] += values
    return table


def _link_s(work: Work, memory: MemorySide, network: Network) -> Floats:
    """Seconds of a collective; 0 for other work."""
    if work.link is None:
        return np.zeros(len(memory.link_bytes_per_s))
    return link_s(work.link, network, memory.link_bytes_per_s)
