"""Costs of operators per distinct hardware combination, before they are gathered per architecture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.cost.collectives.collective_times import link_s
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
from phaze.cost.operator_kinds import Kinds
from phaze.cost.tiling import traffic_bytes
from phaze.hardware.cluster_network import Network
from phaze.workload.work import NARROW, Gemm, Link, Traffic, Unit, Work


@dataclass(frozen=True)
class GemmCosts:
    """One product on every tensor side (T,) and, for its HBM bytes, on every memory side (M,)."""

    single_cycles: Floats
    parallel_cycles: Floats
    buffer_bytes: Floats
    hbm_bytes: Floats


@dataclass(frozen=True)
class TensorCycles:
    """Operators (last axis O) on tensor sides (T, O): what few architectures are asked about, made when they are.

    `costs`: products of an operator of every kind; `fed`: cycles of an array per cycle that it is fed; `passing` (K,):
    bytes that pass the global buffer once; `bytes_per_cycle` (T,) of it.
    """

    kinds: Kinds
    costs: tuple[tuple[GemmCosts, ...], ...]
    fed: float
    passing: Floats
    bytes_per_cycle: Floats

    @property
    def single(self) -> Floats:
        """Cycles on one core."""
        return self.fed * self._columns([c.single_cycles for c in cs] for cs in self.costs)

    @property
    def parallel(self) -> Floats:
        """Cycles on all cores."""
        return self.fed * self._columns([c.parallel_cycles for c in cs] for cs in self.costs)

    @property
    def buffer_bytes(self) -> Floats:
        """Bytes through the global buffer."""
        return self._columns(
            [*(c.buffer_bytes for c in cs), p] for cs, p in zip(self.costs, self.passing, strict=True)
        )

    @property
    def buffer(self) -> Floats:
        """Cycles in which these pass."""
        found: Floats = self.buffer_bytes / self.bytes_per_cycle[:, None]
        return found

    def _columns(self, parts: Iterable[list[Floats]]) -> Floats:
        return columns(self.kinds, len(self.bytes_per_cycle), parts)


@dataclass(frozen=True)
class OperatorTables:
    """Operators (last axis O) on tensor sides (T, O), vector sides (V, O) and memory sides (M, O).

    Cycles at the chip's clock where they depend on it, seconds where they do not. `parallel` means all
    cores of the kinds an operator uses; `link` marks collectives, which have no such mode. `on_chip_cycles`: tensor
    cycles or global-buffer cycles, whichever are more, single and parallel (T, O). `launch_s` (O,): what an operator
    takes beyond its work, wherever it runs; `array_fill_cycles` (T,): what each of its `products` (O,) takes to fill
    the arrays.
    """

    kinds: Kinds
    tensor: TensorCycles
    on_chip_cycles: tuple[Floats, Floats]
    total_buffer_cycles: Floats
    array_fill_cycles: Floats
    products: Floats
    launch_s: Floats
    vector_single_cycles: Floats
    vector_parallel_cycles: Floats
    hbm_bytes: Floats
    hbm_s: Floats
    link_s: Floats
    link: np.ndarray[tuple[int], np.dtype[np.bool_]]

    def fill_cycles(self, sides: Rows) -> Floats:
        """Cycles to fill the arrays of some tensor sides for every operator, (n, O)."""
        found: Floats = self.array_fill_cycles[sides, None] * self.products
        return found

    @cached_property
    def off_chip_s(self) -> Floats:
        """HBM or link seconds, whichever are more (M, O)."""
        return np.maximum(self.hbm_s, self.link_s)

    @cached_property
    def total_hbm_s(self) -> Floats:
        """HBM seconds of all operators, (M,)."""
        total: Floats = self.hbm_s.sum(axis=1)
        return total


class LinkTimes:
    """Seconds of distinct collectives on the memory sides of one table of architectures; each is worked out once."""

    def __init__(self, network: Network, memory: MemorySide) -> None:
        """Find the distinct links; nothing is costed yet."""
        self._network = network
        self._rates, self._rate_of = np.unique(memory.link_bytes_per_s, return_inverse=True)
        self._known: dict[Link, Floats] = {}

    def __getitem__(self, link: Link) -> Floats:
        """Seconds of one collective, (M,)."""
        if link not in self._known:
            self._known[link] = link_s(link, self._network, self._rates)[self._rate_of]
        return self._known[link]


class GemmTables:
    """Costs of distinct products on the sides of one table of architectures; each is worked out once."""

    def __init__(self, factors: Factors, like: GemmTables | None = None) -> None:
        """Find the distinct array shapes and buffers; nothing is costed yet.

        `like`: tables that share what they work out where tensor sides and buffers are the same.
        """
        tensor, memory = factors.tensor, factors.memory
        self._tensor = tensor
        self._deals = deals(tensor.cores)
        shapes = np.stack(
            [
                tensor.rows,
                tensor.columns,
                tensor.local_buffer_bytes,
                *(getattr(tensor, f"{format_}_speed") for format_ in NARROW),
            ]
        )
        self._shapes, self._shape_of = np.unique(shapes, axis=1, return_inverse=True)
        self._shape_of = self._shape_of.ravel()
        self._buffers, self._buffer_of = np.unique(memory.global_buffer_bytes, return_inverse=True)
        self._known: dict[Gemm, GemmCosts] = {}
        shared = like is not None and self._sides == like._sides
        # By buffers, HBM bytes last: memory sides differ in their links.
        self._costs: dict[Gemm, GemmCosts] = like._costs if like is not None and shared else {}

    @property
    def _sides(self) -> list[bytes]:
        """All that costs follow from."""
        columns = (getattr(self._tensor, field.name) for field in fields(self._tensor))
        return [np.asarray(column).tobytes() for column in (*columns, self._buffers)]

    def __getitem__(self, gemm: Gemm) -> GemmCosts:
        """Costs of one product."""
        if gemm not in self._known:
            if gemm not in self._costs:
                self._costs[gemm] = self._cost(gemm)
            found = self._costs[gemm]
            self._known[gemm] = replace(found, hbm_bytes=found.hbm_bytes[self._buffer_of])
        return self._known[gemm]

    def _cost(self, gemm: Gemm) -> GemmCosts:
        """Costs of one product, its HBM bytes for every distinct buffer."""
        t = self._tensor
        rows, columns, local, *narrow = self._shapes
        speed = dict(zip(NARROW, narrow, strict=True)).get(gemm.operands, np.ones_like(rows))
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
            hbm,
        )


def operator_tables(
    works: tuple[Work, ...], factors: Factors, gemms: GemmTables, links: LinkTimes
) -> OperatorTables:
    """Cost all operators on all sides, those of a kind once."""
    vector, memory, losses = factors.vector, factors.memory, factors.losses
    kinds = Kinds.among(works)
    some = [works[o] for o in kinds.first.tolist()]
    costs = tuple(tuple(gemms[g] for g in work.gemms) for work in some)
    tensor = TensorCycles(
        kinds,
        costs,
        1.0 / losses.array_efficiency,
        np.array([passing_bytes(w) for w in some]),
        factors.tensor.buffer_bytes_per_cycle,
    )
    link, buffer = np.array([w.unit is Unit.LINK for w in works], dtype=np.bool_), tensor.buffer
    sides = len(memory.hbm_bytes_per_s)
    one, every = (
        columns(kinds, len(vector.cores), ([vector_cycles(w, vector.alus, cores)] for w in some))
        for cores in (1, vector.cores)
    )
    hbm = columns(
        kinds,
        sides,
        (
            [*(c.hbm_bytes for c in cs), stream_bytes(w, memory.global_buffer_bytes)]
            for cs, w in zip(costs, some, strict=True)
        ),
    )
    return OperatorTables(
        kinds=kinds,
        tensor=tensor,
        on_chip_cycles=(np.maximum(tensor.single, buffer), np.maximum(tensor.parallel, buffer)),
        total_buffer_cycles=buffer.sum(axis=1),
        array_fill_cycles=fill_cycles(factors.tensor.rows, factors.tensor.columns),
        products=np.array([float(len(w.gemms)) for w in works]),
        launch_s=np.where(link, 0.0, losses.operator_s),
        vector_single_cycles=one,
        vector_parallel_cycles=every,
        hbm_bytes=hbm,
        hbm_s=hbm / (losses.memory_efficiency * memory.hbm_bytes_per_s[:, None]),
        link_s=columns(kinds, sides, ([] if w.link is None else [links[w.link]] for w in some)),
        link=link,
    )


def columns(kinds: Kinds, sides: int, parts: Iterable[list[Floats]]) -> Floats:
    """Table (sides, O) whose column of every operator is the sum of the vectors of its kind, by turns of kinds."""
    table = np.zeros((sides, len(kinds.first)))
    for column, vectors in enumerate(parts):
        for values in vectors:
            table[:, column] += values
    return np.ascontiguousarray(table[:, kinds.of_operator])
