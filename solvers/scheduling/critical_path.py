"""WHAM's heuristic: ASAP and ALAP times, slack, least slack first; list scheduling and local search around
it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from .indexed import Core, IndexedProblem, index_problem
from .plan import Plan, choose_cores, replay
from .problem import ScheduleProblem


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """Earliest and latest starts without core limits, every operator in its faster mode; seconds by id.

    `conflicts` counts, per unit type, the pairs of operators whose ASAP intervals overlap beyond what the
    cores of that type can take: WHAM's signal that more cores of this type would pay.
    """

    length_s: float
    asap_s: Mapping[str, float]
    alap_s: Mapping[str, float]
    slack_s: Mapping[str, float]
    conflicts: Mapping[str, int]


def critical_path(problem: ScheduleProblem) -> CriticalPath:
    """ASAP, ALAP, slack and conflicts of a problem."""
    ix = index_problem(problem)
    ids = [operator.id for operator in problem.operators]
    tails = ix.tails(ix.shortest)
    early = _asap(ix)
    length = max((early[i] + ix.shortest[i] + tails[i] for i in range(ix.size)), default=0.0)
    late = [length - tails[i] - ix.shortest[i] for i in range(ix.size)]
    return CriticalPath(
        length_s=length,
        asap_s=dict(zip(ids, early, strict=True)),
        alap_s=dict(zip(ids, late, strict=True)),
        slack_s={ids[i]: max(0.0, late[i] - early[i]) for i in range(ix.size)},
        conflicts={name: _conflicts(ix, early, u) for u, name in enumerate(ix.unit_names)},
    )


def _asap(ix: IndexedProblem) -> list[float]:
    early = [0.0] * ix.size
    for i in ix.order:
        for j in ix.succs[i]:
            early[j] = max(early[j], early[i] + ix.shortest[i])
    return early


def _conflicts(ix: IndexedProblem, early: Sequence[float], unit: int) -> int:
    """Operators of a unit type that find all its cores taken at their ASAP start."""
    users = sorted((early[i], i) for i in range(ix.size) if unit in ix.units[i])
    found = 0
    for k, (start, _) in enumerate(users):
        taken = sum(before + ix.shortest[j] > start for before, j in users[:k])
        found += taken >= ix.capacity[unit]
    return found


def incumbent(ix: IndexedProblem, enough_s: float, deadline: float) -> tuple[Plan, int]:
    """Best of a few list schedules, improved by flipping modes; and the number of schedules tried.

    Least slack first is longest tail first. Stops at a makespan of `enough_s` or at the deadline
    (`monotonic`).
    """
    tails = ix.tails(ix.shortest)
    priority = [tails[i] + ix.shortest[i] for i in range(ix.size)]
    fastest = [ix.parallel[i] < ix.single[i] for i in range(ix.size)]
    best = list_schedule(ix, fastest, priority)
    tried = 1
    if best.makespan_s <= enough_s or not any(fastest):
        return best, tried
    for parallel in ([False] * ix.size, _slack_modes(ix, tails)):
        for drain in (False, True):
            best = min(
                best, list_schedule(ix, parallel, priority, drain=drain), key=lambda plan: plan.makespan_s
            )
            tried += 1
    improved = True
    while improved and best.makespan_s > enough_s and monotonic() < deadline:
        improved = False
        for i in range(ix.size):
            if ix.parallel[i] < ix.single[i]:
                plan = _flip(ix, best, i, priority)
                tried += 2
                if plan.makespan_s < best.makespan_s:
                    best, improved = plan, True
    return best, tried


def _flip(ix: IndexedProblem, plan: Plan, i: int, priority: Sequence[float]) -> Plan:
    """The better list schedule with the mode of one operator changed."""
    modes = list(plan.parallel)
    modes[i] = not modes[i]
    eager = list_schedule(ix, modes, priority)
    patient = list_schedule(ix, modes, priority, drain=True)
    return eager if eager.makespan_s <= patient.makespan_s else patient


def _slack_modes(ix: IndexedProblem, tails: Sequence[float]) -> list[bool]:
    """Core-parallel only where a single core would make the operator critical."""
    early = _asap(ix)
    length = max((early[i] + ix.shortest[i] + tails[i] for i in range(ix.size)), default=0.0)
    return [
        ix.parallel[i] < ix.single[i] and early[i] + ix.single[i] + tails[i] > length for i in range(ix.size)
    ]


def list_schedule(
    ix: IndexedProblem, parallel: Sequence[bool], priority: Sequence[float], *, drain: bool = False
) -> Plan:
    """Parallel schedule generation: at every event start what fits, highest priority first.

    With `drain`, a core-parallel operator that has to wait keeps later ones from starting before it.
    """
    ranked = sorted(range(ix.size), key=lambda i: (-priority[i], i))
    waiting = [mask.bit_count() for mask in ix.preds]
    ready = [i for i in ranked if waiting[i] == 0]
    running: list[tuple[float, int]] = []
    busy: set[Core] = set()
    cores: list[tuple[Core, ...]] = [()] * ix.size
    sequence: list[int] = []
    rank = {i: k for k, i in enumerate(ranked)}
    now, blocking, core_running = 0.0, False, 0
    while ready or running:
        held_back = False
        left = []
        for i in ready:
            fits: tuple[Core, ...] | None = None
            if ix.core[i] and (blocking or held_back or (parallel[i] and core_running)):
                held_back |= drain and parallel[i]
            elif parallel[i]:
                fits, blocking = (), True
            else:
                fits = choose_cores(ix, i, busy)
            if fits is None:
                left.append(i)
                continue
            cores[i] = fits
            busy.update(fits)
            core_running += ix.core[i]
            running.append((now + (ix.parallel[i] if parallel[i] else ix.single[i]), i))
            sequence.append(i)
        now = min(end for end, _ in running)
        ready = left
        for _, i in [entry for entry in running if entry[0] <= now]:
            busy.difference_update(cores[i])
            core_running -= ix.core[i]
            blocking &= not parallel[i]
            for j in ix.succs[i]:
                waiting[j] -= 1
                if waiting[j] == 0:
                    ready.append(j)
        running = [entry for entry in running if entry[0] > now]
        ready.sort(key=rank.__getitem__)
    return replay(ix, sequence, parallel, cores)
