"""A lower bound on the latency of a pass, cheap enough for every architecture of a space.

An operator that every other one must precede or follow splits the pass: whatever the schedule, blocks
between such operators run one after the other. A block takes at least its longest path, and at least
the core time of its operators over the cores, or over as many of them as may run side by side. With
every operator in its faster mode the blocks of tensor-core and link operators depend on (tensor side,
memory side) alone, those of vector operators on (vector side, memory side) alone: sums per distinct
combination, gathered per architecture. Only lone operators that use both kinds of cores are costed per
architecture. `SerialBlocks` takes all of them so, for the few architectures that these sums leave:
blocks with both kinds of operators are longer then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze.arrays import Floats, Rows
from phaze.cost.hardware_factors import Factors
from phaze.cost.operator_kinds import Kinds
from phaze.cost.operator_tables import OperatorTables
from phaze.cost.serial_blocks import ON_TENSOR, ON_VECTOR, SerialBlocks
from phaze.workload.work import Unit

_CELLS = 1 << 14  # architectures x passes at a time: gathered blocks stay in the cache


class MetRows:
    """Rows of numbers under ascending integer keys; those of a key are worked out where it is first met.

    A space shows far fewer combinations of hardware where something can still be had than it has.
    """

    def __init__(self, work_out: Callable[[Rows], Floats]) -> None:
        """`work_out` tells the rows (n, width) of ascending keys (n,)."""
        self.work_out = work_out
        self._met: tuple[Rows, Floats] | None = None

    def __len__(self) -> int:
        """Keys that were met."""
        return 0 if self._met is None else len(self._met[0])

    def at(self, keys: Rows) -> Floats:
        """The rows of ascending keys, each once, (n, width).

        Threads may ask side by side: each goes on from what was met when it began, and keeps keys and rows as one.
        """
        if self._met is None:
            rows = self.work_out(keys)
            self._met = keys, rows
            return rows
        met, rows = self._met
        place = np.searchsorted(met, keys)
        known = met[np.minimum(place, len(met) - 1)] == keys if len(met) else keys < 0
        if not known.all():
            new = keys[~known]
            every = np.concatenate([met, new])
            order = np.argsort(every, kind="stable")
            met, rows = every[order], np.concatenate([rows, self.work_out(new)])[order]
            self._met = met, rows
            place = np.searchsorted(met, keys)
        found: Floats = rows[place]
        return found


@dataclass(frozen=True)
class LowerTables:
    """Bounds of P passes per distinct hardware combination, P last.

    `tensor`: of combinations (clock level, tensor side, memory side) the time, and the time that all bytes of the pass
    take, (n, 2 P); `vector`: of those with vector sides the time (n, P). Both sums over blocks add up to the bound.
    `memory`: of memory sides the whole time at least, (n, P), whatever the cores and their clock are. The
    next three arrays hold the lone operators (last axis) that use both kinds of cores, whose fill is in `tensor`;
    `pass_of` (lone operators, P) is 1 where an operator belongs to a pass. `simt_s`: the whole bound on each distinct
    SIMT architecture, (S, P).
    """

    tensor: MetRows
    vector: MetRows
    memory: MetRows
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

        def on_tensor(keys: Rows) -> Floats:
            each = [part.tensor.at(keys) for part in parts]
            halves = [[rows[:, : rows.shape[1] // 2], rows[:, rows.shape[1] // 2 :]] for rows in each]
            return np.concatenate([half[side] for side in (0, 1) for half in halves], axis=1)

        return cls(
            MetRows(on_tensor),
            MetRows(lambda keys: np.concatenate([part.vector.at(keys) for part in parts], axis=1)),
            MetRows(lambda keys: np.concatenate([part.memory.at(keys) for part in parts], axis=1)),
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
        lone, passes = self.pass_of @ times, len(times)

        def on_tensor(keys: Rows) -> Floats:
            rows = self.tensor.work_out(keys)
            return np.concatenate([rows[:, :passes] @ times, rows[:, passes:] @ times], axis=1)

        return LowerTables(
            MetRows(on_tensor),
            MetRows(lambda keys: self.vector.work_out(keys) @ times),
            MetRows(lambda keys: self.memory.work_out(keys) @ times),
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
    if not len(where):
        return total
    on_tensor, both = _met(bounds.tensor, factors.tensor_pairs, where)
    on_vector, vector_s = _met(bounds.vector, factors.vector_pairs, where)
    tensor_s, floor_s = np.ascontiguousarray(both[:, :width]), np.ascontiguousarray(both[:, width:])
    block = max(_CELLS // max(width, 1), 1)
    for start in range(0, len(where), block):
        part = slice(start, start + block)
        out = total[part]
        np.take(tensor_s, on_tensor[part], axis=0, out=out, mode="clip")
        out += np.take(vector_s, on_vector[part], axis=0)
        if len(bounds.pass_of):
            out += _lone_s(factors, bounds, where[part]) @ bounds.pass_of
        np.maximum(out, np.take(floor_s, on_tensor[part], axis=0), out=out)
    simt = factors.simt_of[where]
    total[simt >= 0] = bounds.simt_s[simt[simt >= 0]]
    return total


def few_clocks_lower_s(factors: Factors, bounds: LowerTables, rows: Rows) -> Floats | None:
    """Bounds below `lower_s`, (architectures, passes), whose sums are those of a few clocks; None if there are no more.

    At a lower clock no block takes fewer seconds, and at a higher one none takes fewer cycles: `max(cycles x cycle,
    off chip) + fill x cycle + launch` grows with the cycle, and less than in proportion.
    """
    few, where = factors.few_clocks, np.asarray(rows, dtype=np.intp)
    if few is None:
        return None
    width, shorter = bounds.pass_of.shape[1], few.shorter[where][:, None]
    if not len(where):
        return np.empty((0, width))

    def both(known: MetRows, pairs: tuple[tuple[Rows, Rows], ...]) -> Floats:
        (fast, fast_s), (slow, slow_s) = (_met(known, pair, where) for pair in pairs)
        found = np.take(slow_s, slow, axis=0)
        found *= shorter
        return np.maximum(found, np.take(fast_s, fast, axis=0), out=found)

    tensor_s = both(bounds.tensor, few.tensor)
    total = tensor_s[:, :width] + both(bounds.vector, few.vector)
    if len(bounds.pass_of):
        total += _lone_s(factors, bounds, where) @ bounds.pass_of
    np.maximum(total, tensor_s[:, width:], out=total)
    simt = factors.simt_of[where]
    total[simt >= 0] = bounds.simt_s[simt[simt >= 0]]
    return total


def tensor_lower_s(factors: Factors, bounds: LowerTables, rows: Rows) -> Floats:
    """Bounds below `lower_s`, (architectures, passes), that are the same whatever the vector cores are.

    One architecture stands for all that differ from it in these alone. Lone operators take the least cycles of any.
    """
    where = np.asarray(rows, dtype=np.intp)
    width, (at, both) = bounds.pass_of.shape[1], _met(bounds.tensor, factors.tensor_pairs, where)
    total = both[at, :width]
    if len(bounds.pass_of):
        time = np.maximum(bounds.tensor_cycles[factors.tensor_of[where]], bounds.vector_cycles.min(axis=0))
        time *= factors.cycle_s[where, None]
        total += np.maximum(time, bounds.off_chip_s[factors.memory_of[where]]) @ bounds.pass_of
    np.maximum(total, both[at, width:], out=total)
    simt = factors.simt_of[where]
    total[simt >= 0] = bounds.simt_s[simt[simt >= 0]]
    return total


def memory_lower_s(factors: Factors, bounds: LowerTables, rows: Rows) -> Floats:
    """Bounds below `lower_s`, (architectures, passes), that are the same whatever the cores and clocks are."""
    shown, at = np.unique(factors.memory_of[np.asarray(rows, dtype=np.intp)], return_inverse=True)
    total: Floats = bounds.memory.at(shown)[at]
    simt = factors.simt_of[rows]
    total[simt >= 0] = bounds.simt_s[simt[simt >= 0]]
    return total


def _met(known: MetRows, pairs: tuple[Rows, Rows], rows: Rows) -> tuple[Rows, Floats]:
    """Positions of architectures among the combinations that they show, and what is known of these."""
    keys, which = pairs
    mine = which[rows]
    shown = np.zeros(len(keys), dtype=np.bool_)
    shown[mine] = True
    place = np.cumsum(shown) - 1
    return place[mine], known.at(keys[shown])


def _lone_s(factors: Factors, bounds: LowerTables, rows: Rows) -> Floats:
    """Latency without fill, in the faster mode, of the operators that use both kinds of cores."""
    time: Floats = np.take(bounds.tensor_cycles, factors.tensor_of[rows], axis=0)
    np.maximum(time, np.take(bounds.vector_cycles, factors.vector_of[rows], axis=0), out=time)
    time *= factors.cycle_s[rows, None]
    return np.maximum(time, np.take(bounds.off_chip_s, factors.memory_of[rows], axis=0), out=time)


@dataclass(frozen=True)
class _Side:
    """Cycles of kinds of operators as tensor or vector cores see them, (side, K), single and parallel.

    `cores` (side,). Of the other cores only the least over all their configurations is known, `other_cycles` (K,).
    """

    cores: Floats
    single_cycles: Floats
    parallel_cycles: Floats
    other_cycles: Floats
    launch_s: Floats
    off_chip_s: Floats
    products: Floats

    @property
    def least(self) -> _Side:
        """One configuration that takes no more cycles than any of them."""
        single, parallel = (
            of.min(axis=0, keepdims=True) for of in (self.single_cycles, self.parallel_cycles)
        )
        return replace(
            self, cores=self.cores.max(keepdims=True), single_cycles=single, parallel_cycles=parallel
        )

    def shown(self, level_s: Floats, side: Rows, memory: Rows, fill_cycles: Floats) -> _Shown:
        """What n combinations of a cycle time, a side and a memory side take, with cycles (n,) to fill an array."""
        cycle_s, fill_s = level_s[:, None], (level_s * fill_cycles)[:, None]
        single = np.maximum(self.single_cycles[side], self.other_cycles)
        parallel = np.maximum(self.parallel_cycles[side], self.other_cycles)
        off_chip = self.off_chip_s[memory]

        def time_s(cycles: Floats) -> Floats:
            time = np.maximum(cycles * cycle_s, off_chip)
            time += fill_s * self.products + self.launch_s
            return time.T.copy()

        return _Shown(
            time_s(np.minimum(single, parallel)), time_s(single), time_s(parallel), self.cores[side]
        )


@dataclass(frozen=True)
class _Shown:
    """Seconds of kinds of operators on n combinations, (K, n): in the faster mode, on one core, on all `cores` (n,)."""

    least_s: Floats
    single_s: Floats
    parallel_s: Floats
    cores: Floats


def lower_tables(serial: SerialBlocks, factors: Factors, t: OperatorTables, simt_s: Floats) -> LowerTables:
    """Bounds of a pass's blocks, summed; `simt_s` (S, 1) is taken as it is."""
    off_chip, on_chip = t.off_chip_s, t.on_chip_cycles
    lanes = t.vector_single_cycles, t.vector_parallel_cycles
    tensor_least, vector_least = np.minimum(*on_chip), np.minimum(*lanes)
    kinds, some, repeats = t.kinds, t.kinds.first, serial.repeats(t.kinds)
    blocks, vector_blocks, lone = _sort_blocks(serial)
    levels, memories = factors.level_cycle_s, len(factors.memory.hbm_bytes_per_s)
    rest = t.launch_s[some], off_chip[:, some], t.products[some]

    def side(cores: Floats, cycles: tuple[Floats, Floats], other: Floats) -> _Side:
        return _Side(cores, cycles[0][:, some], cycles[1][:, some], other.min(axis=0)[some], *rest)

    tensor_side = side(factors.tensor.cores, on_chip, vector_least)
    vector_side = side(factors.vector.cores, lanes, tensor_least)

    def sum_blocks(numbers: Sequence[int], shown: _Shown, units: tuple[Unit, ...]) -> Floats:
        """Sum of the bounds of some blocks, (n,): those alike are bounded once."""
        total = np.zeros(shown.least_s.shape[1])
        for number in numbers:
            if number in repeats:
                total += repeats[number] * _block_s(serial, number, kinds, shown, units)
        return total

    def on_tensor(keys: Rows) -> Floats:
        level, tensor, memory = _split(keys, len(factors.tensor.cores), memories)
        cycle_s, fill = levels[level], t.array_fill_cycles[tensor]
        found = sum_blocks(blocks, tensor_side.shown(cycle_s, tensor, memory, fill), ON_TENSOR)
        found += fill * t.products[lone].sum() * cycle_s + t.launch_s[lone].sum()
        floor = np.maximum(t.total_buffer_cycles[tensor] * cycle_s, t.total_hbm_s[memory])
        return np.stack([found, floor], axis=1)

    def on_vector(keys: Rows) -> Floats:
        level, vector, memory = _split(keys, len(factors.vector.cores), memories)
        fill = np.full(len(keys), t.array_fill_cycles.min())
        return sum_blocks(vector_blocks, vector_side.shown(levels[level], vector, memory, fill), ON_VECTOR)[
            :, None
        ]

    def on_memory(keys: Rows) -> Floats:
        none, cycle_s = np.zeros(len(keys), dtype=np.intp), np.full(len(keys), levels.min())
        fill = np.full(len(keys), t.array_fill_cycles.min())
        found = sum_blocks(blocks, tensor_side.least.shown(cycle_s, none, keys, fill), ON_TENSOR)
        found += sum_blocks(vector_blocks, vector_side.least.shown(cycle_s, none, keys, fill), ON_VECTOR)
        cycles = np.maximum(tensor_least.min(axis=0), vector_least.min(axis=0))[lone]
        alone = np.maximum(cycles * levels.min(), off_chip[keys][:, lone])
        alone += t.array_fill_cycles.min() * t.products[lone] * levels.min() + t.launch_s[lone]
        found += alone.sum(axis=1)
        return np.maximum(found, t.total_hbm_s[keys])[:, None]

    return LowerTables(
        MetRows(on_tensor),
        MetRows(on_vector),
        MetRows(on_memory),
        tensor_least[:, lone],
        vector_least[:, lone],
        off_chip[:, lone],
        np.ones((len(lone), 1)),
        simt_s,
    )


