"""One state of the compact search, written for compilation: order, bound, record, dominance.

Plain arrays, scalars and loops. The same functions run uncompiled, only slower, and then do the same.

While a state is worked on, `val` holds one number per operator: 0 for ended; `mode + 1 << MODE | end tick` for
running; from `WAITING` on for not started, with one bit for every mode in which it may still start now. So
operators sort by progress, and among the waiting the more restricted come first.
"""

from __future__ import annotations

from math import inf

from ...arrays import Integers
from ..phases.kernel_phases import resumed
from .kernel_arrays import (
    ALL_MODES,
    BLOCKS,
    BOUND,
    CHILD,
    CODE_BITS,
    CODES,
    CORE_TAIL,
    DEAD,
    END,
    ENDS,
    FIRST,
    FIRST_PRED,
    FORCED,
    HASH,
    HEAD,
    HEAPED,
    LABEL,
    LAST_PRED,
    MODE,
    MODE_BITS,
    NEXT,
    NOW,
    ORDER,
    PLAIN,
    RUNS,
    TAIL,
    UPPER,
    WAITING,
    WORD,
    Arrays,
    Memory,
)
from .state_space import NEVER

_MASK = (1 << 31) - 1


def mix(h: int, word: int) -> int:
    """One step of a hash; nothing overflows, so that compiled and plain code agree."""
    h = ((h ^ word ^ (word >> 32)) & _MASK) * 0x5BD1E995
    return h ^ (h >> 29)


def push(m: Memory, key: int, row: int) -> None:
    """Add an entry to the heap; equal keys leave it in the order of rows."""
    heap, at = m.heap, m.tally[HEAPED]
    m.tally[HEAPED] += 1
    while at > 0:
        up = (at - 1) >> 1
        if heap[up, 0] < key or (heap[up, 0] == key and heap[up, 1] < row):
            break
        heap[at, 0], heap[at, 1] = heap[up, 0], heap[up, 1]
        at = up
    heap[at, 0], heap[at, 1] = key, row


def pop(m: Memory) -> int:
    """Take the row with the least key off the heap."""
    heap = m.heap
    top: int = heap[0, 1]
    m.tally[HEAPED] -= 1
    n = m.tally[HEAPED]
    key, row = heap[n, 0], heap[n, 1]
    at, kid = 0, 1
    while kid < n:
        if kid + 1 < n:
            a, b = heap[kid, 0], heap[kid + 1, 0]
            kid += b < a or (b == a and heap[kid + 1, 1] < heap[kid, 1])
        if heap[kid, 0] > key or (heap[kid, 0] == key and heap[kid, 1] > row):
            break
        heap[at, 0], heap[at, 1] = heap[kid, 0], heap[kid, 1]
        at, kid = kid, 2 * kid + 1
    heap[at, 0], heap[at, 1] = key, row
    return top


def released(p: Arrays, val: Integers, i: int) -> bool:
    """Whether every predecessor has ended."""
    for e in range(p.op[i, FIRST_PRED], p.op[i, LAST_PRED]):
        if val[p.pred[e]] != 0:
            return False
    return True


def canonical(p: Arrays, m: Memory) -> None:
    """Sort interchangeable branches whose first operator is released by progress; labels move along."""
    val, label, order = m.mine[CHILD], m.mine[LABEL], m.mine[ORDER]
    for c in range(p.classes.shape[0]):
        length, count = p.classes[c, 2], 0
        for b in range(p.classes[c, 1]):
            here = p.classes[c, 0] + b * length
            root = p.twins[here]
            if val[root] >= WAITING and not released(p, val, root):
                continue
            order[count] = here
            for k in range(count, 0, -1):
                x, y = order[k - 1], order[k]
                at = 0
                while at < length - 1 and val[p.twins[x + at]] == val[p.twins[y + at]]:
                    at += 1
                if val[p.twins[x + at]] <= val[p.twins[y + at]]:
                    break
                for at in range(length):
                    i, j = p.twins[x + at], p.twins[y + at]
                    val[i], val[j] = val[j], val[i]
                    label[i], label[j] = label[j], label[i]
            count += 1


def fits(p: Arrays, m: Memory, i: int, mode: int) -> bool:
    """Whether a mode that is not struck out finds all it demands free."""
    if p.mode[i, mode, 0] == NEVER:
        return False
    for r in range(m.free.shape[1]):
        if p.mode[i, mode, 1 + r] > m.free[0, r]:
            return False
    return True


def earliest_end(p: Arrays, m: Memory, i: int, begin: int, n: int) -> int:
    """Least end over the modes of an operator that may start from `begin` on, if nothing else starts."""
    best = NEVER
    for mode in range(p.mode.shape[1]):
        at = begin
        if p.mode[i, mode, 0] >= best - begin:
            continue
        for r in range(m.free.shape[1]):
            need = p.mode[i, mode, 1 + r] - m.free[1, r]
            k = 0
            while need > 0 and k < n:
                code = m.runs[CODES + 1, k]
                need -= p.mode[code >> MODE_BITS, code & ALL_MODES, 1 + r]
                at = max(at, m.runs[ENDS + 1, k])
                k += 1
        best = min(best, at + p.mode[i, mode, 0])
    return best


