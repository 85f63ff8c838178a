"""Stalled cycles of SCALE-Sim v3: an array that waits for refills of its operand buffers, or for its result buffer
to write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np

from phaze.arrays import Integers
from phaze.validation.scalesim.scalesim_cycles import Dataflow, Layout, array_layout
from phaze.workload.work import Gemm

Runs = tuple[Integers, Integers, Integers]
"""(cycle of the fold, first word, last word) of every cycle of a fold that reads, one array each."""

_BLOCKS = 100  # of a buffer


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand: its words, those with the padding of edge folds, and what a fold (down, across) asks for."""

    words: int
    padded_words: int
    runs: Callable[[int, int], Runs]

    def refills(self, plan: Layout, buffer_words: int) -> list[tuple[int, int]]:
        """(cycle, how many) refills that the array waits for, in order; none where the operand fits."""
        ring = _Ring.of(self.words, buffer_words)
        return ring.refills(self._demand(plan, ring.block_words)) if ring.step else []

    def _demand(self, plan: Layout, block_words: int) -> Iterator[Runs]:
        """Runs of blocks, fold by fold, by the cycle of the whole product."""
        for fold, position in enumerate(plan.folds):
            cycle, first, last = self.runs(*position)
            yield fold * plan.fold_cycles + cycle, first // block_words, last // block_words


def operands(plan: Layout) -> tuple[Operand, Operand]:
    """Both operands of a product: first the one whose columns lie along the rows of the array."""
    lead = 0 if plan.keeps_results else plan.rows
    down = cache(partial(_streamed, plan.steps, plan.along_rows, plan.rows, lead))
    first = _operand(plan.steps, plan.along_rows, plan.rows, lambda row, _: down(row))
    if not plan.keeps_results:
        kept = partial(_loaded, plan)
        return first, _operand(plan.along_rows, plan.along_columns, plan.columns, kept)
    across = cache(partial(_streamed, plan.steps, plan.along_columns, plan.columns, lead))
    return first, _operand(plan.steps, plan.along_columns, plan.columns, lambda _, column: across(column))


