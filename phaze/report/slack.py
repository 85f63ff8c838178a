"""How much later the operators of a schedule may start without delaying its end."""

from __future__ import annotations

from math import inf

from phaze.solvers.scheduling import ScheduleProblem, ScheduleResult

_ROUNDING = 1e-9  # relative excess of the shared bandwidth that counts as none


def slack_s(problem: ScheduleProblem, result: ScheduleResult) -> dict[str, float]:
    """How much later every operator could start, s; makespan, modes, cores and their order are kept.

    An operator ends at the latest when one that waits for it must start: because the graph says so, because
    both hold a core, because one of them is core-parallel, or because the other starts with what bandwidth it
    leaves. Takes n^2 steps for n operators.
    """
    latest_end = dict.fromkeys(result.ends_s, result.makespan_s)
    slack: dict[str, float] = {}
    predecessors: dict[str, set[str]] = {name: set() for name in result.ends_s}
    for before, after in problem.edges:
        predecessors[after].add(before)
    clashes = _Clashes(problem, result)
    for name in reversed(_by_time(problem, result)):
        latest_start = latest_end[name] - (result.ends_s[name] - result.starts_s[name])
        for before in predecessors[name] | clashes.before(name):
            latest_end[before] = min(latest_end[before], latest_start)
        slack[name] = max(0.0, latest_start - result.starts_s[name])
    return slack


def _by_time(problem: ScheduleProblem, result: ScheduleResult) -> list[str]:
    """Operators in the order they run; those that take no time after their predecessors too."""
    names = [problem.operators[i].id for i in problem.topological_order]
    return sorted(names, key=lambda name: (result.starts_s[name], result.ends_s[name]))


class _Clashes:
    """Which operators must not run at one moment; those that take no time disturb nobody."""

    def __init__(self, problem: ScheduleProblem, result: ScheduleResult) -> None:
        """Cores, blocking and bandwidth of the operators that take time."""
        self._ends = result.ends_s
        self._starts = {name: start for name, start in result.starts_s.items() if start < self._ends[name]}
        self._whole = set(result.parallel)
        self._held = {name: set(cores) for name, cores in result.cores.items() if name not in self._whole}
        self._blocked = {op.id for op in problem.operators if not problem.unblocked.issuperset(op.units)}
        self._draw = {op.id: op.modes[result.modes[op.id]].bandwidth for op in problem.operators}
        self._bandwidth = inf if problem.bandwidth is None else problem.bandwidth * (1 + _ROUNDING)

    def before(self, name: str) -> set[str]:
        """Operators that must be over when one starts."""
        start = self._starts.get(name, 0.0)
        left = self._bandwidth - self._drawn(start)
        return {
            other
            for other, begun in self._starts.items()
            if begun < start
            and (self._clash(name, other) or (self._ends[other] <= start and self._draw[other] > left))
        }

    def _drawn(self, moment_s: float) -> float:
        """Bandwidth that the operators that run at a moment draw together."""
        return sum(
            self._draw[name] for name, start in self._starts.items() if start <= moment_s < self._ends[name]
        )

    def _clash(self, one: str, other: str) -> bool:
        if one in self._whole or other in self._whole:
            return one in self._blocked and other in self._blocked
        return not self._held[one].isdisjoint(self._held[other])
