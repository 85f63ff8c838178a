"""Optimal schedules: list scheduling, then search over states, under bounds that grow with the effort."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isinf
from time import monotonic

from ...arrays import Floats
from ..improve.local_search import follow, polish, suggest, vary
from ..indexed_problem import IndexedProblem
from ..list_scheduling import incumbent
from ..mode_relaxation import weightings
from ..phases.phase_sequences import MOST_OPERATORS
from ..phases.phases_with_work import PhaseSearch, priced
from ..phases.priced_phases import Prices
from ..schedule_bounds import critical_path_s
from ..schedule_plan import SAME, Outcome, SearchLimits
from .compact_search import CompactSearch, packable
from .core_pairs import search_paired, with_pairs

FEW_STATES, MORE_STATES = 300, 3_000
"""States expanded before a narrow beam is worth its time, and before all else is."""

MANY_STATES, WIDE_STATES = 100_000, 30_000
"""States expanded under the stronger bounds before local search is worth its time, and of graphs too wide for bounds of
states in phases."""

GREEDS = (1.3, 1.1)
"""How greedily sequences of phases are looked for, in turn, before the shortest: greedy ones make schedules that it
needs not beat."""

FEW_LABELS, MANY_LABELS = 1 << 13, 1 << 17
"""Labels of sequences of phases expanded before all else, and once local search has found what it can."""

SOON = 0.2
"""Most of the time left that each of these may take: plain functions need long for wide graphs."""

PHASED = 0.5
"""The same for sequences of phases."""

PRICED = 0.05
"""The same for the prices of these."""

VARIED = 0.8
"""The same for local search around the best plan of a wide graph."""

FEW_TURNS, MANY_TURNS = 3, 1_000
"""Most turns of that."""

BEAM_WIDTHS = (10, 100, 1_000)
"""States kept per number of ended operators; the next only pays where the last left a gap."""

LAST_WIDTHS = (10_000, 100_000)
"""The same where best-first search has run out of memory."""

WIDER = 10
"""How much more a beam takes than the one before."""


def solve_exact(ix: IndexedProblem, limits: SearchLimits) -> Outcome:
    """Best plan and bound within the limits; the plan is optimal unless one of them is reached."""
    plan, tried = incumbent(ix, critical_path_s(ix), deadline=0.0)
    outcome = Outcome(plan, critical_path_s(ix), {"list_schedules": tried, "states": 0})
    if packable(ix):
        _stage(ix, outcome, _soon(limits), states=FEW_STATES)
        _stage(ix, outcome, _soon(limits), width=BEAM_WIDTHS[0])
        _stage(ix, outcome, _soon(limits), states=MORE_STATES)
    if ix.pair is not None and not outcome.proven:
        _without_pairs(ix, outcome, limits)
    if not outcome.proven:
        _improve(ix, outcome, limits)
        (_search if packable(ix) else search_paired)(ix, outcome, limits)
    return outcome


def _without_pairs(ix: IndexedProblem, outcome: Outcome, limits: SearchLimits) -> None:
    """Bound by the same problem without pairs, for half of the time; its schedule, where cores allow."""
    loose, now = replace(ix, pair=None), monotonic()
    found = solve_exact(loose, replace(limits, deadline=now + (limits.deadline - now) / 2.0))
    for name, count in found.work.items():
        outcome.work[name] += count
    outcome.lower_s = max(outcome.lower_s, min(found.lower_s, outcome.plan.makespan_s))
    plan = with_pairs(ix, found.plan)
    if plan is not None:
        outcome.adopt(plan)


def _improve(ix: IndexedProblem, outcome: Outcome, limits: SearchLimits) -> None:
    """List schedules around the best one, for a fifth of the time: only where some states do not settle it."""
    now = monotonic()
    plan, tried = incumbent(ix, outcome.lower_s, now + (limits.deadline - now) / 5.0)
    outcome.work["list_schedules"] += tried
    outcome.adopt(plan)


def _search(ix: IndexedProblem, outcome: Outcome, limits: SearchLimits) -> None:
    """Beams as wide as the limits allow, then best-first search, under weightings of paths."""
    if outcome.over(limits):
        return
    rows = weightings(ix, outcome.tighten(ix))
    wide = ix.size > MOST_OPERATORS
    _stage(ix, outcome, _soon(limits), rows=rows, width=BEAM_WIDTHS[0])
    settled = wide and _few_phases(ix, outcome, limits, rows)
    _stage(ix, outcome, _soon(limits), rows=rows, states=WIDE_STATES if wide else MANY_STATES)
    if outcome.over(limits):
        return
    if not wide:
        settled = _few_phases(ix, outcome, limits, rows)
        suggest(ix, outcome, limits)
    if not settled:
        _shortest_phases(ix, outcome, limits, weightings(ix, outcome.tighten(ix)), MANY_LABELS)
    for width in BEAM_WIDTHS[1:]:
        began, before = monotonic(), outcome.work["states"]
        _stage(ix, outcome, limits, rows=rows, width=width)
        if not _affordable(outcome, limits, monotonic() - began, outcome.work["states"] - before):
            break
    polish(ix, outcome, limits)
    if wide:
        _vary(ix, outcome, limits)
    _stage(ix, outcome, limits, rows=rows)
    for width in LAST_WIDTHS:
        _stage(ix, outcome, limits, rows=rows, width=width)


def _vary(ix: IndexedProblem, outcome: Outcome, limits: SearchLimits) -> None:
    """Local search in turns, for most of what is left of the time; few where states are limited, or time is not."""
    part = _soon(limits, VARIED)
    unlimited = isinf(limits.deadline) or limits.states is not None
    for turn in range(FEW_TURNS if unlimited else MANY_TURNS):
        if outcome.over(part):
            return
        vary(ix, outcome, part, turn)


def _few_phases(ix: IndexedProblem, outcome: Outcome, limits: SearchLimits, rows: Floats) -> bool:
    """Greedy sequences of phases for their schedules, then the shortest one; whether more labels would change
    nothing."""
    for greed in GREEDS:
        _phases(ix, outcome, limits, rows, FEW_LABELS, greed)
    return _shortest_phases(ix, outcome, limits, rows, FEW_LABELS)


def _shortest_phases(
    ix: IndexedProblem, outcome: Outcome, limits: SearchLimits, rows: Floats, labels: int
) -> bool:
    """The shortest sequence of phases under prices made for the best schedule known; whether more labels would change
    nothing."""
    if outcome.over(limits):
        return True
    bounds = outcome.tighten(ix)
    prices = priced(ix, bounds, rows, outcome.plan.makespan_s, _soon(limits, PRICED))
    return _phases(ix, outcome, limits, rows, labels, prices=prices)


def _phases(
    ix: IndexedProblem,
    outcome: Outcome,
    limits: SearchLimits,
    rows: Floats,
    labels: int,
    greed: float = 1.0,
    prices: Prices | None = None,
) -> bool:
    """Bound by sequences of phases that owe work; the shortest one starts a local search. Whether more labels would
    change nothing."""
    if outcome.over(limits):
        return True
    bounds = outcome.tighten(ix)
    search = PhaseSearch(ix, bounds, outcome.plan.makespan_s, rows, 4 * labels, greed, prices)
    left = inf if limits.states is None else (limits.states - outcome.work["states"]) / 2
    search.run(min(labels, left), _soon(limits, PHASED))
    outcome.work["states"] += search.expanded
    outcome.lower_s = max(outcome.lower_s, search.lower_s)
    order = search.order()
    if order is not None:
        follow(ix, outcome, limits, order)
    return search.settled


def _soon(limits: SearchLimits, part: float = SOON) -> SearchLimits:
    """Limits with less time."""
    now = monotonic()
    return replace(limits, deadline=now + part * (limits.deadline - now))


def _affordable(outcome: Outcome, limits: SearchLimits, last_s: float, last_states: int) -> bool:
    """Whether the next wider beam, after one that took so much, leaves half of the limits to best-first search."""
    left = inf if limits.states is None else limits.states - outcome.work["states"]
    return 2 * WIDER * last_s < limits.deadline - monotonic() and 2 * WIDER * last_states < left


def _stage(
    ix: IndexedProblem,
    outcome: Outcome,
    limits: SearchLimits,
    *,
    rows: Floats | None = None,
    width: int = 0,
    states: float = inf,
) -> None:
    """One beam, or with a width of 0 best-first search, adopted into the outcome."""
    if outcome.over(limits):
        return
    bounds = outcome.tighten(ix)
    if outcome.proven:
        return
    search = CompactSearch(ix, bounds, outcome.plan.makespan_s, rows)
    if limits.states is not None:
        states = min(states, limits.states - outcome.work["states"])
    if width:
        search.beam(width, states, limits)
    else:
        search.best_first(states, limits)
    outcome.work["states"] += search.states
    plan = search.plan()
    if plan is not None:
        outcome.adopt(plan)
    if not width:
        outcome.lower_s = max(outcome.lower_s, min(search.lower_s * (1.0 - SAME), outcome.plan.makespan_s))
