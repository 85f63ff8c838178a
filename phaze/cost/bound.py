"""A lower bound on the latency of a pass, cheap enough for every architecture of a space.

An operator that every other one must precede or follow splits the pass: whatever the schedule, blocks
between such operators run one after the other. A block takes at least its longest path, and at least
the core time of its operators over the cores. With every operator in its faster mode the blocks of
tensor-core and link operators depend on (tensor side, memory side) alone, those of vector operators
on (vector side, memory side) alone: sums per distinct combination, gathered per architecture. Only
lone operators that use both kinds of cores are costed per architecture.
"""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import TopologicalSorter

import numpy as np

from phaze.cost.factors import Factors, Floats, Rows
from phaze.cost.tables import OperatorTables
from phaze.workload.work import Pass, Unit

_BLOCK = 4096  # architectures at a time for the operators costed one by one

_TENSOR = (Unit.TENSOR, Unit.TENSOR_VECTOR)
_VECTOR = (Unit.VECTOR, Unit.TENSOR_VECTOR)


def serial_blocks(pass_: Pass) -> tuple[tuple[int, ...], ...]:
    """Operators in groups that run one after the other in any schedule, each in topological order."""
    count = len(pass_.works)
    before: dict[int, list[int]] = {o: [] for o in range(count)}
    for first, second in pass_.edges:
        before[second].append(first)
    order = list(TopologicalSorter(before).static_order())
    ancestors, descendants = [0] * count, [0] * count
    for o in order:
        for p in before[o]:
            ancestors[o] |= ancestors[p] | 1 << p
    for o in reversed(order):
        for p in before[o]:
            descendants[p] |= descendants[o] | 1 << o
    # With every operator before its descendants and after its ancestors, a splitting operator has all of
    # its ancestors, and only them, in front of it.
    order.sort(key=lambda o: ancestors[o].bit_count())
    blocks: list[list[int]] = [[]]
    for o in order:
        if (ancestors[o] | descendants[o]).bit_count() == count - 1:
            blocks += [[o], []]
        else:
            blocks[-1].append(o)
    return tuple(tuple(block) for block in blocks if block)


@dataclass(frozen=True)
class LowerTables:
    """Sums of block bounds in s: on clock levels x tensor sides x memory sides, and likewise for vectors.

    The last four arrays hold the lone operators (last axis) that use both kinds of cores.
    """

    factors: Factors
    tensor_s: Floats
    vector_s: Floats
    tensor_cycles: Floats
    vector_cycles: Floats
    off_chip_s: Floats
    fill_cycles: Floats

    def makespan_s(self, rows: Rows) -> Floats:
        """Lower bound on the makespan of any schedule on the given architectures, (A,)."""
        f = self.factors
        level, tensor, vector, memory = (
            i[rows] for i in (f.clock_level, f.tensor_of, f.vector_of, f.memory_of)
        )
        total: Floats = self.tensor_s[level, tensor, memory] + self.vector_s[level, vector, memory]
        if self.off_chip_s.shape[1]:
            for start in range(0, len(rows), _BLOCK):
                block = slice(start, start + _BLOCK)
                total[block] += self._lone_s(rows[block])
        return total

    def _lone_s(self, rows: Rows) -> Floats:
        f = self.factors
        tensor, cycle_s = f.tensor_of[rows], f.cycle_s[rows, None]
        time = np.maximum(self.tensor_cycles[tensor], self.vector_cycles[f.vector_of[rows]])
        time *= cycle_s
        np.maximum(time, self.off_chip_s[f.memory_of[rows]], out=time)
        total: Floats = time.sum(axis=1) + (self.fill_cycles[tensor] * cycle_s).sum(axis=1)
        return total


