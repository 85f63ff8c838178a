"""Schedules of one pass that were found before: in this search, or in an earlier one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from phaze.arrays import Floats
from phaze.cost.cost_model import OperatorLatencies
from phaze.digest import digest
from phaze.memo import Memo
from phaze.scheduling.effort import SolveLimits
from phaze.solvers.scheduling import ScheduleProblem, ScheduleResult, schedule
from phaze.solvers.scheduling.batch.graph import BatchGraph


@dataclass(frozen=True, slots=True)
class Makespan:
    """Proven bounds on the least makespan in s, and the limit on states under which they were found."""

    lower_s: float
    upper_s: float
    states: float

    @property
    def exact(self) -> bool:
        """Whether the schedule found is optimal."""
        return self.lower_s == self.upper_s

    @classmethod
    def of(cls, result: ScheduleResult, states: float) -> Makespan:
        """Makespan that a search of so many states found."""
        return cls(result.lower_bound_s, result.makespan_s, states)


UNKNOWN = Makespan(0.0, math.inf, 0.0)
"""Of a problem that was not looked at."""


@dataclass(frozen=True)
class SolvedSchedules:
    """Makespans of the problems of one pass; those that are proven optimal are kept for later searches."""

    graph: BatchGraph
    memo: Memo | None = None
    _known: dict[tuple[object, ...], Makespan] = field(default_factory=dict)

    @cached_property
    def _digest(self) -> str:
        return digest(self.graph)

    def recalled(self, asked: object, shape: tuple[int, ...], work_out: Callable[[], Floats]) -> Floats:
        """What was worked out of the graph for what is `asked` before, or is now."""
        if self.memo is None:
            return work_out()
        return self.memo.array(digest("bounds", self._digest, asked), shape, work_out)

    def may_tell(self, limits: SolveLimits) -> bool:
        """Whether `solve` may tell anything within the limits: problems of many operators take long to write down."""
        return bool(self._known) or not limits.over

    def solve(
        self, problems: Sequence[ScheduleProblem], latencies: OperatorLatencies, limits: SolveLimits
    ) -> list[Makespan]:
        """One makespan per problem; `latencies` are those of the problems, in their order.

        Beyond the limits it is `UNKNOWN` where no search has come that far.
        """
        if limits.over:
            return [self._known.get(_key(problem), UNKNOWN) for problem in problems]
        new: dict[tuple[object, ...], int] = {}
        for i, problem in enumerate(problems):
            if not self._is_known(key := _key(problem), limits):
                new.setdefault(key, i)
        names = self._names(list(new.values()), problems, latencies, limits) if self.memo else {}
        recalled = self.memo.numbers(list(names.values())) if self.memo else {}
        for key, i in new.items():
            if (seconds := recalled.get(names.get(i, ""))) is not None:
                self._known[key] = Makespan(seconds, seconds, limits.states)
            else:
                self._known[key] = self._found(problems[i], names.get(i), limits)
        return [self._known[_key(problem)] for problem in problems]

    def _is_known(self, key: tuple[object, ...], limits: SolveLimits) -> bool:
        """Whether a problem was solved to optimality, or searched as long before."""
        known = self._known.get(key)
        return known is not None and (known.exact or known.states >= limits.states)

    def _found(self, problem: ScheduleProblem, name: str | None, limits: SolveLimits) -> Makespan:
        limit = None if math.isinf(limits.states) else int(limits.states)
        result = schedule(
            problem,
            time_limit_s=limits.left_s(),
            state_limit=limit,
            stopped=lambda: limits.left_s() <= 0,
        )
        # Only what is proven does not depend on the time that there was.
        if self.memo is not None and name is not None and result.optimal:
            self.memo.remember({name: result.makespan_s})
        return Makespan.of(result, limits.states)

    def _names(
        self,
        rows: Sequence[int],
        problems: Sequence[ScheduleProblem],
        latencies: OperatorLatencies,
        limits: SolveLimits,
    ) -> dict[int, str]:
        """Names under which each problem is remembered: everything that its schedule depends on."""
        return {
            i: digest(
                "schedule",
                self._digest,
                latencies.single_s[i],
                latencies.parallel_s[i],
                tuple(problems[i].capacity.values()),
                float(limits.states),
            )
            for i in rows
        }


def _key(problem: ScheduleProblem) -> tuple[object, ...]:
    return (problem.operators, *problem.capacity.values())
