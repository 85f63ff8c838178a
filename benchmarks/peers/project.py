"""An operator-scheduling problem as a multi-mode project, the form general solvers know, and the way back.

A project has integer times ("ticks"), `resources` (capacities), `tasks` (each a list of modes with a `duration`
and `demands`, pairs of resource and amount), `edges` (pairs of tasks), a `horizon` that the best schedule does not
exceed and a `hint` (start and mode of every task); `limit_s` and `workers` are the solver's. An answer has `optimal`,
`makespan` and `bound` in ticks, `schedule` (start and mode of every task, or null) and `runtime_s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from peers.replay import Replay
from phaze.solvers.scheduling import Method, Operator, ScheduleProblem, schedule

TICKS = 2**31
"""Ticks of the hint's makespan: latencies rounded down to them are right to about 1e-9 of it."""


@dataclass(frozen=True)
class Mode:
    """One way to run an operator: core-parallel, or single on the named `cores` (none named: on any)."""

    duration: int
    demands: tuple[tuple[int, int], ...]
    parallel: bool = False
    cores: tuple[str, ...] = ()


class Project:
    """The project of a problem. Cores are counted, and named only where pairing makes it matter which is used."""

    def __init__(self, problem: ScheduleProblem) -> None:
        self.problem = problem
        first = schedule(problem, Method.CRITICAL_PATH)
        self.ticks_per_s = TICKS / first.makespan_s if first.makespan_s else 1.0
        self.modes = [self._modes(operator) for operator in problem.operators]
        parallel = set(first.parallel)
        self._first = [
            (first.starts_s[op.id], self._like(i, op.id in parallel, first.cores[op.id]))
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

    def document(self, limit_s: float, workers: int) -> dict[str, object]:
        """What a peer reads."""
        hint = self.in_ticks(self._first)
        horizon = max(
            (start + self.modes[i][mode].duration for i, (start, mode) in enumerate(hint)), default=0
        )
        return {
            "resources": list(self.resources.values()),
            "tasks": [
                [{"duration": mode.duration, "demands": mode.demands} for mode in modes]
                for modes in self.modes
            ],
            "edges": [[i, j] for i, row in enumerate(self.problem.successors) for j in row],
            "horizon": horizon,
            "hint": hint,
            "limit_s": limit_s,
            "workers": workers,
        }

    def in_ticks(self, placed: Sequence[tuple[float, int]]) -> list[tuple[int, int]]:
        """A schedule (start and mode of every task) with its starts as early as durations in ticks allow."""
        durations = [self.modes[i][mode].duration for i, (_, mode) in enumerate(placed)]
        starts = self.replayed(placed, durations).starts
        return [(int(start), mode) for start, (_, mode) in zip(starts, placed, strict=True)]

    def in_seconds(self, placed: Sequence[tuple[int, int]]) -> Replay:
        """The same schedule with the true latencies."""
        chosen = [self.modes[i][mode] for i, (_, mode) in enumerate(placed)]
        latencies = [
            op.parallel_latency_s if mode.parallel else op.latency_s
            for op, mode in zip(self.problem.operators, chosen, strict=True)
        ]
        return self.replayed(placed, latencies)

    def replayed(self, placed: Sequence[tuple[float, int]], durations: Sequence[float]) -> Replay:
        """The operators in the order of their starts, each as early as the earlier ones allow."""
        rank = {i: k for k, i in enumerate(self.problem.topological_order)}
        order = sorted(rank, key=lambda i: (placed[i][0], durations[i], rank[i]))
        replay = Replay(self.problem, durations)
        for i in order:
            mode = self.modes[i][placed[i][1]]
            replay.run(i, parallel=mode.parallel, cores=mode.cores)
        return replay

    def _modes(self, operator: Operator) -> list[Mode]:
        """Single modes, and the core-parallel one, which takes everything, where it is the faster."""
        index = {name: i for i, name in enumerate(self.resources)}
        single = self._ticks(operator.latency_s)
        modes = [
            Mode(single, tuple((index[name], 1) for name in names), cores=names if self.named else ())
            for names in self._places(operator)
        ]
        latency_s = operator.parallel_latency_s
        if latency_s is not None and latency_s < operator.latency_s:
            everything = tuple((index[name], count) for name, count in self.resources.items())
            modes.append(Mode(self._ticks(latency_s), everything, parallel=True))
        return modes

    def _places(self, operator: Operator) -> list[tuple[str, ...]]:
        """The sets of resources on which an operator can run single."""
        if not self.named:
            return [operator.units]
        most = min(self.problem.capacity[unit] for unit in operator.units)
        return [tuple(f"{unit}{k}" for unit in operator.units) for k in range(most)]

    def _like(self, i: int, parallel: bool, cores: tuple[str, ...]) -> int:
        """The mode of operator i that a schedule of ours uses."""
        for k, mode in enumerate(self.modes[i]):
            if mode.parallel == parallel and (not mode.cores or set(mode.cores) == set(cores)):
                return k
        return 0  # core-parallel although that is not faster: single on the first cores is no worse

    def _ticks(self, latency_s: float) -> int:
        return int(latency_s * self.ticks_per_s)
