"""Shortest sequences of phases from outside: tables, limits, and the compiled kernel once it pays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from time import monotonic

import numpy as np
from phaze.solvers.arrays import Flags, Floats, Integers

from ..machine_code import Names, OnceWorth
from . import kernel_phases
from .kernel_phases import NONE, Phases, Table

MOST_OPERATORS = 62
"""Operators that a mask has bits for."""

MANY_OPERATORS = 24
"""Operators of a graph from which on machine code is worth it at once."""

Answers = tuple[Floats, Integers, Flags]
"""Least times (A,), phases (A, O), and who is alone (A, O)."""


class Kernel:
    """The functions of the kernel: plain ones at first, compiled ones after some time was spent."""

    def __init__(self) -> None:
        """Nothing is built before there is reason to."""
        self._machine = OnceWorth(_sample, kernel_phases)

    def sequences(self, problem: Phases, table: Table, given: Sequence[Floats], found: Answers) -> None:
        """`kernel_phases.sequences`; as long as functions are plain, one after the other."""
        done, count = 0, len(found[0])
        while done < count:
            fast = self._machine.is_worth or len(problem.beside) >= MANY_OPERATORS
            part = slice(done, count if fast else done + 1)
            began = monotonic()
            names = self._machine.names if fast else vars(kernel_phases)
            names["sequences"](problem, table, *(one[part] for one in given), *(one[part] for one in found))
            self._machine.spend(monotonic() - began)
            done = part.stop


@cache
def kernel() -> Kernel:
    """The one of this process."""
    return Kernel()


def _sample(names: Names) -> None:
    """Call all functions on two operators in a row."""
    problem, table = problem_of([[1], []], [0, 1]), table_of(2, 8)
    one = np.ones((1, 2))
    names["sequences"](problem, table, one, one, *_answers(1, 2))


def problem_of(successors: Sequence[Sequence[int]], order: Sequence[int]) -> Phases:
    """A graph without times; the kernel numbers operators in the given topological order."""
    place, size = {i: k for k, i in enumerate(order)}, len(order)
    before: list[list[int]] = [[] for _ in order]
    for i in order:
        for j in successors[i]:
            before[place[j]].append(place[i])
    masks = [sum(1 << j for j in row) for row in before]
    return Phases(
        first=np.cumsum([0, *map(len, before)]).astype(np.int64),
        near=np.array([j for row in before for j in row], dtype=np.int64),
        before=np.array(masks, dtype=np.int64),
        last=np.array([sum(1 << k for k, i in enumerate(order) if not successors[i])], dtype=np.int64),
        beside=np.zeros(size),
        alone=np.zeros(size),
    )


def table_of(size: int, slots: int) -> Table:
    """An empty table for a problem of so many operators; half of the slots, a power of two, are used at most."""
    deep, wide = size + 2, 2 * size + 1
    return Table(
        key=np.full(slots, NONE, dtype=np.int64),
        value=np.zeros(slots),
        then=np.zeros(slots, dtype=np.int64),
        used=np.zeros(slots, dtype=np.int64),
        taken=np.zeros(1, dtype=np.int64),
        limit=np.full(1, slots // 2, dtype=np.int64),
        here=np.zeros(deep, dtype=np.int64),
        turn=np.zeros(deep, dtype=np.int64),
        choices=np.zeros(deep, dtype=np.int64),
        target=np.zeros((deep, wide), dtype=np.int64),
        cost=np.zeros((deep, wide)),
        best=np.zeros(deep),
        chosen=np.zeros(deep, dtype=np.int64),
        none=np.zeros(size),
        end=np.zeros(size),
        order=np.zeros(size, dtype=np.int64),
        delay=np.zeros(size),
        later=np.zeros(size),
        line=np.zeros(size, dtype=np.int64),
    )


def _answers(count: int, size: int) -> Answers:
    return (
        np.zeros(count),
        np.zeros((count, size), dtype=np.int64),
        np.zeros((count, size), dtype=np.bool_),
    )


def sequences(
    successors: Sequence[Sequence[int]], order: Sequence[int], beside: Floats, alone: Floats, slots: int
) -> Answers:
    """Least times (A,) s of sequences of phases, and of each the phases (A, O) and who is alone in its phase (A, O).

    `beside`, `alone` (A, O): seconds in a group and alone on the chip, inf where impossible. A time is 0 where more
    sets of operators than half of `slots` are met: then nothing is known. No schedule is shorter, whatever cores there
    are, as long as an operator alone excludes all those that take time in a group.
    """
    found = _answers(*beside.shape)
    if len(order) <= MOST_OPERATORS:
        problem, table = problem_of(successors, order), table_of(len(order), slots)
        at = list(order)
        given = np.ascontiguousarray(beside[:, at]), np.ascontiguousarray(alone[:, at])
        kernel().sequences(problem, table, given, found)
        for rows in found[1:]:
            rows[:, at] = rows.copy()
    return found
