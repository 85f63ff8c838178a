"""Inner loop of the local search, written for compilation: serial schedule generation and random moves.

Operators are numbered in topological order. A schedule is made from an order and modes: one operator after another
starts at the first moment from which on all it needs stays free. Making it once more from the end backwards, last
operator first, and then forwards again closes gaps (justification), and never makes it longer.
"""

from __future__ import annotations

from typing import NamedTuple

from phaze.solvers.arrays import Floats, Integers

NOW, TRIAL, BEST = range(3)
"""Rows of orders and modes: the accepted ones, the ones tried, the best."""

FORWARD, BACKWARD, KEPT = range(3)
"""Rows of starts: of the trial, of the trial mirrored, of the best."""

LEHMER, MODULUS = 48271, (1 << 31) - 1
"""The minimal standard random numbers: the same compiled or not, on any machine."""


HOPELESS = 1.04
"""How many times the length that is accepted a trial may take before it is justified."""


class Graph(NamedTuple):
    """Latency (O, M), demand (O, M, R), modes per operator (O,), capacity (R,), and neighbours in two lists:
    those of operator i are `near[first[i] : first[i + 1]]`, predecessors (row 0) or successors (row 1)."""

    latency: Floats
    demand: Integers
    modes: Integers
    capacity: Integers
    first: Integers
    near: Integers


class Work(NamedTuple):
    """Orders, modes and starts (3, O), lengths (3,), the profile (moments, and what is used from each on), and the
    random state."""

    order: Integers
    mode: Integers
    start: Floats
    length: Floats
    moment: Floats
    used: Integers
    random: Integers


