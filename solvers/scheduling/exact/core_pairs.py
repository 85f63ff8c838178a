"""Problems in which core pairs matter: a search over states in plain Python, and pairs added to a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush, nsmallest

from ..indexed_problem import Core, IndexedProblem
from ..schedule_bounds import Bounds
from ..schedule_plan import SAME, Outcome, Plan, SearchLimits, assign_cores, core_choices, replay
from .state_space import State, StateSpace

TRIES = 10_000
"""Most choices of cores that are tried: the schedule is one of many, another may do."""


def with_pairs(ix: IndexedProblem, plan: Plan) -> Plan | None:
    """The same plan on paired cores; None if there are none for it or they were not found."""
    order = sorted(range(ix.size), key=lambda i: (plan.starts[i], i))
    cores: list[tuple[Core, ...]] = [()] * ix.size
    tries = [TRIES]
    return replace(plan, cores=tuple(cores)) if _assign(ix, plan, order, cores, tries) else None


def _assign(
    ix: IndexedProblem, plan: Plan, order: Sequence[int], cores: list[tuple[Core, ...]], tries: list[int]
) -> bool:
    """Whether cores were found for the operators of `order`, beside those before them; fills `cores`."""
    if not order:
        return True
    i, mode = order[0], plan.modes[order[0]]
    if ix.whole[i][mode] or not ix.units[i]:
        return _assign(ix, plan, order[1:], cores, tries)
    held = set(order)
    busy = {
        core
        for j in range(ix.size)
        if j not in held and plan.starts[j] + ix.latency[j][plan.modes[j]] > plan.starts[i]
        for core in cores[j]
    }
    for choice in core_choices(ix, i, busy):
        tries[0] -= 1
        if tries[0] < 0:
            return False
        cores[i] = choice
        if _assign(ix, plan, order[1:], cores, tries):
            return True
    return False


FEW_STATES = 500
"""States expanded before beam search is worth its time: problems of a dozen operators rarely need more."""

BEAM_WIDTHS = (10, 100)
"""States kept per number of finished operators; the second only pays where the first left a gap."""

MOST_STATES = 1_500_000
"""Open states at which the search stops as if out of time (about 1 GB)."""


def search_paired(ix: IndexedProblem, outcome: Outcome, limits: SearchLimits) -> None:
    """Improve plan and bound: a few states best-first, beams, then best-first to the end."""
    few = FEW_STATES if limits.states is None else min(FEW_STATES, limits.states)
    _best_first(ix, outcome.tighten(ix), outcome, replace(limits, states=few))
    for width in BEAM_WIDTHS:
        if outcome.over(limits):
            return
        _beam(ix, outcome.tighten(ix), outcome, width, limits)
    if not outcome.over(limits):
        _best_first(ix, outcome.tighten(ix), outcome, limits)


def _beam(ix: IndexedProblem, bounds: Bounds, outcome: Outcome, width: int, limits: SearchLimits) -> None:
    """Improve the plan from the most promising states per number of finished operators."""
    space = StateSpace(ix, bounds, outcome.plan.makespan_s)
    levels: list[list[State]] = [[] for _ in range(ix.size + 1)]
    levels[0].append(space.root())
    best: State | None = None
    for depth in range(ix.size):
        for state in nsmallest(width, levels[depth], key=lambda state: (state.bound, state.now)):
            if state.bound >= space.upper or outcome.over(limits):
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
        outcome.adopt(_plan(ix, best))


def _best_first(ix: IndexedProblem, bounds: Bounds, outcome: Outcome, limits: SearchLimits) -> None:
    """Expand the state with the least bound until none can beat the plan or a limit is reached."""
    space = StateSpace(ix, bounds, outcome.plan.makespan_s)
    root = space.root()
    queue: list[tuple[int, int, int, State]] = [(root.bound, 0, 0, root)]
    pushed = 0
    while queue and queue[0][0] < space.upper:
        outcome.lower_s = max(outcome.lower_s, queue[0][0] / space.scale * (1.0 - SAME))
        if outcome.over(limits) or len(queue) > MOST_STATES:
            return
        state = heappop(queue)[-1]
        outcome.work["states"] += 1
        for child in space.children(state):
            if child.done == space.full:
                if child.now < space.upper:
                    space.upper = child.now
                    outcome.adopt(_plan(ix, child))
            elif child.bound < space.upper:
                pushed += 1
                heappush(queue, (child.bound, -child.started.bit_count(), pushed, child))
    outcome.lower_s = outcome.plan.makespan_s


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
