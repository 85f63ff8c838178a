"""Problems that fall apart in time: where all of one part precedes all of the next, their optima add up.

Forward passes are chains of such parts (attention heads, experts, branches of a module, and single operators
between them), many of which are alike; each kind is solved once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from time import monotonic

from .bounds import critical_path_s
from .indexed import Core, IndexedProblem, index_problem
from .outcome import Limits, Outcome
from .plan import Plan, replay
from .problem import ScheduleProblem

Part = tuple[int, ...]
"""Positions of operators, in the order of the problem."""

Solver = Callable[[IndexedProblem, Limits], Outcome]


def split(ix: IndexedProblem) -> tuple[Part, ...]:
    """The finest parts such that every operator of one precedes every operator of the next, in order."""
    everything = (1 << ix.size) - 1
    parts: list[Part] = []
    part: list[int] = []
    after, before = everything, 0
    for i in sorted(range(ix.size), key=lambda i: ix.ancestors[i].bit_count()):
        part.append(i)
        before |= 1 << i
        after &= ix.descendants[i]
        if after == everything & ~before:
            parts.append(tuple(sorted(part)))
            part, after = [], everything & ~before
    return tuple(parts)


def solve_series(ix: IndexedProblem, limits: Limits, solver: Solver) -> Outcome:
    """Solve the parts, small ones first, and join their plans; bounds add up.

    Time and states are shared evenly among the kinds still to come, so that what the easy ones leave goes to
    the hard ones. A part may stop once its bound and those known of the others reach the cutoff together.
    """
    parts = split(ix)
    if len(parts) < 2:
        return solver(ix, limits)
    kinds = _kinds(ix, parts)
    least = [critical_path_s(part) * len(places) for part, places in kinds]
    outcomes: dict[int, Outcome] = {}
    work: dict[str, int] = {}
    for k, (part, places) in enumerate(kinds):
        others = sum(least) - least[k]
        cutoff = (limits.cutoff_s - others) / len(places)
        outcome = solver(part, _share(limits, len(kinds) - k, work.get("states", 0), cutoff))
        least[k] = outcome.lower_s * len(places)
        outcomes.update(dict.fromkeys(places, outcome))
        for name, count in outcome.work.items():
            work[name] = work.get(name, 0) + count
    lower = sum(outcome.lower_s for outcome in outcomes.values())
    return Outcome(_joined(ix, [(part, outcomes[k].plan) for k, part in enumerate(parts)]), lower, work)


def _kinds(ix: IndexedProblem, parts: Sequence[Part]) -> list[tuple[IndexedProblem, list[int]]]:
    """Parts that are the same problem, operator by operator, and their places in the series; small ones first."""
    places: dict[Hashable, list[int]] = {}
    for k, part in enumerate(parts):
        places.setdefault(_description(ix, part), []).append(k)
    alike = sorted(places.values(), key=lambda numbers: len(parts[numbers[0]]))
    return [(index_problem(_induced(ix, parts[numbers[0]])), numbers) for numbers in alike]


def _description(ix: IndexedProblem, part: Part) -> Hashable:
    """Operators without their names, and who follows whom within the part."""
    place = {i: k for k, i in enumerate(part)}
    operators = tuple(replace(ix.problem.operators[i], id="") for i in part)
    return operators, tuple(frozenset(place[j] for j in ix.succs[i] if j in place) for i in part)


def _induced(ix: IndexedProblem, part: Part) -> ScheduleProblem:
    """The problem of some operators and the edges among them."""
    operators = tuple(ix.problem.operators[i] for i in part)
    chosen = set(part)
    edges = tuple(
        (ix.problem.operators[i].id, ix.problem.operators[j].id)
        for i in part
        for j in ix.succs[i]
        if j in chosen
    )
    return replace(ix.problem, operators=operators, edges=edges)


def _share(limits: Limits, left: int, used: int, cutoff_s: float) -> Limits:
    """An even share of what is left for one of `left` parts."""
    now = monotonic()
    states = None if limits.states is None else max(0, limits.states - used) // left
    return Limits(now + (limits.deadline - now) / left, cutoff_s, states)


def _joined(ix: IndexedProblem, solved: Sequence[tuple[Part, Plan]]) -> Plan:
    """One plan of the whole: every part begins when the one before has ended."""
    rank = {i: k for k, i in enumerate(ix.order)}
    modes = [0] * ix.size
    cores: list[tuple[Core, ...]] = [()] * ix.size
    sequence: list[int] = []
    for part, plan in solved:
        for k, i in enumerate(part):
            modes[i], cores[i] = plan.modes[k], plan.cores[k]
        start = dict(zip(part, plan.starts, strict=True))
        sequence.extend(sorted(part, key=lambda i: (start[i], rank[i])))
    return replay(ix, sequence, modes, cores)
