"""What the block does for many architectures at once, for one: number by number, which takes far fewer calls.

Every sum is made of the same numbers in the same order, so that an architecture has the same figures to the last bit
alone as among others. A list schedule looks at the operators that are ready, not at all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapreplace
from math import inf, isfinite

from .graph import BatchGraph


def longest_paths(
    graph: BatchGraph, shortest: Sequence[float], times: list[float], *, forward: bool
) -> list[float]:
    """Longest path before (`forward`) or behind every operator, at least `times`, which it fills."""
    successors = graph.successors
    if forward:
        for i in graph.order:
            end = times[i] + shortest[i]
            for j in successors[i]:
                times[j] = max(times[j], end)
    else:
        for i in reversed(graph.order):
            for j in successors[i]:
                times[i] = max(times[i], times[j] + shortest[j])
    return times


def one_path(graph: BatchGraph, reach: Sequence[float]) -> list[int]:
    """Operators of one longest path, from those behind the start of every operator."""
    target = max(reach)
    here = next(i for i in graph.order if reach[i] >= target)
    found = [here]
    while after := graph.successors[here]:
        here = max(after, key=reach.__getitem__)
        found.append(here)
    return found


def dispatched_s(
    graph: BatchGraph,
    single: Sequence[float],
    parallel: Sequence[float],
    free: Mapping[str, list[float]],
    sharing: Sequence[bool] | None,
    priority: Sequence[float],
) -> float:
    """Makespan of the list schedule of `upper_bounds.dispatch`; infinite where something finds no core.

    `free`: times at which the cores of every unit are free, as a heap. `sharing`: operators that may leave cores to
    others; None, none of them.
    """
    state = _State(graph, single, parallel, free, sharing)
    return max((state.step(priority) for _ in range(graph.size)), default=0.0)


class _State:
    """Cores and operators between two starts."""

    def __init__(
        self,
        graph: BatchGraph,
        single: Sequence[float],
        parallel: Sequence[float],
        free: Mapping[str, list[float]],
        sharing: Sequence[bool] | None,
    ) -> None:
        self.graph, self.single, self.parallel, self.sharing = graph, single, parallel, sharing
        self.core, self.free = graph.core.tolist(), free
        kinds: dict[tuple[tuple[str, ...], bool], int] = {}
        each = zip(graph.units, self.core, strict=True)
        self.kind = [kinds.setdefault(one, len(kinds)) for one in each]
        self.kinds = tuple(kinds)
        self.waiting = [len(row) for row in graph.reverse.successors]
        self.ready = {i: 0.0 for i, count in enumerate(self.waiting) if not count}
        self.known = [0.0] * graph.size
        self.blocked_until = self.cores_end = 0.0

    def step(self, priority: Sequence[float]) -> float:
        """Start the operator that can start first, of those the one with least slack; its end."""
        begins = [self._begin(units, core) for units, core in self.kinds]
        cores_end, best = self.cores_end, (inf, 0.0, 0, False)
        for i, ready in self.ready.items():
            begin = begins[self.kind[i]]
            alone = ready if ready > begin else begin
            whole = ready if ready > cores_end else cores_end
            faster = whole + self.parallel[i] < alone + self.single[i]
            start = whole if faster else alone
            if start <= best[0]:
                best = min(best, (start, -priority[i], i, faster))
        now, _, i, whole_chip = best
        if now == inf:
            return inf
        if whole_chip and self.sharing is not None and self.sharing[i]:
            whole_chip = not self._shares(i, now, begins[self.kind[i]])
        return self._run(i, now, whole_chip=whole_chip)

    def _begin(self, units: Sequence[str], core: bool) -> float:
        """Earliest time with a free core of each of some units."""
        free = [self.free[unit][0] for unit in units]
        return max([self.blocked_until, *free] if core else free, default=0.0)

    def _shares(self, i: int, now: float, begin: float) -> bool:
        """Whether those that could start now would take longer one after the other than this one on a core."""
        queue = 0.0
        for j in sorted(self.ready):
            if self.ready[j] <= now and self.core[j] and isfinite(self.parallel[j]):
                queue += self.parallel[j]
        return self.single[i] <= queue and max(self.ready[i], begin) <= now

    def _run(self, i: int, now: float, *, whole_chip: bool) -> float:
        end = now + (self.parallel[i] if whole_chip else self.single[i])
        if whole_chip:
            self.blocked_until = end
        else:
            for unit in self.graph.units[i]:
                heapreplace(self.free[unit], end)
        if self.core[i]:
            self.cores_end = max(self.cores_end, end)
        del self.ready[i]
        for j in self.graph.successors[i]:
            self.waiting[j] -= 1
            self.known[j] = max(self.known[j], end)
            if not self.waiting[j]:
                self.ready[j] = self.known[j]
        return end
