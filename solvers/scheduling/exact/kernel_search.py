"""Moves of the compact search, written for compilation: from a state to its children, and the search itself.

Plain arrays, scalars and loops. The same functions run uncompiled, only slower, and then do the same.
"""

from __future__ import annotations

from .kernel_arrays import (
    ALL_MODES,
    BEST,
    BOUND,
    CHILD,
    CHOSEN,
    CODE_BITS,
    CODES,
    COUNT,
    CUTOFF,
    DEPTH,
    ENDS,
    FAMILY,
    FIRST,
    HASH,
    HASTY,
    HEAD,
    HEAPED,
    LEVEL,
    LINK,
    MODE,
    MODE_BITS,
    NEED,
    NOW,
    PARENT,
    PER_WORD,
    PLACE,
    READY,
    RUNS,
    SPENT,
    STACK,
    STEPS,
    TAIL,
    TAKEN,
    UPPER,
    VAL,
    WAITING,
    WORD,
    Arrays,
    Memory,
)
from .kernel_states import canonical, dominated, estimate, fits, pack, pop, push, released

DONE, BUDGET, ROOM = range(3)
"""Why a search returns: nothing left to expand, states spent, or no room for the children of one more."""


def unpack(p: Arrays, m: Memory, row: int) -> int:
    """Set what is known of the state at `row`: progress, running by end, free resources, work left, and who is
    ready to start, which is counted. Of interchangeable ones each needs the one before it."""
    pool, val, runs = m.pool, m.mine[VAL], m.runs
    size, modes = p.mode.shape[0], p.mode.shape[1]
    words = (size + WORD - 1) // WORD
    late, first = HEAD + words, HEAD + words * (1 + modes)
    for r in range(p.capacity.shape[0]):
        m.free[0, r] = p.capacity[r]
    for r in range(p.work.shape[0]):
        m.left[0, r] = 0
    for i in range(size):
        w, b = i // WORD, i % WORD
        val[i] = 0
        if not (pool[row, HEAD + w] >> b) & 1:
            val[i] = WAITING | ((1 << modes) - 1)
            for mode in range(modes):
                val[i] -= ((pool[row, late + mode * words + w] >> b) & 1) << mode
            for r in range(p.work.shape[0]):
                m.left[0, r] += p.work[r, i]
    for k in range(pool[row, RUNS]):
        end, code = pool[row, first + k] >> CODE_BITS, pool[row, first + k] & ((1 << CODE_BITS) - 1)
        i, mode, at = code >> MODE_BITS, code & ALL_MODES, k
        val[i] = (mode + 1) << MODE | end
        while at > 0 and runs[ENDS, at - 1] > end:
            runs[ENDS, at], runs[CODES, at] = runs[ENDS, at - 1], runs[CODES, at - 1]
            at -= 1
        runs[ENDS, at], runs[CODES, at] = end, code
        for r in range(p.capacity.shape[0]):
            m.free[0, r] -= p.mode[i, mode, 1 + r]
    count = 0
    for i in range(size):
        if val[i] >= WAITING and released(p, val, i):
            k = count - 1
            while k >= 0 and p.op[m.mine[READY, k], FAMILY] != p.op[i, FAMILY]:
                k -= 1
            m.mine[READY, count], m.mine[NEED, count], m.mine[CHOSEN, count] = i, k, 0
            count += 1
    m.tally[DEPTH] = 0
    return count


