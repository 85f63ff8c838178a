"""WHAM's heuristic: ASAP and ALAP times, slack, least slack first; list scheduling and local search around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from .indexed_problem import Core, IndexedMode, IndexedProblem, index_problem
from .schedule_plan import Plan, choose_cores, replay
from .schedule_problem import ScheduleProblem


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


MOST_PLACED = 2**16
"""Operators that list schedules place before modes stay as they are: rounds of small graphs, part of one of large."""


def incumbent(ix: IndexedProblem, enough_s: float, deadline: float) -> tuple[Plan, int]:
    """Best of a few list schedules, improved by changing modes; and the number of schedules tried.

    Least slack first is longest tail first. Stops at a makespan of `enough_s`, at the deadline
    (`monotonic`), or after `MOST_PLACED` operators.
    """
    tails = ix.tails(ix.shortest)
    priority = [tails[i] + ix.shortest[i] for i in range(ix.size)]
    best = list_schedule(ix, [0] * ix.size, priority)
    tried = 1
    if best.makespan_s <= enough_s or all(len(row) == 1 for row in ix.modes):
        return best, tried
    for modes in (_least_work(ix), _slack_modes(ix, tails)):
        for drain in (False, True):
            best = min(
                best, list_schedule(ix, modes, priority, drain=drain), key=lambda plan: plan.makespan_s
            )
            tried += 1
    improved = True
    while improved and best.makespan_s > enough_s:
        improved = False
        for i, m in [(i, m) for i, row in enumerate(ix.modes) for m in range(len(row))]:
            if tried * ix.size > MOST_PLACED or monotonic() >= deadline:
                return best, tried
            if m != best.modes[i]:
                plan = _changed(ix, best, i, m, priority)
                tried += 2
                if plan.makespan_s < best.makespan_s:
                    best, improved = plan, True
    return best, tried


def _changed(ix: IndexedProblem, plan: Plan, i: int, mode: int, priority: Sequence[float]) -> Plan:
    """The better list schedule with the mode of one operator changed."""
    modes = list(plan.modes)
    modes[i] = mode
    eager = list_schedule(ix, modes, priority)
    patient = list_schedule(ix, modes, priority, drain=True)
    return eager if eager.makespan_s <= patient.makespan_s else patient


def _least_work(ix: IndexedProblem) -> list[int]:
    """The mode of every operator that takes least of the chip, all resources weighed alike."""
    return [min((_share(ix, mode), m) for m, mode in enumerate(row))[1] for row in ix.modes]


def _share(ix: IndexedProblem, mode: IndexedMode) -> float:
    """Duration times the shares of the resources that a mode holds, s."""
    return mode.latency_s * sum(held / count for held, count in zip(mode.demand, ix.capacity, strict=True))


def _slack_modes(ix: IndexedProblem, tails: Sequence[float]) -> list[int]:
    """Of the modes that do not make an operator critical, the one that takes least of the chip."""
    early = _asap(ix)
    length = max((early[i] + ix.shortest[i] + tails[i] for i in range(ix.size)), default=0.0)
    chosen = []
    for i, row in enumerate(ix.modes):
        fitting = [m for m in range(len(row)) if m == 0 or early[i] + row[m].latency_s + tails[i] <= length]
        chosen.append(min((_share(ix, row[m]), m) for m in fitting)[1])
    return chosen


def list_schedule(
    ix: IndexedProblem, modes: Sequence[int], priority: Sequence[float], *, drain: bool = False
) -> Plan:
    """Parallel schedule generation: at every event start what fits, highest priority first.

    With `drain`, an operator in a mode that takes the whole chip and has to wait keeps later ones from
    starting before it.
    """
    ranked = sorted(range(ix.size), key=lambda i: (-priority[i], i))
    waiting = [mask.bit_count() for mask in ix.preds]
    ready = [i for i in ranked if waiting[i] == 0]
    running: list[tuple[float, int]] = []
    busy: set[Core] = set()
    cores: list[tuple[Core, ...]] = [()] * ix.size
    sequence: list[int] = []
    rank = {i: k for k, i in enumerate(ranked)}
    now, blocking, core_running, left_over = 0.0, False, 0, ix.capacity[-1]
    whole = [row[m] for row, m in zip(ix.whole, modes, strict=True)]
    draw = [row[m].demand[-1] if ix.problem.bandwidth else 0 for row, m in zip(ix.modes, modes, strict=True)]
    while ready or running:
        held_back = False
        left = []
        for i in ready:
            fits: tuple[Core, ...] | None = None
            if draw[i] > left_over:
                pass
            elif ix.core[i] and (blocking or held_back or (whole[i] and core_running)):
                held_back |= drain and whole[i]
            elif whole[i]:
                fits, blocking = (), True
            else:
                fits = choose_cores(ix, i, modes[i], busy)
            if fits is None:
                left.append(i)
                continue
            cores[i] = fits
            busy.update(fits)
            core_running += ix.core[i]
            left_over -= draw[i]
            running.append((now + ix.latency[i][modes[i]], i))
            sequence.append(i)
        now = min(end for end, _ in running)
        ready = left
        for _, i in [entry for entry in running if entry[0] <= now]:
            busy.difference_update(cores[i])
            core_running -= ix.core[i]
            blocking &= not whole[i]
            left_over += draw[i]
            for j in ix.succs[i]:
                waiting[j] -= 1
                if waiting[j] == 0:
                    ready.append(j)
        running = [entry for entry in running if entry[0] > now]
        ready.sort(key=rank.__getitem__)
    return replay(ix, sequence, modes, cores)
