"""The optimum of a small problem by exhaustion: every mode, every order, every moment worth starting at.

An optimal schedule exists in which every operator starts at 0 or when another one ends, so it is enough to decide,
at each such moment, which of the ready operators start, one after the other. Cores are counted; where they are
paired, operators hold a pair or an unpaired core. Times are whole ticks. Nothing here is shared with the solvers.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

TICKS = 1 << 50
BANDWIDTH = 10**9
"""Parts of the shared bandwidth; draws are rounded to them, and ROUNDING parts too many are allowed."""
ROUNDING = 7


class Way(NamedTuple):
    """One way to run an operator: ticks, what it holds of every resource and keeps from others, core-parallel."""

    ticks: int
    held: tuple[int, ...]
    kept: tuple[int, ...]
    blocks: bool


class Run(NamedTuple):
    """A running operator: end, operator, way, and which pair of cores it is on (-1: none)."""

    end: int
    i: int
    way: Way
    pair: int


class Exhaustion:
    """Depth-first over decisions, cut off by the incumbent, two simple bounds, and moments met before."""

    def __init__(self, problem):
        self.problem, ops = problem, problem.operators
        self.units = list(problem.capacity)
        longest = sum(max(mode.latency_s for mode in op.modes) for op in ops)
        self.scale = TICKS / longest if longest else 1.0
        self.capacity = [*problem.capacity.values(), BANDWIDTH + ROUNDING]
        self.ways = [[self._way(op, mode) for mode in op.modes] for op in ops]
        self.blocked = [bool(set(op.units) - problem.unblocked) for op in ops]
        self.shortest = [min(way.ticks for way in ways) for ways in self.ways]
        position = {op.id: i for i, op in enumerate(ops)}
        self.before = [{position[a] for a, b in problem.edges if position[b] == i} for i in range(len(ops))]
        self.tails = [self._tail(i) for i in range(len(ops))]
        self.work = [
            [min(way.ticks * way.kept[u] for way in ways) for u in range(len(self.capacity))]
            for ways in self.ways
        ]
        self.pairs = (
            min(problem.capacity.get("TC", 0), problem.capacity.get("VC", 0)) if problem.pairing else 0
        )
        self.best = sum(self.shortest)
        self.seen = {}

    def solve(self):
        """Smallest makespan, s."""
        self._moment(0, frozenset(), ())
        return self.best / self.scale

    def _way(self, op, mode):
        ticks = round(mode.latency_s * self.scale)
        drawn = round(mode.bandwidth / self.problem.bandwidth * BANDWIDTH) if mode.bandwidth else 0
        if mode.cores is None:
            kept = [
                0 if unit in self.problem.unblocked else self.problem.capacity[unit] for unit in self.units
            ]
            return Way(ticks, (*(0 for _ in kept), drawn), (*kept, drawn), True)
        held = (*(mode.cores if unit in op.units else 0 for unit in self.units), drawn)
        return Way(ticks, held, held, False)

    def _tail(self, i):
        after = [j for j, before in enumerate(self.before) if i in before]
        return max((self.shortest[j] + self._tail(j) for j in after), default=0)

    def _moment(self, now, done, running):
        """Decide what starts at a moment at which something ended."""
        done, ready = self._instant(done, {run.i for run in running})
        if len(done) == len(self.ways):
            self.best = min(self.best, now)
            return
        key = (done, frozenset((run.i, run.way, run.end - now, self._mates(run, running)) for run in running))
        if self.seen.get(key, inf) <= now:
            return
        self.seen[key] = now
        self._decide(now, done, running, ready)

    def _instant(self, done, busy):
        """Operators that can take no time hold nothing and are done when they are ready; the ready rest."""
        while True:
            open_ = [i for i in range(len(self.ways)) if i not in done and i not in busy]
            ready = [i for i in open_ if self.before[i] <= done]
            free = {i for i in ready if not self.shortest[i]}
            if not free:
                return done, ready
            done |= free

    def _decide(self, now, done, running, ready):
        """Start some of the ready operators (kept in order, so that no choice comes twice), then go on."""
        if self._bound(now, done, running) >= self.best:
            return
        for k, i in enumerate(ready):
            for way in self.ways[i]:
                for pair in self._places(i, way, running):
                    self._decide(now, done, (*running, Run(now + way.ticks, i, way, pair)), ready[k + 1 :])
        if running:
            then = min(run.end for run in running)
            ended = {run.i for run in running if run.end == then}
            self._moment(then, done | ended, tuple(run for run in running if run.end > then))

    def _bound(self, now, done, running):
        """Longest path, and the work of every resource, of what is not done."""
        path = max((run.end + self.tails[run.i] for run in running), default=now)
        left = [0] * len(self.capacity)
        for run in running:
            for u, kept in enumerate(run.way.kept):
                left[u] += kept * (run.end - now)
        started = {run.i for run in running}
        for i, work in enumerate(self.work):
            if i not in done and i not in started:
                path = max(path, now + self.shortest[i] + self.tails[i])
                for u, ticks in enumerate(work):
                    left[u] += ticks
        return max(path, *(now + -(-a // b) for a, b in zip(left, self.capacity, strict=True)))

    def _places(self, i, way, running):
        """The pairs of cores it could take now, one of each kind; (-1,) where it needs none, () if it must wait."""
        if self.blocked[i] and any(self.blocked[run.i] and (way.blocks or run.way.blocks) for run in running):
            return ()
        held = [sum(run.way.held[u] for run in running) for u in range(len(self.capacity))]
        if any(a + b > c for a, b, c in zip(held, way.held, self.capacity, strict=True)):
            return ()
        mine = {"TC", "VC"} & set(self.problem.operators[i].units)
        return self._pairs(mine, running) if self.problem.pairing and mine and not way.blocks else (-1,)

    def _pairs(self, mine, running):
        """A pair of each different company whose core is free, and an unpaired core for a plain operator."""
        kinds = {}
        for pair in range(self.pairs):
            mates = [run.i for run in running if run.pair == pair]
            if not any(mine & set(self.problem.operators[j].units) for j in mates):
                kinds.setdefault(tuple(sorted(mates)), pair)
        places = list(kinds.values())
        if len(mine) == 1:
            unit = next(iter(mine))
            alone = [r for r in running if r.pair < 0 and unit in self.problem.operators[r.i].units]
            if len(alone) < self.problem.capacity[unit] - self.pairs:
                places.append(-1)
        return places

    def _mates(self, run, running):
        """Who shares its pair of cores; nothing for an unpaired core."""
        return None if run.pair < 0 else frozenset(other.i for other in running if other.pair == run.pair)
