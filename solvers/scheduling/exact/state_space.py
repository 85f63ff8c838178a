"""State-space search over the moments at which operators end.

A state holds the finished and the running operators. Core-parallel operators block everything, so narrow
graphs
have few states. Times are whole ticks, so that equal states compare equal whatever the order of additions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from ..indexed_problem import Core, IndexedProblem
from ..schedule_bounds import Bounds
from ..schedule_plan import core_choices

TICKS = 1 << 46
"""Ticks in the incumbent's makespan: rounding stays below 1e-12 of it, sums stay exact in an int."""

NEVER = 1 << 60
"""A duration no schedule can afford."""

FIELD = 44
"""Bits of one packed resource, above any number of cores and the parts of a bandwidth."""

Running = tuple[int, int, int, tuple[Core, ...]]
"""End tick, operator, mode, and the cores it holds where pairs matter."""


@dataclass(slots=True)
class State:
    """One moment: what has ended, what runs, what may no longer start now, and how we came here.

    `late` has bit i + n m where operator i of n could have started before in mode m.
    `left` is the work not yet started: serial core time of the forced operators, then one entry per
    weighting.
    """

    bound: int
    now: int
    done: int
    started: int
    running: tuple[Running, ...]
    late: int
    left: tuple[int, ...]
    parent: State | None
    steps: tuple[Running, ...] = ()


class _Choice(NamedTuple):
    """Operators chosen to start at one moment: mask of all started, free cores (packed), and the new ones."""

    started: int
    free: int
    steps: tuple[Running, ...]


