"""The operators of one pass of a layer in time, on the cores of a design."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze.cost.cost_model import OperatorLatencies
from phaze.scheduling.passes import SolveLimits, TimedPass, schedule_problem
from phaze.solvers.scheduling import ScheduleProblem, ScheduleResult, schedule
from phaze.tolerances import DRAWN_STATES
from phaze.workload.work import Pass

SOLVE_LIMITS = SolveLimits(lambda: np.inf, DRAWN_STATES)


@dataclass(frozen=True)
class LayerSchedule:
    """One pass of a unique layer on the design at `row`; operators are called by their names in `problem`.

    `runs`: times one microbatch goes through it in all stages of that design, recomputation included. `floor_s`: what
    its bytes take through the memory that is slower for them. `duration_s`: of the pass, without collectives that
    the schedule does not have.
    """

    unique: int
    row: int
    kind: str
    side: str
    timed: TimedPass
    problem: ScheduleProblem
    result: ScheduleResult
    floor_s: float
    duration_s: float
    runs: int

    @property
    def total_s(self) -> float:
        """Time of one microbatch in all such layers."""
        return self.duration_s * self.runs


def solve_layer(
    timed: TimedPass, latencies: OperatorLatencies, row: int
) -> tuple[ScheduleProblem, ScheduleResult]:
    """The operators of a pass on the cores of the design at `row`; `latencies` are those there alone."""
    cores = {unit: int(count[0]) for unit, count in timed.capacity(np.array([row])).items()}
    problem = _named(schedule_problem(timed.work, latencies, 0, cores), timed.work)
    limit = None if math.isinf(SOLVE_LIMITS.states) else int(SOLVE_LIMITS.states)
    return problem, schedule(problem, time_limit_s=SOLVE_LIMITS.left_s(), state_limit=limit)


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
        label, number = name, 2
        while label in seen or (label != name and label in taken):
            label, number = f"{name} ({number})", number + 1
        seen.add(label)
        yield label