def draw(w: Work, below: int) -> int:
    """A random number from 0 to below - 1."""
    w.random[0] = w.random[0] * LEHMER % MODULUS
    return int(w.random[0] * below // MODULUS)


def free_from(g: Graph, w: Work, i: int, mode: int, segment: int) -> bool:
    """Whether an operator finds what it needs in a segment of the profile."""
    for r in range(g.capacity.shape[0]):
        if w.used[segment, r] + g.demand[i, mode, r] > g.capacity[r]:
            return False
    return True


def split(w: Work, count: int, segment: int, moment: float) -> int:
    """Cut a segment at a moment inside it; the number of segments."""
    for k in range(count, segment, -1):
        w.moment[k] = w.moment[k - 1]
        for r in range(w.used.shape[1]):
            w.used[k, r] = w.used[k - 1, r]
    w.moment[segment + 1] = moment
    return count + 1


def place(g: Graph, w: Work, count: int, i: int, mode: int, ready: float) -> tuple[float, int]:
    """Start an operator at the first moment from `ready` on; that moment and the number of segments."""
    first = count - 1
    while w.moment[first] > ready:
        first -= 1
    start, last = ready, first
    while True:
        if not free_from(g, w, i, mode, last):
            first = last = last + 1
            start = w.moment[first]
        elif last + 1 < count and w.moment[last + 1] < start + g.latency[i, mode]:
            last += 1
        else:
            break
    if w.moment[first] < start:
        count = split(w, count, first, start)
        first, last = first + 1, last + 1
    end = start + g.latency[i, mode]
    if last + 1 == count or w.moment[last + 1] > end:
        count = split(w, count, last, end)
    for k in range(first, last + 1):
        for r in range(w.used.shape[1]):
            w.used[k, r] += g.demand[i, mode, r]
    return start, count


def generate(g: Graph, w: Work, way: int) -> float:
    """Place the operators of the trial in its order; forwards, or backwards on a mirrored clock."""
    count, length = 1, 0.0
    w.moment[0] = 0.0
    for r in range(w.used.shape[1]):
        w.used[0, r] = 0
    for k in range(w.order.shape[1]):
        i = w.order[TRIAL, k]
        mode, ready = w.mode[TRIAL, i], 0.0
        for e in range(g.first[way, i], g.first[way, i + 1]):
            j = g.near[way, e]
            ready = max(ready, w.start[way, j] + g.latency[j, w.mode[TRIAL, j]])
        if g.latency[i, mode] > 0.0:
            ready, count = place(g, w, count, i, mode, ready)
        w.start[way, i] = ready
        length = max(length, ready + g.latency[i, mode])
    return length


def sort(g: Graph, w: Work, way: int, turned: bool) -> None:
    """Put the trial in the order of its starts, or turned, by its ends, the last first.

    Of equal ones the topologically first (mirrored or turned: last) comes first, so that operators without duration
    stay behind their predecessors.
    """
    size = g.modes.shape[0]
    for k in range(size):
        i = k if turned == (way == BACKWARD) else size - 1 - k
        key, at = end(g, w, way, i, turned), k
        while at > 0 and end(g, w, way, w.order[TRIAL, at - 1], turned) > key:
            w.order[TRIAL, at] = w.order[TRIAL, at - 1]
            at -= 1
        w.order[TRIAL, at] = i


def end(g: Graph, w: Work, way: int, i: int, turned: bool) -> float:
    """Key of an operator: its start, or turned, how long before time zero it would end on a mirrored clock."""
    start = float(w.start[way, i])
    return -start - float(g.latency[i, w.mode[TRIAL, i]]) if turned else start


def evaluate(g: Graph, w: Work, most: float) -> float:
    """Length of the justified schedule of the trial; leaves the trial in the order of its starts.

    A trial that is longer than `most` as it is is not justified: what it would be shortened by hardly suffices.
    """
    length = generate(g, w, FORWARD)
    if length > most:
        return length
    while True:
        sort(g, w, FORWARD, True)
        generate(g, w, BACKWARD)
        sort(g, w, BACKWARD, True)
        again = generate(g, w, FORWARD)
        if again >= length * (1.0 - 1e-12):
            break
        length = again
    sort(g, w, FORWARD, False)
    return again


def change_mode(g: Graph, w: Work, choice: Integers) -> None:
    """Run an operator of the choice in another mode."""
    i = choice[draw(w, choice.shape[0])]
    w.mode[TRIAL, i] = (w.mode[TRIAL, i] + 1 + draw(w, g.modes[i] - 1)) % g.modes[i]


def shift(g: Graph, w: Work) -> None:
    """Move an operator to another place of the order, between its predecessors and its successors."""
    here = draw(w, g.modes.shape[0])
    i = w.order[TRIAL, here]
    low, high = here, here
    while low > 0 and not near(g, 0, i, w.order[TRIAL, low - 1]):
        low -= 1
    while high < g.modes.shape[0] - 1 and not near(g, 1, i, w.order[TRIAL, high + 1]):
        high += 1
    there = low + draw(w, high - low + 1)
    while here != there:
        step = 1 if there > here else -1
        w.order[TRIAL, here] = w.order[TRIAL, here + step]
        here += step
    w.order[TRIAL, here] = i


def near(g: Graph, way: int, i: int, other: int) -> bool:
    """Whether the other is a direct predecessor (0) or successor (1)."""
    for e in range(g.first[way, i], g.first[way, i + 1]):
        if g.near[way, e] == other:
            return True
    return False


def copy(w: Work, source: int, target: int) -> None:
    """Copy order, modes and starts from one row to another."""
    for k in range(w.order.shape[1]):
        w.order[target, k] = w.order[source, k]
        w.mode[target, k] = w.mode[source, k]


def judge(g: Graph, w: Work, slack: float) -> None:
    """Evaluate the trial; accept it if it is not worse by more than the slack, keep it if it is the best."""
    found = evaluate(g, w, (w.length[NOW] + slack) * HOPELESS)
    if found <= w.length[NOW] + slack:
        w.length[NOW] = found
        copy(w, TRIAL, NOW)
    if found < w.length[BEST] * (1.0 - 1e-12):
        w.length[BEST] = found
        copy(w, TRIAL, BEST)
        for k in range(w.order.shape[1]):
            w.start[KEPT, k] = w.start[FORWARD, k]


def anneal(g: Graph, w: Work, choice: Integers, tries: int, heat: float) -> None:
    """Random moves from the accepted order and modes; may accept what is worse by up to `heat` times the best."""
    for _ in range(tries):
        copy(w, NOW, TRIAL)
        kind = draw(w, 20)
        if kind < 10 and choice.shape[0]:
            change_mode(g, w, choice)
        if kind < 3 and choice.shape[0]:
            change_mode(g, w, choice)
        if kind >= 5:
            shift(g, w)
        judge(g, w, w.length[BEST] * heat * draw(w, MODULUS) / MODULUS)
