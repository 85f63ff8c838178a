"""Sequences of phases that also owe work, best first, written for compilation.

Plain arrays, scalars and loops. The same functions run uncompiled, only slower, and then do the same.

As in `kernel_phases` a group holds every operator whose path from the beginning of the phase fits into its time. All
of them together may be more work than the cores do in that time. Then some must wait, and what was counted as done is
owed. A label of a set holds times: that of the phases, and for every weighting that time with the work still owed. A
group of length l and work w makes of time t, and of t and debt x, the times t + l and max(t + l, x + w); an operator
alone adds to both. So no time shrinks when those before it grow: of two labels of a set, one that is nowhere later
replaces the other. A time and what is left of its kind bound every schedule that a label stands for.

Capacity need not be the whole of a length (`kernel_trunk.Steps`): operators that take long do nothing in short groups.
What of the length is none adds to the debt.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from phaze.solvers.arrays import Flags, Floats, Integers

from .kernel_sets import NONE, copied, holds, include, slot_of
from .kernel_trunk import counts

DONE, BUDGET, ROOM = range(3)
"""Why a search returns: settled, labels expanded, or no room for the children of one more."""

SETS, LABELS, HEAPED, EXPANDED, GOAL, COUNTERS = range(6)
"""Entries of `Pool.tally`."""

HERE, THERE, GROUP, TRUNK, MASKS = range(5)
"""Rows of `Pool.mask`."""


class Graph(NamedTuple):
    """Operators in topological order, which nothing changes.

    Neighbours of operator i are `near[way, first[way, i] : first[way, i + 1]]`: predecessors (0), successors (1).
    `beside`, `alone` (O,): seconds in a group and alone on the chip, inf where impossible. `work` (K, O): seconds of
    work under K weightings. Of a length no capacity is the part `slack` (K,) and, for each of the Q steps of
    `kernel_trunk.Steps` with the part `share` (K, Q), what the step does not count. `after` (1 + K, N): least time
    after each of some `sets` (N, W), to which `slots` lead, of operators that others follow (`inner` (W,), bits);
    `last` (1 + K, O): of every other one that is left. N may be 0.
    """

    first: Integers
    near: Integers
    beside: Floats
    alone: Floats
    work: Floats
    slack: Floats
    share: Floats
    step: Floats
    counted: Flags
    jump: Floats
    sets: Integers
    slots: Integers
    inner: Integers
    after: Floats
    last: Floats


class Pool(NamedTuple):
    """Sets met with least times left (N, 1 + K) and newest label; labels; heap; one expansion's view.

    Of a label: its set `at`, the next one `link` of the same set, the label `parent` before its last phase, the set
    that the `group` of that phase made (`NONE` for an operator alone), `bound` (s): inf once another replaced it.
    `greed` (1,): how many times what is left counts in the order of the heap; above 1 the first whole sequence is found
    sooner and need not be the shortest. `slots` lead to sets. `key` and `entry` are the heap. `tail` (2, O): longest
    paths to the end.
    """

    sets: Integers
    rest: Floats
    newest: Integers
    slots: Integers
    at: Integers
    link: Integers
    parent: Integers
    group: Integers
    bound: Floats
    time: Floats
    greed: Floats
    key: Floats
    entry: Integers
    tally: Integers
    mask: Integers
    end: Floats
    order: Integers
    tail: Floats
    owed: Floats


def push(m: Pool, key: float, label: int) -> None:
    """Add a label to the heap; of equal keys the newest label comes first."""
    at = m.tally[HEAPED]
    m.tally[HEAPED] += 1
    while at > 0:
        up = (at - 1) >> 1
        if m.key[up] < key or (m.key[up] == key and m.entry[up] > label):
            break
        m.key[at], m.entry[at] = m.key[up], m.entry[up]
        at = up
    m.key[at], m.entry[at] = key, label


def pop(m: Pool) -> int:
    """Take the label with the least key off the heap."""
    top: int = m.entry[0]
    m.tally[HEAPED] -= 1
    n = m.tally[HEAPED]
    key, label, at, kid = m.key[n], m.entry[n], 0, 1
    while kid < n:
        if kid + 1 < n:
            a, b = m.key[kid], m.key[kid + 1]
            kid += b < a or (b == a and m.entry[kid + 1] > m.entry[kid])
        if m.key[kid] > key or (m.key[kid] == key and m.entry[kid] < label):
            break
        m.key[at], m.entry[at] = m.key[kid], m.entry[kid]
        at, kid = kid, 2 * kid + 1
    m.key[at], m.entry[at] = key, label
    return top


def known(g: Graph, m: Pool, row: int) -> int:
    """Number of the set of a mask, which is added if it is new."""
    at = slot_of(m.sets, m.slots, m.mask, row)
    if m.slots[at] != NONE:
        return m.slots[at]  # type: ignore[no-any-return]
    s = m.tally[SETS]
    m.tally[SETS] += 1
    m.slots[at], m.newest[s] = s, NONE
    for w in range(m.mask.shape[1]):
        m.sets[s, w] = m.mask[row, w]
    measure(g, m, row, s)
    return s  # type: ignore[no-any-return]


def measure(g: Graph, m: Pool, row: int, s: int) -> None:
    """Least time left after a set: paths, with those that must be alone in a row; all the work left; priced phases."""
    size = g.beside.shape[0]
    longest, shared, serial = 0.0, 0.0, 0.0
    for k in range(g.work.shape[0]):
        m.rest[s, 1 + k] = 0.0
    for i in range(size - 1, -1, -1):
        if holds(m.mask, row, i):
            continue
        path, beside = 0.0, 0.0
        for e in range(g.first[1, i], g.first[1, i + 1]):
            path = max(path, m.tail[0, g.near[1, e]])
            beside = max(beside, m.tail[1, g.near[1, e]])
        least = min(g.beside[i], g.alone[i])
        m.tail[0, i] = path + least
        if g.beside[i] == inf:
            m.tail[1, i] = beside
            serial += least
        else:
            m.tail[1, i] = beside + least
        longest, shared = max(longest, m.tail[0, i]), max(shared, m.tail[1, i])
        for k in range(g.work.shape[0]):
            m.rest[s, 1 + k] += g.work[k, i]
    m.rest[s, 0] = max(longest, shared + serial)
    if g.after.shape[1]:
        look_up(g, m, row, s)


def look_up(g: Graph, m: Pool, row: int, s: int) -> None:
    """Raise the least times left after a set to those of priced phases, if they are known."""
    for w in range(m.mask.shape[1]):
        m.mask[TRUNK, w] = m.mask[row, w] & g.inner[w]
    n = g.slots[slot_of(g.sets, g.slots, m.mask, TRUNK)]
    if n == NONE:
        return
    for k in range(g.after.shape[0]):
        total = g.after[k, n]
        for i in range(g.last.shape[1]):
            if not holds(m.mask, row, i):
                total += g.last[k, i]
        m.rest[s, k] = max(m.rest[s, k], total)


def replaced(m: Pool, s: int) -> bool:
    """Whether a label of a set makes the new one needless; if not, drops those that the new one makes so."""
    new, before, other = m.tally[LABELS], NONE, m.newest[s]
    while other != NONE:
        first, second, after = True, True, m.link[other]
        for k in range(m.time.shape[1]):
            first = first and m.time[other, k] <= m.time[new, k]
            second = second and m.time[new, k] <= m.time[other, k]
        if first:
            return True
        if second:
            m.bound[other] = inf
            if before == NONE:
                m.newest[s] = after
            else:
                m.link[before] = after
        else:
            before = other
        other = after
    return False


def keep(m: Pool, label: int, s: int, group: int, upper: float) -> None:
    """Queue the new label of a set, whose times are written, unless it is no better than others or the incumbent."""
    new = m.tally[LABELS]
    bound = 0.0 if label == NONE else m.bound[label]
    hope = bound
    for k in range(m.time.shape[1]):
        bound = max(bound, m.time[new, k] + m.rest[s, k])
        hope = max(hope, m.time[new, k] + m.greed[0] * m.rest[s, k])
    if bound >= upper or replaced(m, s):
        return
    m.at[new], m.parent[new], m.group[new], m.bound[new] = s, label, group, bound
    m.link[new], m.newest[s] = m.newest[s], new
    m.tally[LABELS] += 1
    push(m, hope, new)


def lengthen(g: Graph, m: Pool, label: int, length: float, alone: float) -> None:
    """Times of a new label: a group of some length and the work owed, then operators alone."""
    new = m.tally[LABELS]
    time = m.time[label, 0] + length
    m.time[new, 0] = time + alone
    for k in range(1, m.time.shape[1]):
        idle = g.slack[k - 1] * length
        for q in range(g.step.shape[0]):
            if g.share[k - 1, q] > 0.0:
                idle += g.share[k - 1, q] * (length - counts(g.step[q], g.counted[q], length))
        m.time[new, k] = max(time, m.time[label, k] + m.owed[k] + idle) + alone


def left_alone(g: Graph, m: Pool, row: int) -> float:
    """Time of all operators outside a mask, one after the other alone on the chip."""
    total = 0.0
    for i in range(g.alone.shape[0]):
        if not holds(m.mask, row, i):
            total += g.alone[i]
    return total


def lengths(g: Graph, m: Pool) -> int:
    """Sort the operators outside a set by the end of their longest path outside it; how many may be in a group."""
    count = 0
    for i in range(g.beside.shape[0]):
        if holds(m.mask, HERE, i):
            continue
        begin = 0.0
        for e in range(g.first[0, i], g.first[0, i + 1]):
            j = g.near[0, e]
            if not holds(m.mask, HERE, j):
                begin = max(begin, m.end[j])
        m.end[i] = begin + g.beside[i]
        if m.end[i] == inf:
            continue
        at = count
        while at > 0 and m.end[m.order[at - 1]] > m.end[i]:
            m.order[at] = m.order[at - 1]
            at -= 1
        m.order[at] = i
        count += 1
    return count


def only_last(g: Graph, m: Pool) -> bool:
    """Whether nothing follows any operator outside a set."""
    for i in range(g.alone.shape[0]):
        if g.first[1, i] < g.first[1, i + 1] and not holds(m.mask, HERE, i):
            return False
    return True


def finish(g: Graph, m: Pool, label: int, length: float, upper: float) -> None:
    """A last group, and then all others alone."""
    rest = left_alone(g, m, GROUP)
    if rest == inf:
        return
    lengthen(g, m, label, length, rest)
    group = known(g, m, GROUP)
    for w in range(m.mask.shape[1]):
        m.mask[THERE, w] = 0
    for i in range(g.alone.shape[0]):
        include(m.mask, THERE, i)
    keep(m, label, known(g, m, THERE), group, upper)


def groups(g: Graph, m: Pool, label: int, upper: float) -> None:
    """Every group that may come next; where nothing follows any operator, with all the rest."""
    last, count, at, jump = only_last(g, m), lengths(g, m), 0, 0
    copied(m.mask, HERE, GROUP)
    for k in range(m.time.shape[1]):
        m.owed[k] = 0.0
    if last:
        finish(g, m, label, 0.0, upper)
    while at < count:
        length = m.end[m.order[at]]
        while at < count and m.end[m.order[at]] <= length:
            i = m.order[at]
            include(m.mask, GROUP, i)
            for k in range(g.work.shape[0]):
                m.owed[1 + k] += g.work[k, i]
            at += 1
        longer = m.end[m.order[at]] if at < count else inf
        while length < longer:
            if m.time[label, 0] + length >= upper:
                return
            if last:
                finish(g, m, label, length, upper)
            else:
                s = known(g, m, GROUP)
                lengthen(g, m, label, length, 0.0)
                keep(m, label, s, s, upper)
            while jump < g.jump.shape[0] and g.jump[jump] <= length:
                jump += 1
            length = g.jump[jump] if jump < g.jump.shape[0] else inf


def singles(g: Graph, m: Pool, label: int, upper: float) -> None:
    """Every operator that may come next alone, but for those that nothing follows: they may as well wait."""
    for k in range(m.time.shape[1]):
        m.owed[k] = 0.0
    for i in range(g.alone.shape[0]):
        if g.alone[i] == inf or g.first[1, i] == g.first[1, i + 1] or holds(m.mask, HERE, i):
            continue
        free = True
        for e in range(g.first[0, i], g.first[0, i + 1]):
            free = free and holds(m.mask, HERE, g.near[0, e])
        if free:
            copied(m.mask, HERE, THERE)
            include(m.mask, THERE, i)
            lengthen(g, m, label, 0.0, g.alone[i])
            keep(m, label, known(g, m, THERE), NONE, upper)


def begin(g: Graph, m: Pool) -> None:
    """The first label, of the empty set."""
    for w in range(m.mask.shape[1]):
        m.mask[HERE, w] = 0
    for k in range(m.time.shape[1]):
        m.time[0, k] = 0.0
    keep(m, NONE, known(g, m, HERE), NONE, inf)


def search(g: Graph, m: Pool, upper: float, budget: int) -> int:
    """Expand labels until `EXPANDED` reaches `budget`, those with the least key first, until one is a whole sequence
    of phases (the `GOAL`) or none is below `upper`."""
    size = g.beside.shape[0]
    room = m.at.shape[0] - 2 * size - 2 * g.jump.shape[0] - 4
    while m.tally[HEAPED] > 0:
        if m.greed[0] == 1.0 and m.key[0] >= upper:
            return DONE
        if m.tally[LABELS] > room or m.tally[SETS] > room:
            return ROOM
        if m.tally[EXPANDED] >= budget:
            return BUDGET
        label = pop(m)
        if m.bound[label] == inf:
            continue
        s, ended = m.at[label], True
        for w in range(m.mask.shape[1]):
            m.mask[HERE, w] = m.sets[s, w]
        for i in range(size):
            ended = ended and holds(m.mask, HERE, i)
        if ended:
            m.tally[GOAL] = label
            return DONE
        m.tally[EXPANDED] += 1
        groups(g, m, label, upper)
        singles(g, m, label, upper)
    return DONE
