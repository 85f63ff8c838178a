"""Optimal schedules: list scheduling, then beam search, then best-first search over states."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush, nsmallest
from time import monotonic

from .bounds import Bounds, critical_path_s, lower_bounds
from .critical_path import incumbent
from .indexed import Core, IndexedProblem
from .plan import Plan, assign_cores, replay
from .search import State, StateSpace

BEAM_WIDTHS = (10, 100)
"""States kept per number of finished operators; the second only pays where the first left a gap."""

MOST_STATES = 1_500_000
"""Open states at which the search stops as if out of time (about 1 GB)."""

SAME = 1e-11
"""Relative difference below which two times are one: what ticks and sums of floats can lose."""


@dataclass(slots=True)
class Outcome:
    """Best plan, proven bound (s), and counts of what was done."""

    plan: Plan
    lower_s: float
    work: dict[str, int] = field(default_factory=dict)

    @property
    def proven(self) -> bool:
        """Whether plan and bound meet, up to rounding."""
        return self.lower_s >= self.plan.makespan_s * (1.0 - SAME)


def solve_exact(ix: IndexedProblem, deadline: float) -> Outcome:
    """Best plan and bound by the deadline (`time.monotonic`); the plan is optimal if there is time enough."""
    plan, tried = incumbent(ix, critical_path_s(ix), deadline)
    outcome = Outcome(plan, critical_path_s(ix), {"list_schedules": tried, "states": 0})
    if outcome.proven:
        return outcome
    bounds = _tighten(ix, outcome)
    for width in BEAM_WIDTHS:
        if outcome.proven:
            return outcome
        if _beam(ix, bounds, outcome, width, deadline):
            bounds = _tighten(ix, outcome)
    if not outcome.proven:
        _best_first(ix, bounds, outcome, deadline)
    return outcome


def _tighten(ix: IndexedProblem, outcome: Outcome) -> Bounds:
    bounds = lower_bounds(ix, outcome.plan.makespan_s)
    outcome.lower_s = max(outcome.lower_s, bounds.lower_s)
    return bounds


def _beam(ix: IndexedProblem, bounds: Bounds, outcome: Outcome, width: int, deadline: float) -> bool:
    """Keep the most promising states per number of finished operators; whether the plan improved."""
    space = StateSpace(ix, bounds, outcome.plan.makespan_s)
    levels: list[list[State]] = [[] for _ in range(ix.size + 1)]
    levels[0].append(space.root())
    best: State | None = None
    for depth in range(ix.size):
        for state in nsmallest(width, levels[depth], key=lambda state: (state.bound, state.now)):
            if state.bound >= space.upper or monotonic() > deadline:
                continue
            outcome.work["states"] += 1
            for child in space.children(state):
                if child.done == space.full:
                    if child.now < space.upper:
                        best, space.upper = child, child.now
                else:
                    levels[child.done.bit_count()].append(child)
        levels[depth] = []
    return best is not None and _improve(ix, outcome, best)


def _best_first(ix: IndexedProblem, bounds: Bounds, outcome: Outcome, deadline: float) -> None:
    """Expand the state with the least bound until none can beat the plan."""
    space = StateSpace(ix, bounds, outcome.plan.makespan_s)
    scale = space.scale
    root = space.root()
    queue: list[tuple[int, int, int, State]] = [(root.bound, 0, 0, root)]
    pushed = 0
    while queue and queue[0][0] < space.upper:
        bound, _, _, state = heappop(queue)
        if monotonic() > deadline or len(queue) > MOST_STATES:
            outcome.lower_s = max(outcome.lower_s, bound / scale * (1.0 - SAME))
            return
        outcome.work["states"] += 1
        for child in space.children(state):
            if child.done == space.full:
                if child.now < space.upper:
                    space.upper = child.now
                    _improve(ix, outcome, child)
            elif child.bound < space.upper:
                pushed += 1
                heappush(queue, (child.bound, -child.started.bit_count(), pushed, child))
    outcome.lower_s = outcome.plan.makespan_s


def _improve(ix: IndexedProblem, outcome: Outcome, last: State) -> bool:
    """Adopt the schedule that leads to a final state if it is shorter, which rounding may deny."""
    plan = _plan(ix, last)
    if plan.makespan_s >= outcome.plan.makespan_s:
        return False
    outcome.plan = plan
    return True


def _plan(ix: IndexedProblem, last: State) -> Plan:
    """The schedule that leads to a final state, replayed in seconds."""
    history: list[State] = []
    state: State | None = last
    while state is not None:
        history.append(state)
        state = state.parent
    starts, ends = [0] * ix.size, [0] * ix.size
    parallel = [False] * ix.size
    cores: list[tuple[Core, ...]] = [()] * ix.size
    sequence: list[int] = []
    for earlier, later in zip(reversed(history), list(reversed(history))[1:], strict=False):
        for end, i, whole, held in later.steps:
            starts[i], ends[i], parallel[i], cores[i] = earlier.now, end, whole, held
            sequence.append(i)
    if ix.pair is None:
        cores = list(assign_cores(ix, starts, ends, parallel))
    return replay(ix, sequence, parallel, cores)
