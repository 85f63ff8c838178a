"""A lower bound on the latency of a pass, cheap enough for every architecture of a space.

An operator that every other one must precede or follow splits the pass: whatever the schedule, blocks
between such operators run one after the other. A block takes at least its longest path, and at least
the core time of its operators over the cores. With every operator in its faster mode the blocks of
tensor-core and link operators depend on (tensor side, memory side) alone, those of vector operators
on (vector side, memory side) alone: sums per distinct combination, gathered per architecture. Only
lone operators that use both kinds of cores are costed per architecture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.cost.hardware_factors import Factors
from phaze.cost.operator_tables import OperatorTables
from phaze.workload.work import Pass, Unit

_CELLS = 1 << 14  # architectures x passes at a time: gathered blocks stay in the cache

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
    """Bounds of P passes per distinct hardware combination, P last.

    `tensor_s`, `floor_s`: (clock levels x tensor sides x memory sides, P); `vector_s`: likewise with vector
    sides. Both sums over blocks add up to the bound; `floor_s` is the time that all bytes of the pass
    take. The next three arrays hold the lone operators (last axis) that use both kinds of cores, whose
    fill is in `tensor_s`; `pass_of` (lone operators, P) is 1 where an operator belongs to a pass. `simt_s`: the
    whole bound on each distinct SIMT architecture, (S, P).
    """

    tensor_s: Floats
    vector_s: Floats
    floor_s: Floats
    tensor_cycles: Floats
    vector_cycles: Floats
    off_chip_s: Floats
    pass_of: Floats
    simt_s: Floats

    @classmethod
    def join(cls, parts: Sequence[LowerTables]) -> LowerTables:
        """Several passes side by side."""
        width, lone = (sum(part.pass_of.shape[axis] for part in parts) for axis in (1, 0))
        pass_of, done, passes = np.zeros((lone, width)), 0, 0
        for part in parts:
            operators, several = part.pass_of.shape
            pass_of[done : done + operators, passes : passes + several] = part.pass_of
            done, passes = done + operators, passes + several
        return cls(
            np.concatenate([p.tensor_s for p in parts], axis=1),
            np.concatenate([p.vector_s for p in parts], axis=1),
            np.concatenate([p.floor_s for p in parts], axis=1),
            np.concatenate([p.tensor_cycles for p in parts], axis=1),
            np.concatenate([p.vector_cycles for p in parts], axis=1),
            np.concatenate([p.off_chip_s for p in parts], axis=1),
            pass_of,
            np.concatenate([p.simt_s for p in parts], axis=1),
        )

    def weighted(self, times: Floats) -> LowerTables:
        """Bounds on sums of the passes, `times` (P, S) of each: at most the sums of the bounds.

        The slowest of several things is taken of sums instead of summed, so that one operator is left of all
        lone ones of a sum.
        """
        lone = self.pass_of @ times
        return LowerTables(
            self.tensor_s @ times,
            self.vector_s @ times,
            self.floor_s @ times,
            self.tensor_cycles @ lone,
            self.vector_cycles @ lone,
            self.off_chip_s @ lone,
            np.eye(times.shape[1]),
            self.simt_s @ times,
        )


def lower_s(factors: Factors, bounds: LowerTables, rows: Rows) -> Floats:
    """Lower bounds in s on the latency of passes under any schedule, (architectures, passes)."""
    where = np.asarray(rows, dtype=np.intp)
    width = bounds.pass_of.shape[1]
    total = np.empty((len(where), width))
    block = max(_CELLS // max(width, 1), 1)
    for start in range(0, len(where), block):
        at = where[start : start + block]
        out = total[start : start + block]
        on_tensor, on_vector = _positions(factors, at)
        np.take(bounds.tensor_s, on_tensor, axis=0, out=out, mode="clip")
        out += np.take(bounds.vector_s, on_vector, axis=0)
        if len(bounds.pass_of):
            out += _lone_s(factors, bounds, at) @ bounds.pass_of
        np.maximum(out, np.take(bounds.floor_s, on_tensor, axis=0), out=out)
    simt = factors.simt_of[where]
    total[simt >= 0] = bounds.simt_s[simt[simt >= 0]]
    return total


def _positions(factors: Factors, rows: Rows) -> tuple[Rows, Rows]:
    """Flat positions of architectures in the tables of the tensor and of the vector side."""
    f, memories = factors, len(factors.memory.hbm_bytes_per_s)
    level, memory = f.clock_level[rows], f.memory_of[rows]
    on_tensor: Rows = (level * len(f.tensor.cores) + f.tensor_of[rows]) * memories + memory
    on_vector: Rows = (level * len(f.vector.cores) + f.vector_of[rows]) * memories + memory
    return on_tensor, on_vector


def _lone_s(factors: Factors, bounds: LowerTables, rows: Rows) -> Floats:
    """Latency without fill, in the faster mode, of the operators that use both kinds of cores."""
    time: Floats = np.take(bounds.tensor_cycles, factors.tensor_of[rows], axis=0)
    np.maximum(time, np.take(bounds.vector_cycles, factors.vector_of[rows], axis=0), out=time)
    time *= factors.cycle_s[rows, None]
    return np.maximum(time, np.take(bounds.off_chip_s, factors.memory_of[rows], axis=0), out=time)


@dataclass(frozen=True)
class _Side:
    """Latency of an operator in s as one kind of cores sees it (side, M), single and parallel.

    Of the other kind only the least over all its configurations is known.
    """

    cores: Floats
    single_cycles: Floats
    parallel_cycles: Floats
    fill_cycles: Floats
    launch_s: Floats
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
        time += self.fill_cycles[:, o, None] * cycle_s + self.launch_s[o]
        return time


def lower_tables(pass_: Pass, factors: Factors, t: OperatorTables, simt_s: Floats) -> LowerTables:
    """Sum the bounds of a pass's blocks over all distinct hardware combinations; `simt_s` is taken as it is."""
    off_chip, on_chip = t.off_chip_s, t.on_chip_cycles
    lanes = [t.vector_single_cycles, t.vector_parallel_cycles]
    tensor_least, vector_least = np.minimum(*on_chip), np.minimum(*lanes)
    fill_least = np.broadcast_to(t.fill_cycles.min(axis=0), lanes[0].shape)
    single, parallel = (np.maximum(c, vector_least.min(axis=0)) for c in on_chip)
    tensor = _Side(factors.tensor.cores, single, parallel, t.fill_cycles, t.launch_s, off_chip)
    single, parallel = (np.maximum(c, tensor_least.min(axis=0)) for c in lanes)
    vector = _Side(factors.vector.cores, single, parallel, fill_least, t.launch_s, off_chip)
    on_tensor, on_vector, lone = _sort_blocks(pass_)
    level_cycle_s = factors.level_cycle_s[:, None, None]
    lone_fill_s = t.fill_cycles[:, lone].sum(axis=1)[None, :, None] * level_cycle_s + t.launch_s[lone].sum()
    buffer_s = t.total_buffer_cycles[None, :, None] * level_cycle_s
    tensor_s = _sum_blocks(pass_, on_tensor, tensor, _TENSOR, factors.level_cycle_s) + lone_fill_s
    vector_s = _sum_blocks(pass_, on_vector, vector, _VECTOR, factors.level_cycle_s)
    return LowerTables(
        tensor_s.reshape(-1, 1),
        vector_s.reshape(-1, 1),
        np.maximum(buffer_s, t.total_hbm_s).reshape(-1, 1),
        tensor_least[:, lone],
        vector_least[:, lone],
        off_chip[:, lone],
        np.ones((len(lone), 1)),
        simt_s,
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
