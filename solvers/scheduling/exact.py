"""Optimal schedules: list scheduling, then best-first search over states, helped by beam search where it is long."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush, nsmallest
from math import inf
from time import monotonic

from .bounds import Bounds, critical_path_s, lower_bounds
from .compiled import compiled_in_time, packable
from .critical_path import incumbent
from .indexed import Core, IndexedProblem
from .plan import Plan, assign_cores, replay
from .search import State, StateSpace

FEW_STATES = 100
"""States expanded before beam search is worth its time: problems of a dozen operators rarely need more."""

COMPACT_WIDTHS = (10, 100, 1000)
BEAM_WIDTHS = (10, 100)
"""States kept per number of finished operators; the second only pays where the first left a gap."""

MOST_STATES = 1_500_000
"""Open states at which the search stops as if out of time (about 1 GB)."""

SAME = 1e-11
"""Relative difference below which two times are one: what ticks and sums of floats can lose."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop: at a time (`time.monotonic`), at a lower bound (s), after a number of expanded states."""

    deadline: float
    cutoff_s: float = inf
    states: int | None = None


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


def solve_exact(ix: IndexedProblem, limits: Limits) -> Outcome:
    """Best plan and bound within the limits; the plan is optimal unless one of them is reached."""
    plan, tried = incumbent(ix, critical_path_s(ix), limits.deadline)
    outcome = Outcome(plan, critical_path_s(ix), {"list_schedules": tried, "states": 0})
    if outcome.proven:
        return outcome
    few = FEW_STATES if limits.states is None else min(FEW_STATES, limits.states)
    _best_first(ix, _tighten(ix, outcome), outcome, replace(limits, states=few))
    if ix.pair is None and packable(ix):
        _compact(ix, outcome, limits)
    else:
        _plain(ix, outcome, limits)
    return outcome


def _compact(ix: IndexedProblem, outcome: Outcome, limits: Limits) -> None:
    """The compiled search: beams while they pay, then best-first."""
    if _over(outcome, limits) or not compiled_in_time(limits.deadline):
        return
    for width in (*COMPACT_WIDTHS, 0):
        if _over(outcome, limits):
            return
        _compact_stage(ix, outcome, limits, width)


def _compact_stage(ix: IndexedProblem, outcome: Outcome, limits: Limits, width: int) -> None:
    """One beam, or with a width of 0 best-first search, adopted into the outcome."""
    from .compact import CompactSearch

    bounds = _tighten(ix, outcome)
    if outcome.proven:
        return
    search = CompactSearch(ix, bounds, outcome.plan.makespan_s, None)
    states = inf if limits.states is None else limits.states - outcome.work["states"]
    if width:
        search.beam(width, states, limits.deadline)
    else:
        search.best_first(states, limits.deadline, limits.cutoff_s)
        outcome.lower_s = max(outcome.lower_s, search.lower_s * (1.0 - SAME))
    outcome.work["states"] += search.states
    plan = search.plan()
    if plan is not None and plan.makespan_s < outcome.plan.makespan_s:
        outcome.plan = plan


def _plain(ix: IndexedProblem, outcome: Outcome, limits: Limits) -> None:
    """The same in plain Python, for problems in which core pairs matter."""
    for width in BEAM_WIDTHS:
        if _over(outcome, limits):
            return
        _beam(ix, _tighten(ix, outcome), outcome, width, limits)
    if not _over(outcome, limits):
        _best_first(ix, _tighten(ix, outcome), outcome, limits)


def _over(outcome: Outcome, limits: Limits) -> bool:
    """Whether plan and bound meet or a limit is reached."""
    return (
        outcome.proven
        or outcome.lower_s >= limits.cutoff_s
        or (limits.states is not None and outcome.work["states"] >= limits.states)
        or monotonic() > limits.deadline
    )


def _tighten(ix: IndexedProblem, outcome: Outcome) -> Bounds:
    bounds = lower_bounds(ix, outcome.plan.makespan_s)
    outcome.lower_s = max(outcome.lower_s, bounds.lower_s)
    return bounds


def _beam(ix: IndexedProblem, bounds: Bounds, outcome: Outcome, width: int, limits: Limits) -> None:
    """Improve the plan from the most promising states per number of finished operators."""
    space = StateSpace(ix, bounds, outcome.plan.makespan_s)
    levels: list[list[State]] = [[] for _ in range(ix.size + 1)]
    levels[0].append(space.root())
    best: State | None = None
    for depth in range(ix.size):
        for state in nsmallest(width, levels[depth], key=lambda state: (state.bound, state.now)):
            if state.bound >= space.upper or _over(outcome, limits):
                continue
            outcome.work["states"] += 1
            for child in space.children(state):
                if child.done == space.full:
                    if child.now < space.upper:
                        best, space.upper = child, child.now
                else:
                    levels[child.done.bit_count()].append(child)
        levels[depth] = []
    if best is not None:
        _improve(ix, outcome, best)


def _best_first(ix: IndexedProblem, bounds: Bounds, outcome: Outcome, limits: Limits) -> None:
    """Expand the state with the least bound until none can beat the plan or a limit is reached."""
    space = StateSpace(ix, bounds, outcome.plan.makespan_s)
    root = space.root()
    queue: list[tuple[int, int, int, State]] = [(root.bound, 0, 0, root)]
    pushed = 0
    while queue and queue[0][0] < space.upper:
        outcome.lower_s = max(outcome.lower_s, queue[0][0] / space.scale * (1.0 - SAME))
        if _over(outcome, limits) or len(queue) > MOST_STATES:
            return
        state = heappop(queue)[-1]
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


def _improve(ix: IndexedProblem, outcome: Outcome, last: State) -> None:
    """Adopt the schedule that leads to a final state if it is shorter, which rounding may deny."""
    plan = _plan(ix, last)
    if plan.makespan_s < outcome.plan.makespan_s:
        outcome.plan = plan


def _plan(ix: IndexedProblem, last: State) -> Plan:
    """The schedule that leads to a final state, replayed in seconds."""
    history: list[State] = []
    state: State | None = last
    while state is not None:
        history.append(state)
        state = state.parent
    starts, ends = [0] * ix.size, [0] * ix.size
    modes = [0] * ix.size
    cores: list[tuple[Core, ...]] = [()] * ix.size
    sequence: list[int] = []
    for earlier, later in zip(reversed(history), list(reversed(history))[1:], strict=False):
        for end, i, mode, held in later.steps:
            starts[i], ends[i], modes[i], cores[i] = earlier.now, end, mode, held
            sequence.append(i)
    if ix.pair is None:
        cores = list(assign_cores(ix, starts, ends, modes))
    return replay(ix, sequence, modes, cores)
