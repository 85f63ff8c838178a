"""The operators of every unique layer in time, on the cores of the design."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze.report.replay.replay import EFFORT, Replay
from phaze.report.replay.stage import Action, Side
from phaze.scheduling.passes import TimedPass, schedule_problem
from phaze.solvers.scheduling import ScheduleProblem, ScheduleResult, schedule
from phaze.workload.work import Pass


@dataclass(frozen=True)
class LayerSchedule:
    """One pass of a unique layer on the design at `row`; operators are called by their names in `problem`.

    `runs`: times one microbatch goes through it in all stages of that design, recomputation included. `floor_s`: what
    its bytes take through the memory that is slower for them.
    """

    unique: int
    row: int
    kind: str
    side: Side
    timed: TimedPass
    problem: ScheduleProblem
    result: ScheduleResult
    floor_s: float
    runs: int

    @property
    def duration_s(self) -> float:
        """Time of the pass: that of the schedule, or of the memory where that is longer."""
        return max(self.result.makespan_s, self.floor_s)

    @property
    def total_s(self) -> float:
        """Time of one microbatch in all such layers."""
        return self.duration_s * self.runs


def layer_schedules(plan: Replay) -> list[LayerSchedule]:
    """Every unique layer and pass on every design in use, those that take most time first."""
    timed = plan.timed
    found = []
    for (row, unique, side), runs in _runs(plan).items():
        passes = timed.forward if side is Side.FORWARD else timed.backward
        if passes[unique].work.works:
            found.append(_scheduled(passes[unique], row, unique, side, timed.chain.layers[unique].kind, runs))
    return sorted(found, key=lambda one: -one.total_s)


def _runs(plan: Replay) -> Counter[tuple[int, int, Side]]:
    """How often one microbatch goes through each (design, unique layer, pass)."""
    index = plan.timed.chain.index
    return Counter(
        (stage.row, index[piece.layer], Side.FORWARD if piece.action is Action.RECOMPUTE else piece.side)
        for stage in plan.stages
        for pieces in stage.pieces.values()
        for piece in pieces
        if piece.layer is not None
    )


def _scheduled(timed: TimedPass, row: int, unique: int, side: Side, kind: str, runs: int) -> LayerSchedule:
    at = np.array([row])
    latencies = timed.costs.latencies(at)
    cores = {unit: int(count[0]) for unit, count in timed.capacity(at).items()}
    problem = _named(schedule_problem(timed.work, latencies, 0, cores), timed.work)
    limit = None if math.isinf(EFFORT.states) else int(EFFORT.states)
    result = schedule(problem, time_limit_s=EFFORT.left_s(), state_limit=limit)
    floor_s = max(float(latencies.hbm_s[0]), float(latencies.buffer_s[0]))
    return LayerSchedule(unique, row, kind, side, timed, problem, result, floor_s, runs)


def _named(problem: ScheduleProblem, work: Pass) -> ScheduleProblem:
    """The problem with operators called by their names instead of their positions."""
    names = list(_distinct([w.name for w in work.works]))
    return replace(
        problem,
        operators=tuple(replace(op, id=names[int(op.id)]) for op in problem.operators),
        edges=tuple((names[int(a)], names[int(b)]) for a, b in problem.edges),
    )


def _distinct(names: Sequence[str]) -> Iterator[str]:
    """The names, those that come again with a number behind them that no other has."""
    taken = set(names)
    seen: set[str] = set()
    for name in names:
        told, number = name, 2
        while told in seen or (told != name and told in taken):
            told, number = f"{name} ({number})", number + 1
        seen.add(told)
        yield told
