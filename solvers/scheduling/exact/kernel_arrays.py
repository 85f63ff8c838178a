"""Plain arrays for the compact search: the problem, the records of states, and what one expansion writes.

Branches of the precedence graph that can change places without anyone noticing are ordered among themselves.

The branch of an operator is what only it holds back: the operator, and everything all of whose predecessors
are in the branch. Two disjoint branches are interchangeable if a one-to-one map between them keeps modes,
edges inside, and successors outside. Once the first operators of both are free to start, whatever has been
done of one could as well have been done of the other.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import NamedTuple

import numpy as np
from phaze.solvers.arrays import Floats, Integers

from ..indexed_problem import IndexedProblem
from ..phases.kernel_phases import Phases, Table
from ..phases.phase_sequences import MOST_OPERATORS as PHASED
from ..phases.phase_sequences import problem_of, table_of
from .state_space import NEVER, TICKS, StateSpace

Lists = Sequence[Sequence[int]]

SLOT_BITS = 18
"""Binary digits of the most slots of the table of closed sets that bounds of states are looked up in: 8 MB."""


def interchangeable(modes: Sequence[Hashable], preds: Lists, succs: Lists) -> list[list[list[int]]]:
    """Classes of two or more interchangeable branches; equal places in the lists of a class correspond.

    Operators are numbered such that each follows its predecessors; `modes` are equal where operators are.
    """
    colors = _colors(modes, succs)
    branches = [_branch(i, preds, succs, colors) for i in range(len(modes))]
    classes: dict[int, list[list[list[int]]]] = {}
    for branch in branches:
        candidates = classes.setdefault(colors[branch[0]], [])
        for members in candidates:
            if all(_correspond(other, branch, succs, colors) for other in members):
                members.append(branch)
                break
        else:
            candidates.append([branch])
    return [members for candidates in classes.values() for members in candidates if len(members) > 1]


def outermost(classes: Sequence[Lists], succs: Lists) -> list[Lists]:
    """Classes without those that another one implies: behind a chain, what ends the branches of another class
    is sorted with them."""
    implied = set()
    for members in classes:
        for k in range(1, len(members[0])):
            if any(list(succs[branch[k - 1]]) != [branch[k]] for branch in members):
                break
            implied.add(frozenset(branch[k] for branch in members))
    return [members for members in classes if frozenset(branch[0] for branch in members) not in implied]


def _colors(modes: Sequence[Hashable], succs: Lists) -> list[int]:
    """Equal for operators whose modes and descendants look alike; not all such are interchangeable."""
    numbers: dict[Hashable, int] = {}
    colors = [0] * len(modes)
    for i in reversed(range(len(modes))):
        look = (modes[i], *sorted(colors[j] for j in succs[i]))
        colors[i] = numbers.setdefault(look, len(numbers))
    return colors


def _branch(first: int, preds: Lists, succs: Lists, colors: Sequence[int]) -> list[int]:
    """The branch of an operator in an order that depends on looks before numbers."""
    branch, held = [first], dict.fromkeys(range(len(preds)), 0)
    for i in branch:
        for j in sorted(succs[i], key=lambda j: (colors[j], j)):
            held[j] += 1
            if held[j] == len(preds[j]):
                branch.append(j)
    return branch


def _correspond(one: list[int], two: list[int], succs: Lists, colors: Sequence[int]) -> bool:
    """Whether equal places of two branches look alike and have corresponding or the same successors."""
    if len(one) != len(two) or not set(one).isdisjoint(two):
        return False
    image = dict(zip(one, two, strict=True))
    return all(
        colors[i] == colors[j] and {image.get(k, k) for k in succs[i]} == set(succs[j])
        for i, j in image.items()
    )


MODE_BITS, CODE_BITS, WORD = 4, 14, 62
"""Bits of a mode, of an operator with its mode, and of a word of a mask (sign and overflow stay out of it)."""

ALL_MODES, PER_WORD = (1 << MODE_BITS) - 1, WORD // CODE_BITS
"""Mask of a mode; operators with their modes that fit into a word."""

MODE, WAITING, DEAD = 50, 1 << 62, 1 << 54
"""Bit of `val` where the mode begins, least `val` of a waiting operator, bound of a state that is dominated."""

END = (1 << MODE) - 1
"""Mask of the end tick in `val`."""

TAIL, CORE_TAIL, PLAIN, FORCED, BLOCKS, HASTY, FAMILY, FIRST_PRED, LAST_PRED = range(9)
"""Columns of `Arrays.op`."""

BOUND, NOW, PARENT, NEXT, HASH, RUNS, FIRST, STEPS, LINK, HEAD = range(10)
"""Fields of a record; from HEAD on mask of the started, masks of the late per mode, the running, the steps."""

COUNT, HEAPED, UPPER, CUTOFF, BEST, SPENT, LEVEL, TAKEN, DEPTH, COUNTERS = range(10)
"""Entries of `Memory.tally`."""

VAL, CHILD, LABEL, ORDER, READY, NEED, CHOSEN, STACK, PLACE, MINE = range(10)
"""Rows of `Memory.mine`."""

ENDS, CODES = 0, 2
"""Rows of `Memory.runs`, each for the state and then for its child."""

MOST_OPERATORS, MOST_MODES = 1 << CODE_BITS - MODE_BITS, ALL_MODES
"""Attributes that the records have bits for."""


class Arrays(NamedTuple):
    """A problem of O operators, M modes and R resources in ticks, with its bounds and symmetries; read only."""

    op: Integers
    """(O, 9): tails and other bounds, flags, family, and the range of its predecessors in `pred`."""
    pred: Integers
    mode: Integers
    """(O, M, 1 + R): duration (NEVER where struck out or absent), then demands."""
    capacity: Integers
    """(R,)"""
    work: Integers
    """(rows, O): least work in ticks; a row is a weighting under which nothing works faster than the clock."""
    share: Floats
    """(rows, O, M): work per tick of a running operator."""
    classes: Integers
    """(C, 3): of interchangeable branches the first entry in `twins`, the number, the length of each."""
    twins: Integers
    """Operators of the branches, one after the other, such that equal places correspond."""
    most: int
    """K: most operators that run at once."""
    phases: Phases
    """Ticks beside others and alone; no operators where there are too many."""


class Memory(NamedTuple):
    """Memory that the search writes."""

    pool: Integers
    """(N, width): one record per state."""
    heads: Integers
    """(power of two,): last record of every slot of the hash table, -1 for none."""
    heap: Integers
    """(N, 2): key and record."""
    level: Integers
    """(O + 1,): last record with so many ended operators, -1 for none."""
    tally: Integers
    mine: Integers
    """(9, O): one expansion's view of the operators."""
    runs: Integers
    """(4, K): ends and codes of the running, in the order of their ends."""
    free: Integers
    """(2, R): free resources in the state and in its child."""
    left: Integers
    """(2, rows): work not yet started in the state and in its child."""
    table: Table
    """Least ticks from what was started to the end, in phases."""


