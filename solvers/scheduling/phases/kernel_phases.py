"""Shortest sequences of phases, written for compilation.

Plain arrays, scalars and loops. The same functions run uncompiled, only slower, and then do the same.

A phase is one operator alone on the chip, or a group of others side by side. What has ended between two phases is a
set of operators closed under predecessors, a bit mask. A group that lasts some time may as well hold every operator
whose path from the beginning of the phase fits into that time, so there are only as many groups as path lengths. An
operator that nothing follows and that runs alone may as well run at the end. So few sets are ever met.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from phaze.solvers.arrays import Flags, Floats, Integers

NONE = -1
"""Key of an empty slot of a table."""

HALF = (1 << 31) - 1
"""Mask of half of a set: the products of a hash stay below the sign."""

FULL = -1.0
"""Answer where a table has no room left."""


AT_ONCE = 300
"""Sets that one moment may add to the table: no state of a search takes long."""


class Phases(NamedTuple):
    """Operators of a problem in topological order.

    `first` (O + 1,), `near`: direct predecessors of operator i are `near[first[i] : first[i + 1]]`; `before` (O,): the
    same as masks; `last` (1,): mask of those that nothing follows. `beside` and `alone` (O,): seconds in a group and
    alone on the chip, inf where impossible.
    """

    first: Integers
    near: Integers
    before: Integers
    last: Integers
    beside: Floats
    alone: Floats


class Table(NamedTuple):
    """Closed sets met (a hash table of N slots), the least time (s) from each to the end, the set after its next phase.

    `then` is ~set where the next phase is one operator alone. `used` lists the slots taken, `taken` (1,) how many
    are, `limit` (1,) how many may be. From `here` to `chosen` there is one row for every set on the way to the one
    that is looked at; `none` (O,): no delay; `end`, `order` (O,): ends of paths out of it, and who ends first.
    `delay`, `later` and `line` (O,) are the same for `resumed`.
    """

    key: Integers
    value: Floats
    then: Integers
    used: Integers
    taken: Integers
    limit: Integers
    here: Integers
    turn: Integers
    choices: Integers
    target: Integers
    cost: Floats
    best: Floats
    chosen: Integers
    none: Floats
    end: Floats
    order: Integers
    delay: Floats
    later: Floats
    line: Integers


def slot(t: Table, mask: int) -> int:
    """Where a set is in the table, or would be."""
    size: int = t.key.shape[0] - 1
    at: int = ((mask & HALF) * 0x2545F491 + (mask >> 31) * 0x1B873593 >> 15) & size
    while t.key[at] != NONE and t.key[at] != mask:
        at = (at + 1) & size
    return at


def clear(t: Table) -> None:
    """Forget all sets."""
    for k in range(t.taken[0]):
        t.key[t.used[k]] = NONE
    t.taken[0] = 0


def remember(t: Table, mask: int, value: float, then: int) -> None:
    """Put a set into the table."""
    at = slot(t, mask)
    t.key[at], t.value[at], t.then[at] = mask, value, then
    t.used[t.taken[0]] = at
    t.taken[0] += 1


def ends(p: Phases, mask: int, delay: Floats, end: Floats, order: Integers) -> int:
    """Sort the operators outside a set by the end of their longest path outside it; how many they are.

    `delay` (O,): seconds until operators of the set end.
    """
    count = 0
    for i in range(p.beside.shape[0]):
        if (mask >> i) & 1:
            continue
        begin = 0.0
        for e in range(p.first[i], p.first[i + 1]):
            j = p.near[e]
            before = delay[j] if (mask >> j) & 1 else end[j]
            begin = max(begin, before)
        end[i] = begin + p.beside[i]
        at = count
        while at > 0 and end[order[at - 1]] > end[i]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = i
        count += 1
    return count


def finish(p: Phases, t: Table, depth: int, count: int) -> None:
    """Of operators that nothing follows: the best group, and then all others alone."""
    mask, rest = t.here[depth], 0.0
    for k in range(count):
        rest += p.alone[t.order[k]]
    t.best[depth], t.chosen[depth], t.choices[depth] = rest, mask, 0
    at = 0
    while at < count and t.end[t.order[at]] < inf:
        length = t.end[t.order[at]]
        while at < count and t.end[t.order[at]] <= length:
            mask |= 1 << t.order[at]
            at += 1
        rest = 0.0
        for k in range(at, count):
            rest += p.alone[t.order[k]]
        time = length + rest
        if time < t.best[depth]:
            t.best[depth], t.chosen[depth] = time, mask


def branch(p: Phases, t: Table, depth: int, count: int) -> None:
    """Every group that may come next, and every operator that something follows alone."""
    mask, found, at = t.here[depth], 0, 0
    t.best[depth], t.chosen[depth] = inf, mask
    group = mask
    while at < count and t.end[t.order[at]] < inf:
        length = t.end[t.order[at]]
        while at < count and t.end[t.order[at]] <= length:
            group |= 1 << t.order[at]
            at += 1
        t.target[depth, found], t.cost[depth, found] = group, length
        found += 1
    for i in range(p.alone.shape[0]):
        if (mask >> i) & 1 or p.before[i] & ~mask or (p.last[0] >> i) & 1 or p.alone[i] == inf:
            continue
        t.target[depth, found], t.cost[depth, found] = ~(mask | 1 << i), p.alone[i]
        found += 1
    t.choices[depth] = found


def next_open(t: Table, depth: int) -> int:
    """Try what may follow the set at a depth, until one is met that is not known: its mask, `NONE` if there is none."""
    while t.turn[depth] < t.choices[depth]:
        k = t.turn[depth]
        target, cost = t.target[depth, k], t.cost[depth, k]
        mask: int = target if target >= 0 else ~target
        if cost < t.best[depth]:
            at = slot(t, mask)
            if t.key[at] != mask:
                return mask
            if cost + t.value[at] < t.best[depth]:
                t.best[depth], t.chosen[depth] = cost + t.value[at], target
        t.turn[depth] = k + 1
    return NONE


def least(p: Phases, t: Table, start: int) -> float:
    """Least time from a closed set to the end, s; `FULL` where more sets are met than the table may take.

    Depth first; what was found out of a set is remembered, so that the table may be asked again.
    """
    everything, depth = (1 << p.beside.shape[0]) - 1, 0
    if t.taken[0] == 0:
        remember(t, everything, 0.0, everything)
    at = slot(t, start)
    if t.key[at] == start:
        return t.value[at]  # type: ignore[no-any-return]
    t.here[0], t.turn[0] = start, -1
    while depth >= 0:
        if t.taken[0] >= t.limit[0]:
            return FULL
        if t.turn[depth] < 0:
            count = ends(p, t.here[depth], t.none, t.end, t.order)
            if everything & ~t.here[depth] & ~p.last[0]:
                branch(p, t, depth, count)
            else:
                finish(p, t, depth, count)
            t.turn[depth] = 0
        mask = next_open(t, depth)
        if mask == NONE:
            remember(t, t.here[depth], t.best[depth], t.chosen[depth])
            depth -= 1
        else:
            depth += 1
            t.here[depth], t.turn[depth] = mask, -1
    return t.value[slot(t, start)]  # type: ignore[no-any-return]


def resumed(p: Phases, t: Table, started: int, until: float) -> float:
    """Least time to the end from a moment within a group, s; `FULL` as in `least`.

    `started`: all that was started by then; `t.delay` (O,): how long each of them still runs, and `until` the longest
    of those on cores: so long no operator can be alone.
    """
    t.limit[0] = min(t.taken[0] + AT_ONCE, t.key.shape[0] // 2)
    count = ends(p, started, t.delay, t.later, t.line)
    group, at, length, best = started, 0, until, inf
    while True:
        while at < count and t.later[t.line[at]] <= length:
            group |= 1 << t.line[at]
            at += 1
        rest = least(p, t, group)
        if rest < 0.0:
            return FULL
        best = min(best, float(length + rest))
        if at == count:
            return best
        length = t.later[t.line[at]]
        if length >= best:
            return best


def follow(p: Phases, t: Table, phase: Integers, whole: Flags) -> None:
    """Number of the phase of every operator in the best sequence (O,), and whether it is alone in it."""
    size, mask, number = p.beside.shape[0], 0, 0
    everything = (1 << size) - 1
    while mask != everything:
        then = t.then[slot(t, mask)]
        after = then if then >= 0 else ~then
        for i in range(size):
            if (after & ~mask) >> i & 1:
                phase[i], whole[i] = number, then < 0
        number += 1
        if not everything & ~mask & ~p.last[0]:
            for i in range(size):
                if not (after >> i) & 1:
                    phase[i], whole[i] = number, True
                    number += 1
            return
        mask = after


def sequences(
    p: Phases, t: Table, beside: Floats, alone: Floats, lower: Floats, phase: Integers, whole: Flags
) -> None:
    """Least times (A,), 0 where the table is too small, and phases (A, O) of many problems of one graph.

    `beside`, `alone` (A, O): seconds of each.
    """
    for a in range(lower.shape[0]):
        for i in range(beside.shape[1]):
            p.beside[i], p.alone[i] = beside[a, i], alone[a, i]
        clear(t)
        t.limit[0] = t.key.shape[0] // 2
        found = least(p, t, 0)
        lower[a] = 0.0
        if found >= 0.0:
            lower[a] = found
            if found < inf:
                follow(p, t, phase[a], whole[a])