def start_chosen(p: Arrays, m: Memory, row: int) -> int:
    """Running (by end) and work left once the chosen operators have started; how many run."""
    runs = m.runs
    n: int = m.pool[row, RUNS]
    for k in range(n):
        runs[ENDS + 1, k], runs[CODES + 1, k] = runs[ENDS, k], runs[CODES, k]
    for r in range(p.work.shape[0]):
        m.left[1, r] = m.left[0, r]
    for d in range(m.tally[DEPTH]):
        i, mode, at = m.mine[STACK, d] >> MODE_BITS, m.mine[STACK, d] & ALL_MODES, n
        end = m.pool[row, NOW] + p.mode[i, mode, 0]
        while at > 0 and runs[ENDS + 1, at - 1] > end:
            runs[ENDS + 1, at], runs[CODES + 1, at] = runs[ENDS + 1, at - 1], runs[CODES + 1, at - 1]
            at -= 1
        runs[ENDS + 1, at], runs[CODES + 1, at] = end, i << MODE_BITS | mode
        n += 1
        for r in range(p.work.shape[0]):
            m.left[1, r] -= p.work[r, i]
    return n


def shifted(p: Arrays, m: Memory, now: int, then: int, ready: int) -> bool:
    """Note in the child which modes could have started before and therefore need not start `then`.

    True if an operator could even have ended, or had nothing to wait for: not to start it gains nothing.
    """
    for k in range(ready):
        i, need = m.mine[READY, k], m.mine[NEED, k]
        if m.mine[CHOSEN, k]:
            continue
        m.mine[CHILD, i] = WAITING | ((1 << p.mode.shape[1]) - 1)
        if need >= 0 and not m.mine[CHOSEN, need]:
            continue
        for mode in range(p.mode.shape[1]):
            if fits(p, m, i, mode):
                if p.op[i, HASTY] or now + p.mode[i, mode, 0] <= then:
                    return True
                m.mine[CHILD, i] -= 1 << mode
    return False


def settle(p: Arrays, m: Memory, then: int, n: int, at_once: bool) -> int:
    """Of n running in the child, end (unless nothing is to end yet) those that do so `then`; how many go on."""
    val, runs, gone = m.mine[CHILD], m.runs, 0
    for r in range(p.capacity.shape[0]):
        m.free[1, r] = m.free[0, r]
    for k in range(n):
        end, code = runs[ENDS + 1, k], runs[CODES + 1, k]
        i, mode = code >> MODE_BITS, code & ALL_MODES
        if end <= then and not at_once:
            val[i] = 0
            gone += 1
            for r in range(p.capacity.shape[0]):
                m.free[1, r] += p.mode[i, mode, 1 + r]
        else:
            val[i] = (mode + 1) << MODE | end
            runs[ENDS + 1, k - gone], runs[CODES + 1, k - gone] = end, code
    return n - gone


def keep(p: Arrays, m: Memory, bound: int, then: int, row: int, first: int) -> None:
    """Make a record of the child, unless it is dominated, and queue it."""
    val, pool, tally = m.mine[CHILD], m.pool, m.tally
    new, last, started, ended = tally[COUNT], pool.shape[1] - 1, 0, 0
    pool[new, BOUND], pool[new, NOW], pool[new, PARENT], pool[new, STEPS] = bound, then, row, tally[DEPTH]
    for d in range(tally[DEPTH]):
        at = last - d // PER_WORD
        pool[new, at] = (d % PER_WORD > 0) * pool[new, at] << CODE_BITS | m.mine[STACK, d]
    for i in range(p.op.shape[0]):
        started += val[i] < WAITING
        ended += val[i] == 0
    if ended == p.op.shape[0]:
        tally[UPPER], tally[BEST] = then, new
        pool[new, HASH], pool[new, RUNS], pool[new, FIRST] = -1, -1, 0
        tally[COUNT] += 1
        return
    if first == 0:
        canonical(p, m)
    pack(p, m, new, first)
    if dominated(p, m, new):
        return
    tally[COUNT] += 1
    if ended == tally[LEVEL] or tally[LEVEL] < 0:
        push(m, bound << 8 | (255 - min(started, 255)), new)
    else:
        pool[new, LINK], m.level[ended] = m.level[ended], new