def problem_arrays(ix: IndexedProblem, space: StateSpace, rows: Floats | None) -> tuple[list[int], Arrays]:
    """The operators' positions in the order of the arrays (most urgent first), and the arrays.

    `rows` (K, O, M) are further weightings: work per tick of every operator and mode.
    """
    order = _urgent_first(ix, space)
    place = {i: k for k, i in enumerate(order)}
    preds = [[place[j] for j in range(ix.size) if ix.preds[i] >> j & 1] for i in order]
    succs = [[place[j] for j in ix.succs[i]] for i in order]
    mode = _modes(ix, space, order)
    branches = interchangeable([row.tobytes() for row in mode], preds, succs)
    family = list(range(ix.size))
    classes: list[tuple[int, int, int]] = []
    twins: list[int] = []
    for lists in branches:
        for branch in lists:
            family[branch[0]] = lists[0][0]
    for members in sorted(outermost(branches, succs), key=lambda members: len(members[0])):
        classes.append((len(twins), len(members), len(members[0])))
        twins.extend(chain.from_iterable(members))
    bounds = np.cumsum([0, *map(len, preds)])
    hasty = [space.uncontended >> i & 1 for i in range(ix.size)]
    columns = (space.tails, space.core_tails, space.plain, space.forced, ix.core, hasty)
    op = np.array([[column[i] for i in order] for column in columns], dtype=np.int64)
    work, share = _weightings(ix, space, rows, order, mode[:, :, 0])
    return order, Arrays(
        op=np.vstack([op, family, bounds[:-1], bounds[1:]]).T.copy(),
        pred=np.array([j for row in preds for j in row], dtype=np.int64),
        mode=mode,
        capacity=np.array(ix.capacity, dtype=np.int64),
        work=work,
        share=share,
        classes=np.array(classes, dtype=np.int64).reshape(-1, 3),
        twins=np.array(twins, dtype=np.int64),
        most=_most_running(ix),
        phases=_phases(ix, space, order, succs),
    )


