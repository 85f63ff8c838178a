"""Refills of SCALE-Sim's operand buffers: which cycles of the array wait for one, and for how many.

A buffer holds a ring of blocks, each a hundredth of it, of an operand in the order the tool brings it in; half
of the buffer works while the other half is filled with the blocks that follow. A word that is not in the working half
makes the two change places until it is. How often, and when, depends on the order of demands alone, not
on time. Within one cycle the array asks for a contiguous run of words, so runs are all that is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from phaze.arrays import Integers
from phaze.cost.scalesim import Layout

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
