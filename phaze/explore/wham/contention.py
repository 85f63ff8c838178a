"""One pass of a layer on a number of cores: the critical path, a list schedule by slack, who waits for what.

The critical path is that of unlimited cores. An operator may run on one core of each of its units, or core-parallel
on all of them; unlimited cores therefore mean two things: no operator waits for a core, and every operator takes
as long as it would on the largest numbers of cores there are. A schedule loses time against it where a critical
operator waits for a busy core, and where it runs longer because there are too few cores to spread it over. Both
are conflicts of the type of core that is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phaze.solvers.scheduling.batch.graph import BatchGraph

Seconds = Sequence[float]
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds of every operator, (O,) each.

    `single_s`: on one core of each unit; `parallel_s`: on all cores, infinite where impossible. `unlimited_s`:
    with the largest number of cores of every unit; `relieved_s`: by unit, with the largest number of that alone.
    """

    single_s: Seconds
    parallel_s: Seconds
    unlimited_s: Seconds
    relieved_s: Mapping[str, Seconds]


@dataclass(frozen=True, slots=True)
class Slack:
    """Earliest and latest starts with unlimited cores, (O,) seconds, and the length of the critical path."""

    asap_s: tuple[float, ...]
    alap_s: tuple[float, ...]
    length_s: float

    def of(self, operator: int) -> float:
        """How much later an operator may start without making the pass longer; 0 if it is critical."""
        return max(0.0, self.alap_s[operator] - self.asap_s[operator])


@dataclass(frozen=True, slots=True)
class Schedule:
    """When operators could start, start and end, (O,) seconds, and which run core-parallel."""

    ready_s: tuple[float, ...]
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]
    whole: tuple[bool, ...]

    @property
    def length_s(self) -> float:
        """When the last operator ends."""
        return max(self.end_s, default=0.0)


def slack(graph: BatchGraph, unlimited_s: Seconds) -> Slack:
    """As soon as possible, then as late as possible."""
    early, tail = [0.0] * graph.size, [0.0] * graph.size
    for i in graph.order:
        for j in graph.successors[i]:
            early[j] = max(early[j], early[i] + unlimited_s[i])
    for i in reversed(graph.order):
        for j in graph.successors[i]:
            tail[i] = max(tail[i], unlimited_s[j] + tail[j])
    length = max((early[i] + unlimited_s[i] + tail[i] for i in range(graph.size)), default=0.0)
    late = (length - tail[i] - unlimited_s[i] for i in range(graph.size))
    return Slack(tuple(early), tuple(late), length)


def list_schedule(
    graph: BatchGraph, latencies: Latencies, cores: Mapping[str, int], found: Slack
) -> Schedule:
    """Start what can start first, of those the operator of least slack, in the mode that ends it first."""
    free = {unit: [0.0] * min(count, graph.size) for unit, count in cores.items()}
    ready, end = [0.0] * graph.size, [0.0] * graph.size
    start, whole = [0.0] * graph.size, [False] * graph.size
    waiting = [0] * graph.size
    for row in graph.successors:
        for j in row:
            waiting[j] += 1
    open_ = {i for i in range(graph.size) if not waiting[i]}
    blocked_until = cores_end = 0.0
    while open_:
        options = []
        for i in open_:
            alone = max(ready[i], blocked_until if graph.core[i] else 0.0)
            alone = max([alone, *(min(free[unit]) for unit in graph.units[i])])
            together = max(ready[i], cores_end)
            spread = together + latencies.parallel_s[i] < alone + latencies.single_s[i]
            options.append((together if spread else alone, found.of(i), i, spread))
        begin, _, i, spread = min(options)
        start[i], whole[i] = begin, spread
        end[i] = begin + (latencies.parallel_s if spread else latencies.single_s)[i]
        if graph.core[i]:
            cores_end = max(cores_end, end[i])
        if spread:
            blocked_until = end[i]
        else:
            for unit in graph.units[i]:
                free[unit][free[unit].index(min(free[unit]))] = end[i]
        open_.remove(i)
        for j in graph.successors[i]:
            ready[j] = max(ready[j], end[i])
            waiting[j] -= 1
            if not waiting[j]:
                open_.add(j)
    return Schedule(tuple(ready), tuple(start), tuple(end), tuple(whole))


def conflicts(graph: BatchGraph, latencies: Latencies, schedule: Schedule, found: Slack) -> dict[str, float]:
    """Seconds that operators lose to missing cores beyond their slack, by unit."""
    lost = dict.fromkeys(latencies.relieved_s, 0.0)
    for i, units in enumerate(graph.units):
        spare = found.of(i) + _ROUNDING * found.length_s
        waited = schedule.start_s[i] - schedule.ready_s[i] - spare
        took = schedule.end_s[i] - schedule.start_s[i]
        longer = took - latencies.unlimited_s[i] - spare
        saved = {u: took - latencies.relieved_s[u][i] for u in units if u in lost}
        for unit, gain in saved.items():
            lost[unit] += max(0.0, waited)
            if longer > 0:
                lost[unit] += longer if max(saved.values()) <= 0 else max(0.0, min(gain, longer))
    return lost