def _phases(ix: IndexedProblem, space: StateSpace, order: list[int], succs: Lists) -> Phases:
    """Operators off the blocked units take no time: they may run beside any phase."""
    if ix.size > PHASED:
        return problem_of([], [])
    phases = problem_of(succs, range(ix.size))
    for k, i in enumerate(order):
        if ix.core[i]:
            times = [(space.latency[i][m], ix.whole[i][m]) for m in space.alive[i]]
            phases.beside[k] = min((time for time, whole in times if not whole), default=np.inf)
            phases.alone[k] = min((time for time, whole in times if whole), default=np.inf)
        else:
            phases.alone[k] = np.inf
    return phases


def _urgent_first(ix: IndexedProblem, space: StateSpace) -> list[int]:
    """Positions by longest time to the end, each after its predecessors."""
    waiting = [mask.bit_count() for mask in ix.preds]
    queue = [(-space.tails[i] - space.shortest[i], i) for i in range(ix.size) if not waiting[i]]
    heapify(queue)
    order = []
    while queue:
        i = heappop(queue)[1]
        order.append(i)
        for j in ix.succs[i]:
            waiting[j] -= 1
            if not waiting[j]:
                heappush(queue, (-space.tails[j] - space.shortest[j], j))
    return order


def _modes(ix: IndexedProblem, space: StateSpace, order: list[int]) -> Integers:
    mode = np.zeros((ix.size, max(map(len, ix.modes)), 1 + len(ix.capacity)), dtype=np.int64)
    mode[:, :, 0] = NEVER
    for k, i in enumerate(order):
        for m in space.alive[i]:
            mode[k, m, 0] = space.latency[i][m]
            mode[k, m, 1:] = ix.modes[i][m].demand
    return mode


def _most_running(ix: IndexedProblem) -> int:
    """Every operator that takes time holds a core."""
    cores = sum(ix.capacity[: len(ix.unit_names)])
    return min(ix.size, cores + sum(not units for units in ix.units))


def _weightings(
    ix: IndexedProblem, space: StateSpace, rows: Floats | None, order: list[int], ticks: Integers
) -> tuple[Integers, Floats]:
    """Work and share of the space's weightings and of further ones."""
    share = np.zeros((len(space.share), *ticks.shape))
    for r, row in enumerate(space.share):
        for k, i in enumerate(order):
            share[r, k, : len(row[i])] = row[i]
    if rows is not None:
        share = np.concatenate([share, rows[:, order]])
    alive = ticks < NEVER
    least = np.where(alive, share * np.where(alive, ticks, 0), np.inf).min(axis=2, initial=np.inf)
    return np.floor(least * (1.0 - 1e-13)).astype(np.int64), np.ascontiguousarray(share)


def search_memory(p: Arrays, records: int) -> Memory:
    """Room for so many states; the root is the first and only one."""
    size, modes = p.mode.shape[:2]
    words = -(-size // WORD)
    most = p.most
    width = HEAD + words * (1 + modes) + most - (-most // PER_WORD)
    memory = Memory(
        pool=np.empty((records, width), dtype=np.int64),
        heads=np.full(1 << (records - 1).bit_length(), -1, dtype=np.int64),
        heap=np.zeros((records, 2), dtype=np.int64),
        level=np.full(size + 1, -1, dtype=np.int64),
        tally=np.zeros(COUNTERS, dtype=np.int64),
        mine=np.zeros((MINE, size), dtype=np.int64),
        runs=np.zeros((4, most), dtype=np.int64),
        free=np.zeros((2, len(p.capacity)), dtype=np.int64),
        left=np.zeros((2, len(p.work)), dtype=np.int64),
        table=table_of(len(p.phases.beside), 1 << min(len(p.phases.beside) + 2, SLOT_BITS)),
    )
    memory.pool[0] = 0
    memory.pool[0, [PARENT, NEXT, LINK]] = -1
    memory.tally[[COUNT, HEAPED]] = 1
    memory.tally[[UPPER, CUTOFF, BEST]] = TICKS, TICKS, -1
    return memory