def close(p: Arrays, m: Memory, row: int, ready: int, first: int) -> None:
    """Make the child of the operators chosen so far: at the next end, or where `first` is an operator from which
    on more of them may be chosen, still at the same moment."""
    now, n = m.pool[row, NOW], start_chosen(p, m, row)
    then = now if first else m.runs[ENDS + 1, 0]
    for i in range(p.op.shape[0]):
        m.mine[CHILD, i] = m.mine[VAL, i]
    if then > now and shifted(p, m, now, then, ready):
        return
    n = settle(p, m, then, n, first > 0)
    bound = max(m.pool[row, BOUND], estimate(p, m, then, n))
    if bound < m.tally[UPPER]:
        keep(p, m, bound, then, row, first)


def expand(p: Arrays, m: Memory, row: int, window: int) -> None:
    """Make every child of a state; of many ready operators, only some are chosen from at once."""
    ready, now, first = unpack(p, m, row), m.pool[row, NOW], m.pool[row, FIRST]
    start = 0
    while start < ready and m.mine[READY, start] < first:
        start += 1
    stop = min(ready, start + window)
    later = m.mine[READY, stop] if stop < ready else 0
    k, mode, fresh = start, 0, True
    while True:
        depth = m.tally[DEPTH]
        if fresh:
            idle = 1 if depth == 0 and (first > 0 or m.pool[row, RUNS] == 0) else 0
            for kind in range(idle, 2):
                if kind == 0 or later:
                    close(p, m, row, ready, kind * later)
            fresh = False
        if k == stop:
            if depth == 0:
                return
            m.tally[DEPTH] = depth - 1
            i, mode = m.mine[STACK, depth - 1] >> MODE_BITS, m.mine[STACK, depth - 1] & ALL_MODES
            k = m.mine[PLACE, depth - 1]
            m.mine[CHOSEN, k] = 0
            for r in range(p.capacity.shape[0]):
                m.free[0, r] += p.mode[i, mode, 1 + r]
            mode += 1
            continue
        i, need = m.mine[READY, k], m.mine[NEED, k]
        if mode == p.mode.shape[1] or (need >= 0 and not m.mine[CHOSEN, need]):
            k, mode = k + 1, 0
        elif (
            (m.mine[VAL, i] >> mode) & 1
            and fits(p, m, i, mode)
            and now + p.mode[i, mode, 0] + p.op[i, TAIL] < m.tally[UPPER]
        ):
            m.mine[STACK, depth], m.mine[PLACE, depth], m.mine[CHOSEN, k] = i << MODE_BITS | mode, k, 1
            m.tally[DEPTH] = depth + 1
            for r in range(p.capacity.shape[0]):
                m.free[0, r] -= p.mode[i, mode, 1 + r]
            k, mode, fresh = k + 1, 0, True
        else:
            mode += 1


def search(p: Arrays, m: Memory, window: int, width: int, budget: int) -> int:
    """Expand states until `SPENT` reaches `budget`: those with the least bound, until none is below `UPPER` and
    `CUTOFF`; or with a `width`, only so many for every number of ended operators."""
    tally, pool = m.tally, m.pool
    room = pool.shape[0] - 2 * (p.mode.shape[1] + 1) ** window - 1
    while True:
        if tally[HEAPED] == 0 or 0 < width == tally[TAKEN]:
            if width == 0 or tally[LEVEL] == p.op.shape[0]:
                return DONE
            tally[HEAPED] = tally[TAKEN] = 0
            row = m.level[tally[LEVEL] + 1]
            tally[LEVEL] += 1
            while row >= 0:
                push(m, pool[row, BOUND] << 8, row)
                row = pool[row, LINK]
            continue
        if width == 0 and m.heap[0, 0] >> 8 >= min(tally[UPPER], tally[CUTOFF]):
            return DONE
        if tally[COUNT] > room:
            return ROOM
        if tally[SPENT] >= budget:
            return BUDGET
        row = pop(m)
        if pool[row, BOUND] < tally[UPPER]:
            tally[SPENT] += 1
            tally[TAKEN] += width > 0
            expand(p, m, row, window)