def estimate(p: Arrays, m: Memory, now: int, n: int) -> int:
    """Least makespan of any completion of the child, which has n running: work, then paths.

    Stops early where the incumbent is met.
    """
    val, upper = m.mine[CHILD], m.tally[UPPER]
    best, core, serial = now, -1, 0
    for r in range(p.work.shape[0]):
        total = 0.0
        for k in range(n):
            code = m.runs[CODES + 1, k]
            total += (m.runs[ENDS + 1, k] - now) * p.share[r, code >> MODE_BITS, code & ALL_MODES]
        best = max(best, now + m.left[1, r] + int(total))
    for k in range(n):
        i, end = m.runs[CODES + 1, k] >> MODE_BITS, m.runs[ENDS + 1, k]
        best = max(best, end + p.op[i, TAIL])
        if p.op[i, BLOCKS]:
            core = max(core, end + p.op[i, CORE_TAIL])
    for i in range(p.op.shape[0]):
        if best >= upper:
            return best
        if val[i] < WAITING:
            continue
        serial += p.op[i, FORCED]
        begin = now
        for e in range(p.op[i, FIRST_PRED], p.op[i, LAST_PRED]):
            v = val[p.pred[e]]
            if v >= WAITING:
                begin = -1
                break
            begin = max(begin, v & END)
        if begin >= 0:
            best = max(best, earliest_end(p, m, i, begin, n) + p.op[i, TAIL])
            core = max(core, now + p.op[i, PLAIN] + p.op[i, CORE_TAIL])
    best = max(best, core + serial) if core >= 0 else best
    return max(best, in_phases(p, m, now, n)) if best < upper else best


def in_phases(p: Arrays, m: Memory, now: int, n: int) -> int:
    """Least makespan of any completion of the child, seen as phases; 0 where nothing is known of them."""
    val, started, until = m.mine[CHILD], 0, 0.0
    for i in range(p.phases.beside.shape[0]):
        if val[i] < WAITING:
            started |= 1 << i
            m.table.delay[i] = 0.0
    if started == 0:
        return 0
    for k in range(n):
        i, left = m.runs[CODES + 1, k] >> MODE_BITS, float(m.runs[ENDS + 1, k] - now)
        m.table.delay[i] = left
        if p.op[i, BLOCKS]:
            until = max(until, left)
    found = resumed(p.phases, m.table, started, until)
    return now + int(found) if 0.0 <= found < inf else 0 if found < 0.0 else NEVER


def pack(p: Arrays, m: Memory, row: int, first: int) -> None:
    """Write what the child's `val` says, and its hash, into a record."""
    pool, val = m.pool, m.mine[CHILD]
    size, modes = p.mode.shape[0], p.mode.shape[1]
    words = (size + WORD - 1) // WORD
    late, runs = HEAD + words, HEAD + words * (1 + modes)
    for w in range(HEAD, runs):
        pool[row, w] = 0
    h, n = first + 1, 0
    for i in range(size):
        v, w, bit = val[i], i // WORD, 1 << (i % WORD)
        if v >= WAITING:
            for mode in range(modes):
                if not (v >> mode) & 1:
                    pool[row, late + mode * words + w] |= bit
            continue
        pool[row, HEAD + w] |= bit
        if v != 0:
            code = i << MODE_BITS | (v >> MODE) - 1
            pool[row, runs + n] = (v & END) << CODE_BITS | code
            n += 1
            h = mix(h, code)
    for w in range(HEAD, late):
        h = mix(h, pool[row, w])
    pool[row, HASH], pool[row, RUNS], pool[row, FIRST] = h, n, first


def compare(p: Arrays, m: Memory, a: int, b: int) -> int:
    """Of two states: 1 if a reaches everything that b does, no later; else 2 if b does of a; else 0."""
    pool = m.pool
    if pool[a, HASH] != pool[b, HASH] or pool[a, RUNS] != pool[b, RUNS] or pool[a, FIRST] != pool[b, FIRST]:
        return 0
    words = (p.mode.shape[0] + WORD - 1) // WORD
    late, runs = HEAD + words, HEAD + words * (1 + p.mode.shape[1])
    for w in range(HEAD, late):
        if pool[a, w] != pool[b, w]:
            return 0
    better, worse = pool[a, NOW] <= pool[b, NOW], pool[a, NOW] >= pool[b, NOW]
    for k in range(runs, runs + pool[a, RUNS]):
        x, y = pool[a, k], pool[b, k]
        if (x ^ y) & ((1 << CODE_BITS) - 1):
            return 0
        better, worse = better and x <= y, worse and x >= y
    for w in range(late, runs):
        x, y = pool[a, w], pool[b, w]
        better, worse = better and x & ~y == 0, worse and y & ~x == 0
    return 1 if better else 2 * worse


def dominated(p: Arrays, m: Memory, row: int) -> bool:
    """Whether a state met before makes the one at `row` needless; if not, links it in instead of worse ones."""
    pool = m.pool
    slot = pool[row, HASH] & (m.heads.shape[0] - 1)
    other, before = m.heads[slot], -1
    while other >= 0:
        after = pool[other, NEXT]
        found = compare(p, m, other, row)
        if found == 1:
            return True
        if found == 0:
            before = other
        else:
            pool[other, BOUND] = DEAD
            if before < 0:
                m.heads[slot] = after
            else:
                pool[before, NEXT] = after
        other = after
    pool[row, NEXT] = m.heads[slot]
    m.heads[slot] = row
    return False