@dataclass(frozen=True)
class _Side:
    """Latency of an operator in s as one kind of cores sees it (side, M), single and parallel.

    Of the other kind only the least over all its configurations is known.
    """

    cores: Floats
    single_cycles: Floats
    parallel_cycles: Floats
    fill_cycles: Floats
    off_chip_s: Floats

    def least_s(self, o: int, cycle_s: float) -> Floats:
        """The faster mode."""
        cycles = np.minimum(self.single_cycles[:, o], self.parallel_cycles[:, o])
        return self._time_s(o, cycles, cycle_s)

    def core_s(self, o: int, cycle_s: float) -> Floats:
        """Core time over cores: single mode takes one core, parallel mode all of them."""
        single = self._time_s(o, self.single_cycles[:, o], cycle_s) / self.cores[:, None]
        return np.minimum(single, self._time_s(o, self.parallel_cycles[:, o], cycle_s))

    def _time_s(self, o: int, cycles: Floats, cycle_s: float) -> Floats:
        time = np.maximum(cycles[:, None] * cycle_s, self.off_chip_s[None, :, o])
        return time + self.fill_cycles[:, o, None] * cycle_s


def lower_tables(pass_: Pass, factors: Factors, t: OperatorTables) -> LowerTables:
    """Sum the bounds of a pass's blocks over all distinct hardware combinations."""
    off_chip = np.maximum(t.hbm_s, t.link_s)
    on_chip = [np.maximum(c, t.buffer_cycles) for c in (t.tensor_single_cycles, t.tensor_parallel_cycles)]
    lanes = [t.vector_single_cycles, t.vector_parallel_cycles]
    tensor_least, vector_least = np.minimum(*on_chip), np.minimum(*lanes)
    fill_least = np.broadcast_to(t.fill_cycles.min(axis=0), lanes[0].shape)
    single, parallel = (np.maximum(c, vector_least.min(axis=0)) for c in on_chip)
    tensor = _Side(factors.tensor.cores, single, parallel, t.fill_cycles, off_chip)
    single, parallel = (np.maximum(c, tensor_least.min(axis=0)) for c in lanes)
    vector = _Side(factors.vector.cores, single, parallel, fill_least, off_chip)
    on_tensor, on_vector, lone = _sort_blocks(pass_)
    return LowerTables(
        factors,
        _sum_blocks(pass_, on_tensor, tensor, _TENSOR, factors.level_cycle_s),
        _sum_blocks(pass_, on_vector, vector, _VECTOR, factors.level_cycle_s),
        tensor_least[:, lone],
        vector_least[:, lone],
        off_chip[:, lone],
        t.fill_cycles[:, lone],
    )


def _sort_blocks(pass_: Pass) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]], list[int]]:
    """Blocks with tensor-core or link operators, blocks of vector operators only, lone operators of both."""
    on_tensor, on_vector, lone = [], [], []
    for block in serial_blocks(pass_):
        units = {pass_.works[o].unit for o in block}
        if units == {Unit.TENSOR_VECTOR} and len(block) == 1:
            lone.append(block[0])
        elif units == {Unit.VECTOR}:
            on_vector.append(block)
        else:
            on_tensor.append(block)
    return on_tensor, on_vector, lone


def _sum_blocks(
    pass_: Pass, blocks: list[tuple[int, ...]], side: _Side, units: tuple[Unit, ...], levels: Floats
) -> Floats:
    """Sum of the bounds of some blocks, (levels, side, M)."""
    total = np.zeros((len(levels), len(side.cores), len(side.off_chip_s)))
    for level, cycle_s in enumerate(levels):
        for block in blocks:
            total[level] += _block_s(pass_, block, side, units, float(cycle_s))
    return total


def _block_s(
    pass_: Pass, block: tuple[int, ...], side: _Side, units: tuple[Unit, ...], cycle_s: float
) -> Floats:
    """Longest path of a block, or the time its operators need the cores or the link, whichever is more."""
    if len(block) == 1:
        return side.least_s(block[0], cycle_s)
    done: dict[int, Floats] = {}
    bound = np.zeros((len(side.cores), len(side.off_chip_s)))
    cores, links = np.zeros_like(bound), np.zeros_like(bound)
    for o in block:
        time = side.least_s(o, cycle_s)
        ready = [done[first] for first, second in pass_.edges if second == o and first in done]
        done[o] = time + np.max(ready, axis=0) if ready else time
        np.maximum(bound, done[o], out=bound)
        if pass_.works[o].unit in units:
            cores += side.core_s(o, cycle_s)
        elif pass_.works[o].unit is Unit.LINK:
            links += time
    return np.maximum(bound, np.maximum(cores, links))
