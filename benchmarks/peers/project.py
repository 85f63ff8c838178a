"""An operator-scheduling problem as a multi-mode project, the form general solvers know, and the way back.

A project has integer times ("ticks"), `resources` (capacities), `tasks` (each a list of modes with a `duration`
and `demands`, pairs of resource and amount), `edges` (pairs of tasks), a `horizon` that the best schedule does not
exceed and a `hint` (start and mode of every task); `limit_s`, `workers` and `cp_sat` (parameters by name) are for the
solver. An answer has `optimal`, `makespan` and `bound` in ticks, `schedule` (start and mode of every task, or null)
and `runtime_s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from phaze.solvers.scheduling import Method, Operator, ScheduleProblem, schedule

from peers.replay import Replay

TICKS = 2**31
"""Ticks of the hint's makespan: latencies rounded down to them are right to about 1e-9 of it."""

WORKERS = 8
"""Search threads of a peer: CP-SAT's portfolio is weak with fewer, also where there are only two cores."""

CP_SAT = {"use_overload_checker_in_cumulative": True, "use_timetable_edge_finding_in_cumulative": True}
"""Propagation that CP-SAT leaves off by default; without it seven operators can go unproven."""


@dataclass(frozen=True)
class Way:
    """One way to run an operator: its `mode` (a position), on the named `cores` (none named: on any)."""

    mode: int
    duration: int
    demands: tuple[tuple[int, int], ...]
    cores: tuple[str, ...] = ()


class Project:
    """The project of an instance of `dse-schedule/1`.

    Cores are counted, and named only where pairing makes it matter which is used.
    """

    def __init__(self, problem: ScheduleProblem) -> None:
        self.problem = problem
        first = schedule(problem, Method.CRITICAL_PATH)
        self.ticks_per_s = TICKS / first.makespan_s if first.makespan_s else 1.0
        self.ways = [self._ways(operator) for operator in problem.operators]
        self._first = [
            (first.starts_s[op.id], self._like(i, first.modes[op.id], first.cores[op.id]))
            for i, op in enumerate(problem.operators)
        ]

    @cached_property
    def named(self) -> bool:
        """Whether every core is a resource of its own."""
        return self.problem.pairing and any(len(op.units) > 1 for op in self.problem.operators)

    @cached_property
    def resources(self) -> dict[str, int]:
        """Capacity by the name of a unit or a core."""
        capacity = self.problem.capacity
        if not self.named:
            return dict(capacity)
        return {f"{unit}{k}": 1 for unit, count in capacity.items() for k in range(count)}

    def document(self, limit_s: float) -> dict[str, object]:
        """What a peer reads."""
        hint = self.in_ticks(self._first)
        ends = [start + self.ways[i][way].duration for i, (start, way) in enumerate(hint)]
        return {
            "resources": list(self.resources.values()),
            "tasks": [
                [{"duration": way.duration, "demands": way.demands} for way in ways] for ways in self.ways
            ],
            "edges": [[i, j] for i, row in enumerate(self.problem.successors) for j in row],
            "horizon": max(ends, default=0),
            "hint": hint,
            "limit_s": limit_s,
            "workers": WORKERS,
            "cp_sat": CP_SAT,
        }

    def in_ticks(self, placed: Sequence[tuple[float, int]]) -> list[tuple[int, int]]:
        """A schedule (start and way of every task) with its starts as early as durations in ticks allow."""
        durations = [self.ways[i][way].duration for i, (_, way) in enumerate(placed)]
        starts = self._replayed(placed, durations).starts
        return [(int(start), way) for start, (_, way) in zip(starts, placed, strict=True)]

    def in_seconds(self, placed: Sequence[tuple[int, int]]) -> Replay:
        """The same schedule with the true latencies."""
        modes = [self.ways[i][way].mode for i, (_, way) in enumerate(placed)]
        operators = self.problem.operators
        return self._replayed(placed, [operators[i].modes[mode].latency_s for i, mode in enumerate(modes)])

    def _replayed(self, placed: Sequence[tuple[float, int]], durations: Sequence[float]) -> Replay:
        """The operators in the order of their starts, each as early as the earlier ones allow."""
        rank = {i: k for k, i in enumerate(self.problem.topological_order)}
        replay = Replay(self.problem, durations)
        for i in sorted(rank, key=lambda i: (placed[i][0], durations[i], rank[i])):
            way = self.ways[i][placed[i][1]]
            replay.run(i, way.mode, way.cores)
        return replay

    def _ways(self, operator: Operator) -> list[Way]:
        """Single on every choice of cores; core-parallel, which takes everything, where that is faster."""
        index = {name: i for i, name in enumerate(self.resources)}
        everything = tuple((index[name], count) for name, count in self.resources.items())
        single = min(mode.latency_s for mode in operator.modes if mode.cores is not None)
        ways = []
        for k, mode in enumerate(operator.modes):
            duration = int(mode.latency_s * self.ticks_per_s)
            if mode.cores is not None:
                ways += [
                    Way(k, duration, tuple((index[name], 1) for name in names), names if self.named else ())
                    for names in self._places(operator)
                ]
            elif mode.latency_s < single:
                ways.append(Way(k, duration, everything))
        return ways

    def _places(self, operator: Operator) -> list[tuple[str, ...]]:
        """The sets of resources on which an operator can run single."""
        if not self.named:
            return [operator.units]
        most = min(self.problem.capacity[unit] for unit in operator.units)
        return [tuple(f"{unit}{k}" for unit in operator.units) for k in range(most)]

    def _like(self, i: int, mode: int, cores: tuple[str, ...]) -> int:
        """The way that a schedule of ours runs operator i."""
        for k, way in enumerate(self.ways[i]):
            if way.mode == mode and (not way.cores or set(way.cores) == set(cores)):
                return k
        return 0  # core-parallel although that is not faster: single on the first cores is no worse
