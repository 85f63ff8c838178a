"""Sequences of phases that also owe work, best first, written for compilation.

Plain arrays, scalars and loops. The same functions run uncompiled, only slower, and then do the same.

As in `kernel_phases` a group holds every operator whose path from the beginning of the phase fits into its time. All
of them together may be more work than the cores do in that time. Then some must wait, and what was counted as done is
owed. A label of a set holds times: that of the phases, and for every weighting that time with the work still owed. A
group of length l and work w makes of time t, and of t and debt x, the times t + l and max(t + l, x + w); an operator
alone adds to both. So no time shrinks when those before it grow: of two labels of a set, one that is nowhere later
replaces the other. A time and what is left of its kind bound every schedule that a label stands for.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from phaze.solvers.arrays import Floats, Integers

WORD = 62
"""Bits of a word of a set: signs stay out of it."""

NONE = -1
"""No set, no label, no group."""

DONE, BUDGET, ROOM = range(3)
"""Why a search returns: settled, labels expanded, or no room for the children of one more."""

SETS, LABELS, HEAPED, EXPANDED, GOAL, COUNTERS = range(6)
"""Entries of `Pool.tally`."""

HERE, THERE, GROUP, MASKS = range(4)
"""Rows of `Pool.mask`."""

HALF = (1 << 31) - 1
"""Mask of half of a word: the products of a hash stay below the sign."""


class Graph(NamedTuple):
    """Operators in topological order, which nothing changes.

    Neighbours of operator i are `near[way, first[way, i] : first[way, i + 1]]`: predecessors (0), successors (1).
    `beside`, `alone` (O,): seconds in a group and alone on the chip, inf where impossible. `work` (K, O): seconds of
    work under K weightings.
    """

    first: Integers
    near: Integers
    beside: Floats
    alone: Floats
    work: Floats


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


def holds(m: Pool, row: int, i: int) -> bool:
    """Whether a mask holds an operator."""
    return (m.mask[row, i // WORD] >> i % WORD & 1) != 0  # type: ignore[no-any-return]


def copy(m: Pool, source: int, target: int) -> None:
    """Copy a mask."""
    for w in range(m.mask.shape[1]):
        m.mask[target, w] = m.mask[source, w]


def known(g: Graph, m: Pool, row: int) -> int:
    """Number of the set of a mask, which is added if it is new."""
    h = 0
    for w in range(m.mask.shape[1]):
        word = m.mask[row, w]
        h = ((h & HALF) * 0x19660D + (word & HALF) * 0x2545F491 + (word >> 31) * 0x1B873593) & ((1 << 62) - 1)
        h ^= h >> 15
    at = (h >> 7) & (m.slots.shape[0] - 1)
    while m.slots[at] != NONE:
        s, same = m.slots[at], True
        for w in range(m.mask.shape[1]):
            same = same and m.sets[s, w] == m.mask[row, w]
        if same:
            return s  # type: ignore[no-any-return]
        at = (at + 1) & (m.slots.shape[0] - 1)
    s = m.tally[SETS]
    m.tally[SETS] += 1
    m.slots[at], m.newest[s] = s, NONE
    for w in range(m.mask.shape[1]):
        m.sets[s, w] = m.mask[row, w]
    measure(g, m, row, s)
    return s  # type: ignore[no-any-return]


def measure(g: Graph, m: Pool, row: int, s: int) -> None:
    """Least time left after a set: paths, with those that must be alone in a row; and all the work left."""
    size = g.beside.shape[0]
    longest, shared, serial = 0.0, 0.0, 0.0
    for k in range(g.work.shape[0]):
        m.rest[s, 1 + k] = 0.0
    for i in range(size - 1, -1, -1):
        if holds(m, row, i):
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


def lengthen(m: Pool, label: int, length: float, alone: float) -> None:
    """Times of a new label: a group of some length and the work owed, then operators alone."""
    new = m.tally[LABELS]
    time = m.time[label, 0] + length
    m.time[new, 0] = time + alone
    for k in range(1, m.time.shape[1]):
        m.time[new, k] = max(time, m.time[label, k] + m.owed[k]) + alone


def left_alone(g: Graph, m: Pool, row: int) -> float:
    """Time of all operators outside a mask, one after the other alone on the chip."""
    total = 0.0
    for i in range(g.alone.shape[0]):
        if not holds(m, row, i):
            total += g.alone[i]
    return total


def lengths(g: Graph, m: Pool) -> int:
    """Sort the operators outside a set by the end of their longest path outside it; how many may be in a group."""
    count = 0
    for i in range(g.beside.shape[0]):
        if holds(m, HERE, i):
            continue
        begin = 0.0
        for e in range(g.first[0, i], g.first[0, i + 1]):
            j = g.near[0, e]
            if not holds(m, HERE, j):
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
        if g.first[1, i] < g.first[1, i + 1] and not holds(m, HERE, i):
            return False
    return True


def finish(g: Graph, m: Pool, label: int, length: float, upper: float) -> None:
    """A last group, and then all others alone."""
    rest = left_alone(g, m, GROUP)
    if rest == inf:
        return
    lengthen(m, label, length, rest)
    group = known(g, m, GROUP)
    for w in range(m.mask.shape[1]):
        m.mask[THERE, w] = 0
    for i in range(g.alone.shape[0]):
        m.mask[THERE, i // WORD] |= 1 << i % WORD
    keep(m, label, known(g, m, THERE), group, upper)


def groups(g: Graph, m: Pool, label: int, upper: float) -> None:
    """Every group that may come next; where nothing follows any operator, with all the rest."""
    last, count, at = only_last(g, m), lengths(g, m), 0
    copy(m, HERE, GROUP)
    for k in range(m.time.shape[1]):
        m.owed[k] = 0.0
    if last:
        finish(g, m, label, 0.0, upper)
    while at < count:
        length = m.end[m.order[at]]
        if m.time[label, 0] + length >= upper:
            return
        while at < count and m.end[m.order[at]] <= length:
            i = m.order[at]
            m.mask[GROUP, i // WORD] |= 1 << i % WORD
            for k in range(g.work.shape[0]):
                m.owed[1 + k] += g.work[k, i]
            at += 1
        if last:
            finish(g, m, label, length, upper)
        else:
            s = known(g, m, GROUP)
            lengthen(m, label, length, 0.0)
            keep(m, label, s, s, upper)


def singles(g: Graph, m: Pool, label: int, upper: float) -> None:
    """Every operator that may come next alone, but for those that nothing follows: they may as well wait."""
    for k in range(m.time.shape[1]):
        m.owed[k] = 0.0
    for i in range(g.alone.shape[0]):
        if g.alone[i] == inf or g.first[1, i] == g.first[1, i + 1] or holds(m, HERE, i):
            continue
        free = True
        for e in range(g.first[0, i], g.first[0, i + 1]):
            free = free and holds(m, HERE, g.near[0, e])
        if free:
            copy(m, HERE, THERE)
            m.mask[THERE, i // WORD] |= 1 << i % WORD
            lengthen(m, label, 0.0, g.alone[i])
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
    room = m.at.shape[0] - 2 * size - 4
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
            ended = ended and holds(m, HERE, i)
        if ended:
            m.tally[GOAL] = label
            return DONE
        m.tally[EXPANDED] += 1
        groups(g, m, label, upper)
        singles(g, m, label, upper)
    return DONE
