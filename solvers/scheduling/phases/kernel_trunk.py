"""Phases of the operators that others follow, at prices, written for compilation.

Plain arrays, scalars and loops. The same functions run uncompiled, only slower, and then do the same.

Most sets that sequences of phases meet differ in operators that nothing follows. Without them few are left, and the
cheapest sequence after each of them is found from the end, in one pass over all phases, whatever a phase costs.
"""

from __future__ import annotations

from math import floor, inf
from typing import NamedTuple

from phaze.solvers.arrays import Flags, Floats, Integers

from .kernel_sets import NONE, copied, holds, include, slot_of

ROUNDING = 1e-10
"""Part of a step by which capacity is counted too high rather than too low."""

WHOLE = 4
"""Steps from which on a length counts as it is: every step more would be one more length to look at."""

FROM, INTO, VIEWS = range(3)
"""Rows of `Trunk.mask`."""

MET, PHASES, SUMS = range(3)
"""Entries of `Trunk.tally`."""


class Steps(NamedTuple):
    """How much of a length counts as capacity: with a `step` (Q,) s, only from there on or, if `counted` (Q,), in whole
    steps while these are few. `jump` (B,) s, ascending: all lengths at which one of them jumps."""

    step: Floats
    counted: Flags
    jump: Floats


class Trunk(NamedTuple):
    """Sets (N, W) of operators that others follow, and the phases between them.

    Phases after set n are `first[n]` to `last[n]`: they lead `to` a set, as a group of `least` to below `most` seconds,
    or as an operator alone (`most` 0) of `least` seconds. `slots` lead to sets. `end`, `order` (O,) and `mask` are the
    view of one set.
    """

    sets: Integers
    slots: Integers
    first: Integers
    last: Integers
    to: Integers
    least: Floats
    most: Floats
    tally: Integers
    mask: Integers
    end: Floats
    order: Integers


def counts(step: float, counted: bool, length: float) -> float:
    """Capacity in a length, s: of a core, for operators that take a whole step or more."""
    if not counted:
        return length if length >= step else 0.0
    whole = floor(length / step + ROUNDING)
    return whole * step if whole < WHOLE else length


def entered(t: Trunk, row: int) -> int:
    """Number of the set of a mask, which is added if it is new."""
    at = slot_of(t.sets, t.slots, t.mask, row)
    if t.slots[at] == NONE:
        n = t.tally[MET]
        t.tally[MET] += 1
        t.slots[at] = n
        for w in range(t.mask.shape[1]):
            t.sets[n, w] = t.mask[row, w]
    return t.slots[at]  # type: ignore[no-any-return]


def note(t: Trunk, to: int, least: float, most: float) -> None:
    """Note a phase."""
    at = t.tally[PHASES]
    t.tally[PHASES] += 1
    t.to[at], t.least[at], t.most[at] = to, least, most


def unfold(first: Integers, near: Integers, beside: Floats, alone: Floats, t: Trunk) -> bool:
    """All sets and phases from the empty set on; False where there is no room for them.

    `first`, `near`, `beside` and `alone` are those of `kernel_labels.Graph`.
    """
    size, done = beside.shape[0], 0
    for w in range(t.mask.shape[1]):
        t.mask[FROM, w] = 0
    entered(t, FROM)
    while done < t.tally[MET]:
        room = t.tally[MET] + 2 * size < t.sets.shape[0] and t.tally[PHASES] + 2 * size < t.to.shape[0]
        if not room:
            return False
        for w in range(t.mask.shape[1]):
            t.mask[FROM, w] = t.sets[done, w]
        t.first[done] = t.tally[PHASES]
        side_by_side(first, near, beside, t)
        one_by_one(first, near, alone, t)
        t.last[done] = t.tally[PHASES]
        done += 1
    return True


def side_by_side(first: Integers, near: Integers, beside: Floats, t: Trunk) -> None:
    """Groups that may come next: by the end of their longest path."""
    count, at = 0, 0
    for i in range(beside.shape[0]):
        if first[1, i] == first[1, i + 1] or holds(t.mask, FROM, i):
            continue
        begin = 0.0
        for e in range(first[0, i], first[0, i + 1]):
            if not holds(t.mask, FROM, near[0, e]):
                begin = max(begin, t.end[near[0, e]])
        t.end[i] = begin + beside[i]
        if t.end[i] == inf:
            continue
        k = count
        while k > 0 and t.end[t.order[k - 1]] > t.end[i]:
            t.order[k] = t.order[k - 1]
            k -= 1
        t.order[k] = i
        count += 1
    copied(t.mask, FROM, INTO)
    while at < count:
        length = t.end[t.order[at]]
        while at < count and t.end[t.order[at]] <= length:
            include(t.mask, INTO, t.order[at])
            at += 1
        note(t, entered(t, INTO), length, t.end[t.order[at]] if at < count else inf)


def one_by_one(first: Integers, near: Integers, alone: Floats, t: Trunk) -> None:
    """Operators that may come next alone."""
    for i in range(alone.shape[0]):
        if alone[i] == inf or first[1, i] == first[1, i + 1] or holds(t.mask, FROM, i):
            continue
        free = True
        for e in range(first[0, i], first[0, i + 1]):
            free = free and holds(t.mask, FROM, near[0, e])
        if free:
            copied(t.mask, FROM, INTO)
            include(t.mask, INTO, i)
            note(t, entered(t, INTO), alone[i], 0.0)


def idle(s: Steps, share: Floats, length: float) -> float:
    """What of a length is left when its capacity, at prices (Q,), is taken off, s."""
    left = length
    for q in range(share.shape[0]):
        if share[q] > 0.0:
            left -= share[q] * counts(s.step[q], s.counted[q], length)
    return left


def cheapest(
    t: Trunk,
    s: Steps,
    share: Floats,
    work: Floats,
    order: Integers,
    cost: Floats,
    phase: Integers,
    length: Floats,
) -> None:
    """Least price of what follows every set (N,), its first phase, and how long that is.

    `share` (Q,): prices of capacity. `work` (N,): price of the work of all operators in a set. `order` (N,): sets, each
    after those that its phases lead to.
    """
    gap = s.jump.copy()
    for b in range(gap.shape[0]):
        gap[b] = idle(s, share, s.jump[b])
    for k in range(order.shape[0]):
        n = order[k]
        cost[n], phase[n] = 0.0 if t.first[n] == t.last[n] else inf, NONE
        for e in range(t.first[n], t.last[n]):
            price, long = t.least[e], t.least[e]
            if t.most[e] > 0.0:
                price = idle(s, share, long)
                for b in range(gap.shape[0]):
                    if t.least[e] < s.jump[b] < t.most[e] and gap[b] < price:
                        price, long = gap[b], s.jump[b]
                price += work[t.to[e]] - work[n]
            if price + cost[t.to[e]] < cost[n]:
                cost[n], phase[n], length[n] = price + cost[t.to[e]], e, long