class StateSpace:
    """Successors, bounds and dominance of states; only states that can beat `upper` ticks exist."""

    def __init__(self, ix: IndexedProblem, bounds: Bounds, upper_s: float) -> None:
        """Turn seconds into ticks; `upper_s` is the makespan of the incumbent."""
        self.ix = ix
        self.scale = TICKS / upper_s
        self.upper = TICKS
        self.latency = [[self._ticks(value) for value in row] for row in bounds.latency]
        self.shortest = [min(row) for row in self.latency]
        self.alive = [[m for m, value in enumerate(row) if value < NEVER] for row in self.latency]
        self.tails = [self._floor(value) for value in bounds.tails]
        self.core_tails = [self._floor(value) for value in bounds.core_tails]
        self.forced = [self._floor(value) for value in bounds.forced_s]
        self.plain = [
            0 if f or not c else s for f, c, s in zip(self.forced, ix.core, self.shortest, strict=True)
        ]
        self._pack_demands()
        self._set_work(bounds)
        self.full = (1 << ix.size) - 1
        self.uncontended = self._uncontended()
        self.seen: dict[tuple[object, ...], list[tuple[tuple[int, ...], int]]] = {}

    def _pack_demands(self) -> None:
        """Demands as fields of one int, each below a guard bit: one subtraction tests them all."""
        ix = self.ix
        self.capacity = _packed(ix.capacity)
        self.guard = sum(1 << FIELD * u + FIELD - 1 for u in range(len(ix.capacity)))
        self.demand = [[_packed(mode.demand) for mode in row] for row in ix.modes]

    def _set_work(self, bounds: Bounds) -> None:
        """Work in ticks per weighting and operator, and what a mode does of it per tick."""
        self.work = [[self._floor(value) for value in row] for row in bounds.work.tolist()]
        self.share: list[list[list[float]]] = bounds.share.tolist()

    def _uncontended(self) -> int:
        """Operators off the blocked units that no incomparable operator competes with: they start at once."""
        ix, mask = self.ix, 0
        if ix.problem.bandwidth is not None:
            return mask
        for i in range(ix.size):
            rivals = [
                j for j in range(ix.size) if j != i and not ((ix.ancestors[i] | ix.descendants[i]) >> j & 1)
            ]
            if not ix.core[i] and all(set(ix.units[i]).isdisjoint(ix.units[j]) for j in rivals):
                mask |= 1 << i
        return mask

    def _ticks(self, value: float) -> int:
        return NEVER if value == inf else round(value * self.scale)

    def _floor(self, value: float) -> int:
        return int(value * self.scale * (1.0 - 1e-13))

    def root(self) -> State:
        """Nothing started."""
        left = (sum(self.forced), *(sum(row) for row in self.work))
        return State(self.bound(0, 0, (), left), 0, 0, 0, (), 0, left, None)

    def bound(self, now: int, started: int, running: tuple[Running, ...], left: tuple[int, ...]) -> int:
        """Least makespan of any completion: paths, paths beside the forced operators, work.

        Forced operators may run while a path waits for an unblocked unit, so the second kind counts only
        time on cores.
        """
        preds, rest = self.ix.preds, self.full & ~started
        best, core = now, -1
        for i in range(self.ix.size):
            if not rest >> i & 1 or preds[i] & rest:
                continue
            begin = now
            for end, j, _, _ in running:
                if end > begin and preds[i] >> j & 1:
                    begin = end
            best = max(best, begin + self.shortest[i] + self.tails[i])
            core = max(core, now + self.plain[i] + self.core_tails[i])
        for end, i, _, _ in running:
            best = max(best, end + self.tails[i])
            if self.ix.core[i]:
                core = max(core, end + self.core_tails[i])
        if core >= 0:
            best = max(best, core + left[0])
        for r, share in enumerate(self.share):
            total = now + left[r + 1]
            for end, i, mode, _ in running:
                total += int((end - now) * share[i][mode])
            best = max(best, total)
        return best

    def dominated(self, state: State) -> bool:
        """Whether a state met before reaches everything this one does, no later; remembers it otherwise."""
        key = (
            state.started,
            *((i, mode, self._place(state, cores)) for _, i, mode, cores in state.running),
        )
        ends = (state.now, *(entry[0] for entry in state.running))
        met = self.seen.setdefault(key, [])
        for other, late in met:
            if not late & ~state.late and all(a <= b for a, b in zip(other, ends, strict=True)):
                return True
        met[:] = [
            (other, late)
            for other, late in met
            if state.late & ~late or not all(a <= b for a, b in zip(ends, other, strict=True))
        ]
        met.append((ends, state.late))
        return False

    def _place(self, state: State, cores: tuple[Core, ...]) -> object:
        """Cores of a running operator, as far as they matter: unpaired, or whom it shares its pair with."""
        if self.ix.pair is None or len(cores) != 1 or cores[0][0] not in self.ix.pair:
            return None
        number = cores[0][1]
        if number >= min(self.ix.capacity[u] for u in self.ix.pair):
            return -1
        return tuple(
            i for _, i, _, held in state.running if any(k == number for u, k in held if u in self.ix.pair)
        )

    def children(self, state: State) -> Iterator[State]:
        """Every choice of operators to start now, followed to the next moment at which something ends."""
        ix = self.ix
        ready = [i for i in range(ix.size) if not state.started >> i & 1 and not ix.preds[i] & ~state.done]
        free = self.capacity
        for _, i, mode, _ in state.running:
            free -= self.demand[i][mode]
        yield from self._start(state, ready, 0, _Choice(state.started, free, ()))

    def _start(self, state: State, ready: list[int], first: int, chosen: _Choice) -> Iterator[State]:
        """Start nothing more, or one more of `ready[first:]` (in this order, so that no set comes twice)."""
        started, free, steps = chosen
        if steps or state.running:
            child = self._advance(state, ready, chosen)
            if child is not None:
                yield child
        for position in range(first, len(ready)):
            i = ready[position]
            for entry in self._modes(i, state, free, steps):
                if entry[0] + self.tails[i] < self.upper:
                    choice = _Choice(started | 1 << i, free - self.demand[i][entry[2]], (*steps, entry))
                    yield from self._start(state, ready, position + 1, choice)

    def _modes(self, i: int, state: State, free: int, steps: tuple[Running, ...]) -> Iterator[Running]:
        """Every way in which an operator can start now."""
        for m in self.alive[i]:
            if state.late >> (i + self.ix.size * m) & 1 or not self._fits(i, m, free):
                continue
            end = state.now + self.latency[i][m]
            if self.ix.pair is None or self.ix.whole[i][m]:
                yield (end, i, m, ())
            else:
                busy = {core for entry in (*state.running, *steps) for core in entry[3]}
                for cores in core_choices(self.ix, i, busy):
                    yield (end, i, m, cores)

    def _fits(self, i: int, mode: int, free: int) -> bool:
        """Whether enough of every resource is free: no field of the difference borrows."""
        return (free | self.guard) - self.demand[i][mode] & self.guard == self.guard

    def _advance(self, state: State, ready: list[int], chosen: _Choice) -> State | None:
        """The state at the next end, None where a left shift, the bound or dominance rules it out."""
        started, free, steps = chosen
        running = state.running + steps
        then = min(running)[0]
        late = state.late
        if self.ix.pair is None and then > state.now:
            shifted = self._shifted(state.now, then, [i for i in ready if not started >> i & 1], free)
            if shifted is None:
                return None
            late = shifted
        done = state.done
        rest = []
        for entry in running:
            if entry[0] <= then:
                done |= 1 << entry[1]
            else:
                rest.append(entry)
        steady = tuple(sorted(rest, key=lambda entry: entry[1]))
        left = tuple(
            total - sum(row[entry[1]] for entry in steps)
            for total, row in zip(state.left, (self.forced, *self.work), strict=True)
        )
        bound = max(state.bound, self.bound(then, started, steady, left))
        if bound >= self.upper:
            return None
        child = State(bound, then, done, started, steady, late, left, state, steps)
        return None if self.dominated(child) else child

    def _shifted(self, now: int, then: int, waiting: list[int], free: int) -> int | None:
        """Modes that could have started now and therefore need not start `then`.

        None where an operator could even have finished, or has nothing to wait for: not starting it gains
        nothing.
        """
        late = 0
        for i in waiting:
            for m in self.alive[i]:
                if self._fits(i, m, free):
                    if self.uncontended >> i & 1 or now + self.latency[i][m] <= then:
                        return None
                    late |= 1 << (i + self.ix.size * m)
        return late


def _packed(demand: Sequence[int]) -> int:
    return sum(held << FIELD * u for u, held in enumerate(demand))
