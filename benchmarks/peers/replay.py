"""Run operators one after another, each as early as those before it allow."""

from __future__ import annotations

from collections.abc import Sequence

from phaze.solvers.scheduling import Method, ScheduleProblem, ScheduleResult, Status


class Replay:
    """A schedule being built; `durations` per operator in any unit of time, `starts` in the same."""

    def __init__(self, problem: ScheduleProblem, durations: Sequence[float]) -> None:
        self.problem, self.durations = problem, durations
        self.starts: list[float] = [0] * len(durations)
        self.cores: list[tuple[str, ...]] = [()] * len(durations)
        self.modes: list[int] = [0] * len(durations)
        self.makespan: float = 0
        self._ready: list[float] = [0] * len(durations)
        self._blocked: float = 0
        self._free: dict[str, float] = {
            f"{unit}{k}": 0 for unit, count in problem.capacity.items() for k in range(count)
        }

    def run(self, i: int, mode: int, cores: tuple[str, ...] = ()) -> None:
        """Start operator i, all its predecessors being started; single on `cores` or on those free first.

        `mode` is a position in its `modes`.
        """
        parallel = self._parallel(i, mode)
        if parallel:
            held, start = self._all(i), max(self.makespan, self._ready[i])
        else:
            held = cores or self._first_free(i)
            start = max(self._ready[i], self._blocked, *(self._free[core] for core in held))
        end = start + self.durations[i]
        self.starts[i], self.cores[i], self.modes[i] = start, held, mode
        self.makespan = max(self.makespan, end)
        if parallel:
            self._blocked = end
        for core in held:
            self._free[core] = end
        for j in self.problem.successors[i]:
            self._ready[j] = max(self._ready[j], end)

    def result(self, lower_bound_s: float, runtime_s: float, *, optimal: bool) -> ScheduleResult:
        """The schedule as a list schedule, together with what else is known of it."""
        names = [operator.id for operator in self.problem.operators]
        lower = min(lower_bound_s, self.makespan)
        return ScheduleResult(
            status=Status.OPTIMAL if optimal else Status.FEASIBLE,
            method=Method.CRITICAL_PATH,
            makespan_s=self.makespan,
            lower_bound_s=lower,
            gap=(self.makespan - lower) / self.makespan if self.makespan else 0.0,
            runtime_s=runtime_s,
            starts_s=dict(zip(names, self.starts, strict=True)),
            ends_s={
                name: start + duration
                for name, start, duration in zip(names, self.starts, self.durations, strict=True)
            },
            modes=dict(zip(names, self.modes, strict=True)),
            parallel=tuple(name for i, name in enumerate(names) if self._parallel(i, self.modes[i])),
            cores=dict(zip(names, self.cores, strict=True)),
        )

    def _parallel(self, i: int, mode: int) -> bool:
        return self.problem.operators[i].modes[mode].cores is None

    def _all(self, i: int) -> tuple[str, ...]:
        """Equally many cores of each of an operator's units."""
        units = self.problem.operators[i].units
        count = min(self.problem.capacity[unit] for unit in units)
        return tuple(f"{unit}{k}" for unit in units for k in range(count))

    def _first_free(self, i: int) -> tuple[str, ...]:
        free, capacity = self._free, self.problem.capacity
        return tuple(
            min((f"{unit}{k}" for k in range(capacity[unit])), key=free.__getitem__)
            for unit in self.problem.operators[i].units
        )