def _operand(length: int, extent: int, width: int, runs: Callable[[int, int], Runs]) -> Operand:
    """An operand of `length` x `extent` words that lies in folds of `width`."""
    return Operand(length * extent, length * -(-extent // width) * width, runs)


def _streamed(steps: int, extent: int, width: int, lead: int, fold: int) -> Runs:
    """Runs of an operand of `steps` x `extent` words that enters the array skewed, `lead` cycles late.

    It lies in memory as its folds of `width` below each other, diagonal by diagonal: a fold asks for one
    diagonal per cycle, less what belongs to the folds after it.
    """
    last = (extent - 1) // width
    edge = extent - last * width
    own = edge if fold == last else width
    cycle = np.arange(steps + own - 1)
    column = np.maximum(0, cycle - steps + 1)
    first = np.zeros_like(cycle)
    for top, folds, across in ((0, last, width), (last, 1, edge)):
        diagonal = cycle + (fold - top) * steps
        first += _before(folds * steps, across, diagonal) + _left_of(folds * steps, across, diagonal, column)
    return cycle + lead, first, first + np.minimum(own - 1, cycle) - column


def _before(rows: int, columns: int, diagonal: Integers) -> Integers:
    """Words of rows x columns on earlier diagonals."""

    def corner(side: Integers) -> Integers:
        inside: Integers = np.maximum(side, 0)
        return inside * (inside + 1) // 2

    words: Integers = (
        corner(diagonal)
        - corner(diagonal - rows)
        - corner(diagonal - columns)
        + corner(diagonal - rows - columns)
    )
    return words


def _left_of(rows: int, columns: int, diagonal: Integers, column: Integers) -> Integers:
    """Words of rows x columns on the diagonal in columns before `column`."""
    last = np.minimum(np.minimum(columns, diagonal + 1), column)
    words: Integers = np.maximum(0, last - np.maximum(0, diagonal - rows + 1))
    return words


def _loaded(plan: Layout, down: int, across: int) -> Runs:
    """Runs of the operand that stays: it lies row by row, and the last row of a fold is loaded first."""
    own = min(plan.columns, plan.along_columns - across * plan.columns)
    rows = min(plan.rows, plan.along_rows - down * plan.rows)
    row = down * plan.rows + np.arange(rows)[::-1]
    first = across * plan.columns * plan.along_rows + row * own
    return plan.rows - rows + np.arange(rows), first, first + own - 1


@dataclass(frozen=True, slots=True)
class _Ring:
    """Blocks of an operand in a ring: `working` of them at hand, `step` more at each refill."""

    block_words: int
    blocks: int
    working: int
    step: int

    @classmethod
    def of(cls, words: int, buffer_words: int) -> _Ring:
        block = -(-buffer_words // _BLOCKS)
        blocks = words // block + 1
        half = -(-buffer_words // 2)
        working = min(blocks, -(-half // block))
        return cls(block, blocks, working, min(blocks - working, -(-(buffer_words - half) // block)))

    def refills(self, demand: Iterable[Runs]) -> list[tuple[int, int]]:
        start, refills = 0, []
        for runs in demand:
            for cycle, first, last in zip(*(values.tolist() for values in _changes(runs)), strict=True):
                steps = 0
                for block in range(first, last + 1):
                    short = (block - start) % self.blocks - self.working + 1
                    more = max(0, -(-short // self.step))
                    start = (start + more * self.step) % self.blocks
                    steps += more
                if steps:
                    refills.append((cycle, steps))
        return refills


def _changes(runs: Runs) -> Runs:
    """Runs that ask for other blocks than the run before."""
    cycle, first, last = runs
    new = np.ones(len(cycle), dtype=np.bool_)
    new[1:] = (first[1:] != first[:-1]) | (last[1:] != last[:-1])
    return cycle[new], first[new], last[new]


NEVER = 1 << 62
"""A cycle that does not come."""


def result_words(plan: Layout) -> Integers:
    """Words that leave the array in each cycle, (cycles,): partial results too, once per fold."""
    words = np.empty((plan.column_folds, plan.row_folds, plan.fold_cycles), dtype=np.int64)
    edge_high = plan.along_rows - (plan.row_folds - 1) * plan.rows
    edge_wide = plan.along_columns - (plan.column_folds - 1) * plan.columns
    words[:-1, :-1] = _wave(plan, plan.rows, plan.columns)
    words[:-1, -1] = _wave(plan, edge_high, plan.columns)
    words[-1, :-1] = _wave(plan, plan.rows, edge_wide)
    words[-1, -1] = _wave(plan, edge_high, edge_wide)
    return words.ravel()


def _wave(plan: Layout, rows: int, columns: int) -> Integers:
    """Words that leave in each cycle of a fold that uses so many rows and columns of the array."""
    high = rows if plan.keeps_results else plan.steps
    # Results that stay leave behind those of unused rows; others once the last row has added to them.
    lead = plan.steps - 1 + plan.rows - rows if plan.keeps_results else 2 * plan.rows - 1
    wave = np.arange(1, high + columns)
    words = np.zeros(plan.fold_cycles, dtype=np.int64)
    words[lead : lead + len(wave)] = np.minimum(np.minimum(wave, wave[::-1]), min(high, columns))
    return words


@dataclass(slots=True)
class ResultBuffer:
    """The buffer while results come in; `words` per cycle of the array, (cycles,).

    `written`: words sent to memory, as the tool counts them; `busy_until`: cycle at which the last line left.
    """

    words: Integers
    buffer_words: int
    words_per_cycle: int
    written: int = 0
    busy_until: int = 0
    _stored: Integers = field(init=False)  # words up to each cycle
    _flushed: int = 0  # words that lie in lines
    _lines: deque[list[int]] = field(default_factory=deque)  # [lines, words in each]

    def __post_init__(self) -> None:
        """Count words."""
        self._stored = np.cumsum(self.words)

    @property
    def _half(self) -> int:
        return -(-self.buffer_words // 2)

    def next_cycle(self, since: int, stall: int) -> int:
        """The next of the array's cycles after `since` in which lines leave or results wait; NEVER if none.

        The array is `stall` cycles late.
        """
        done = int(self._stored[since]) if since >= 0 else 0
        full = self._cycle_of(max(self.buffer_words + self.written, done + 1))
        if full + stall < self.busy_until:
            return full
        free = self._cycle_of(max(self.buffer_words + self.written - self._half + 1, done + 1))
        idle = self.busy_until - stall
        if free >= idle:
            return free
        before = int(self._stored[idle - 1]) if idle <= len(self._stored) else int(self._stored[-1])
        return self._cycle_of(before + 1)

    def serve(self, cycle: int, stall: int) -> int:
        """Take the words of one of the array's cycles in; returns how long they wait."""
        now = cycle + stall
        stored, end = int(self._stored[cycle] - self.words[cycle]), int(self._stored[cycle])
        while True:
            waits = now < self.busy_until
            room = self.buffer_words + self.written - stored
            need = max(room if waits else room - self._half + 1, 1)
            if stored + need > end:
                return now - cycle - stall
            stored += need
            if waits:
                now = self.busy_until
            else:
                self._write(stored, now)

    def empty(self, now: int) -> int:
        """Write all that is left, beside what still leaves; returns the cycle in which the last line left."""
        last = self.busy_until
        while self._lines or self._flushed < self._stored[-1]:
            self._write(int(self._stored[-1]), now)
            now = self.busy_until + 1
        return max(last, self.busy_until)

    def _cycle_of(self, word: int) -> int:
        """The array's cycle that makes so many words."""
        cycle = int(np.searchsorted(self._stored, word))
        return cycle if cycle < len(self._stored) else NEVER

    def _write(self, stored: int, now: int) -> None:
        """Send half a buffer of lines to memory; what came since the last time makes lines of its own.

        A line that is not full counts as a full one unless it is the last that leaves.
        """
        full, rest = divmod(stored - self._flushed, self.words_per_cycle)
        self._lines.extend(line for line in ([full, self.words_per_cycle], [1, rest]) if all(line))
        self._flushed = stored
        wanted = -(-(self.buffer_words - self._half) // self.words_per_cycle)
        taken, width = 0, 0
        while self._lines and taken < wanted:
            lines = self._lines[0]
            now_taken, width = min(wanted - taken, lines[0]), lines[1]
            lines[0] -= now_taken
            taken += now_taken
            if not lines[0]:
                self._lines.popleft()
        self.written += (taken - 1) * self.words_per_cycle + width
        self.busy_until = now + taken - 1


@dataclass(frozen=True, slots=True)
class Interfaces:
    """Three interfaces to memory, one per operand and one for results, all alike.

    `buffer_words`: size of the buffer behind each, half of it at work at a time; `words_per_cycle`: bandwidth.
    """

    buffer_words: int
    words_per_cycle: int


@dataclass(frozen=True, slots=True)
class StalledRun:
    """Cycles and traffic (words) of a product as the tool reports them.

    `cycles`: total, one less than the demand matrix has rows, plus `stall_cycles`; `whole_cycles`: from the first
    prefetch to the last write; `read_words`: of both operands, in the order of `operands`, padding included.
    """

    cycles: int
    stall_cycles: int
    whole_cycles: int
    read_words: tuple[int, int]
    written_words: int


@dataclass(slots=True)
class _Refills:
    """One operand's buffer while the array runs: refills ahead, and the cycle at which the last one was in."""

    queue: list[tuple[int, int]]
    cycles_each: int
    done: int = 0
    last_in: int = -1  # the working half is filled before the first cycle

    @property
    def next_cycle(self) -> int:
        return self.queue[self.done][0] if self.done < len(self.queue) else NEVER

    def serve(self, cycle: int, stall: int) -> int:
        """How long the array waits for this operand in one of its cycles; negative: it could have been faster."""
        if self.next_cycle != cycle:
            return 0
        served = cycle + stall + 1
        for _ in range(self.queue[self.done][1]):
            self.last_in += self.cycles_each
            served = self.last_in + max(0, self.last_in - served)
        self.done += 1
        return served - (cycle + stall + 1)


def stalled_run(
    dataflow: Dataflow, gemm: Gemm, rows: int, columns: int, interfaces: Interfaces
) -> StalledRun:
    """One of the groups of a product with buffers of finite size and bandwidth."""
    plan, size, rate = (
        array_layout(dataflow, gemm, rows, columns),
        interfaces.buffer_words,
        interfaces.words_per_cycle,
    )
    both = operands(plan)
    lines = -(-(size - -(-size // 2)) // rate)  # of a refill
    reads = [_Refills(o.refills(plan, size), lines + 1) for o in both]
    results = ResultBuffer(result_words(plan), size, rate)
    stall = _stall_cycles(reads, results)
    cycles = plan.cycles - 1 + stall
    written = results.empty(cycles)
    first = [_first_lines(o, interfaces) for o in both]
    refilled = [sum(many for _, many in r.queue) for r in reads]
    return StalledRun(
        cycles,
        stall,
        written + max(first),
        ((first[0] + refilled[0] * lines) * rate, (first[1] + refilled[1] * lines) * rate),
        results.written,
    )


def _stall_cycles(reads: list[_Refills], results: ResultBuffer) -> int:
    """Go through the array's cycles in which a buffer may make it wait."""
    stall, cycle = 0, -1
    while True:
        cycle = min(results.next_cycle(cycle, stall), *(r.next_cycle for r in reads))
        if cycle == NEVER:
            return stall
        stall += max(results.serve(cycle, stall), *(r.serve(cycle, stall) for r in reads))


def _first_lines(operand: Operand, interfaces: Interfaces) -> int:
    """Lines that fill the working half before the first cycle; all of a small operand."""
    rate = interfaces.words_per_cycle
    half = -(-interfaces.buffer_words // 2)
    whole = -(-operand.padded_words // rate)
    return min(-(-half // rate), whole)