def _split(keys: Rows, sides: int, memories: int) -> tuple[Rows, Rows, Rows]:
    """Clock level, side and memory side of combinations."""
    rest, memory = np.divmod(keys, memories)
    level, side = np.divmod(rest, sides)
    return level, side, memory


def _sort_blocks(serial: SerialBlocks) -> tuple[list[int], list[int], list[int]]:
    """Blocks with tensor-core or link operators, blocks of vector operators only, lone operators of both."""
    on_tensor, on_vector, lone = [], [], []
    for number, block in enumerate(serial.blocks):
        units = {serial.works[o].unit for o in block}
        if units == {Unit.TENSOR_VECTOR} and len(block) == 1:
            lone.append(block[0])
        elif units == {Unit.VECTOR}:
            on_vector.append(number)
        else:
            on_tensor.append(number)
    return on_tensor, on_vector, lone


def _block_s(
    serial: SerialBlocks, number: int, kinds: Kinds, shown: _Shown, units: tuple[Unit, ...]
) -> Floats:
    """Longest path of a block, (n,), or the time its operators need the cores or the link, whichever is more."""
    block, crowds = serial.blocks[number], serial.crowds[number]
    least = kinds.each(shown.least_s)
    if len(block) == 1:
        return least[block[0]]
    bounds = [serial.path_s(block, least)]
    mine = crowds.tensor if units is ON_TENSOR else crowds.vector
    # Cores of the other kind are not known: no more than may run side by side have one.
    some = ((mine, shown.cores), (crowds.every, np.full_like(shown.cores, crowds.every.width)))
    for crowd, cores in some:
        if crowd.operators:
            bounds.append(crowd.core_s_of_kinds(kinds, shown.single_s, shown.parallel_s, cores))
    if links := [least[o] for o in block if serial.works[o].unit is Unit.LINK]:
        bounds.append(np.sum(links, axis=0))
    longest: Floats = np.maximum.reduce(bounds)
    return longest
