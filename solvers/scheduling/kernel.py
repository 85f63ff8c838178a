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
    CODES,
    CODE_BITS,
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
    m.count[DEPTH] = 0
    return count


def start_chosen(p: Arrays, m: Memory, row: int) -> int:
    """Running (by end) and work left once the chosen operators have started; how many run."""
    runs, n = m.runs, m.pool[row, RUNS]
    for k in range(n):
        runs[ENDS + 1, k], runs[CODES + 1, k] = runs[ENDS, k], runs[CODES, k]
    for r in range(p.work.shape[0]):
        m.left[1, r] = m.left[0, r]
    for d in range(m.count[DEPTH]):
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


def close(p: Arrays, m: Memory, row: int, ready: int, first: int) -> None:
    """Make the child of the operators chosen so far: at the next end, or where `first` is an operator from which
    on more of them may be chosen, still at the same moment."""
    val, pool, count = m.mine[CHILD], m.pool, m.count
    now = pool[row, NOW]
    n, depth = start_chosen(p, m, row), count[DEPTH]
    then = now if first else m.runs[ENDS + 1, 0]
    for i in range(p.op.shape[0]):
        val[i] = m.mine[VAL, i]
    if then > now and shifted(p, m, now, then, ready):
        return
    for r in range(p.capacity.shape[0]):
        m.free[1, r] = m.free[0, r]
    gone = started = ended = 0
    for k in range(n):
        end, code = m.runs[ENDS + 1, k], m.runs[CODES + 1, k]
        i, mode = code >> MODE_BITS, code & ALL_MODES
        if end <= then and not first:
            val[i] = 0
            gone += 1
            for r in range(p.capacity.shape[0]):
                m.free[1, r] += p.mode[i, mode, 1 + r]
        else:
            val[i] = (mode + 1) << MODE | end
            m.runs[ENDS + 1, k - gone], m.runs[CODES + 1, k - gone] = end, code
    for i in range(p.op.shape[0]):
        started += val[i] < WAITING
        ended += val[i] == 0
    full = ended == p.op.shape[0]
    bound = then if full else max(pool[row, BOUND], estimate(p, m, then, n - gone))
    if bound >= count[UPPER]:
        return
    new = count[COUNT]
    pool[new, BOUND], pool[new, NOW], pool[new, PARENT], pool[new, STEPS] = bound, then, row, depth
    at = pool.shape[1] - 1
    for d in range(depth):
        pool[new, at - d // PER_WORD] = (d % PER_WORD > 0) * pool[new, at - d // PER_WORD] << CODE_BITS
        pool[new, at - d // PER_WORD] |= m.mine[STACK, d]
    if full:
        count[UPPER], count[BEST] = then, new
        pool[new, HASH], pool[new, RUNS], pool[new, FIRST] = -1, -1, 0
        count[COUNT] += 1
        return
    if not first:
        canonical(p, m)
    pack(p, m, new, first)
    if not dominated(p, m, new):
        count[COUNT] += 1
        if ended == count[LEVEL] or count[LEVEL] < 0:
            push(m, bound << 8 | (255 - min(started, 255)), new)
        else:
            pool[new, LINK], m.level[ended] = m.level[ended], new


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
        depth = m.count[DEPTH]
        if fresh:
            idle = 1 if depth == 0 and (first > 0 or m.pool[row, RUNS] == 0) else 0
            for kind in range(idle, 2):
                if kind == 0 or later:
                    close(p, m, row, ready, kind * later)
            fresh = False
        if k == stop:
            if depth == 0:
                return
            m.count[DEPTH] = depth - 1
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
            and now + p.mode[i, mode, 0] + p.op[i, TAIL] < m.count[UPPER]
        ):
            m.mine[STACK, depth], m.mine[PLACE, depth], m.mine[CHOSEN, k] = i << MODE_BITS | mode, k, 1
            m.count[DEPTH] = depth + 1
            for r in range(p.capacity.shape[0]):
                m.free[0, r] -= p.mode[i, mode, 1 + r]
            k, mode, fresh = k + 1, 0, True
        else:
            mode += 1


def search(p: Arrays, m: Memory, window: int, width: int, budget: int) -> int:
    """Expand states until `SPENT` reaches `budget`: those with the least bound, until none is below `UPPER` and
    `CUTOFF`; or with a `width`, only so many for every number of ended operators."""
    count, pool = m.count, m.pool
    room = pool.shape[0] - 2 * (p.mode.shape[1] + 1) ** window - 1
    while True:
        if count[HEAPED] == 0 or 0 < width == count[TAKEN]:
            if width == 0 or count[LEVEL] == p.op.shape[0]:
                return DONE
            count[HEAPED] = count[TAKEN] = 0
            row = m.level[count[LEVEL] + 1]
            count[LEVEL] += 1
            while row >= 0:
                push(m, pool[row, BOUND] << 8, row)
                row = pool[row, LINK]
            continue
        if width == 0 and m.heap[0, 0] >> 8 >= min(count[UPPER], count[CUTOFF]):
            return DONE
        if count[COUNT] > room:
            return ROOM
        if count[SPENT] >= budget:
            return BUDGET
        row = pop(m)
        if pool[row, BOUND] < count[UPPER]:
            count[SPENT] += 1
            count[TAKEN] += width > 0
            expand(p, m, row, window)
