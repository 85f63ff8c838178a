"""Core pairs for a schedule that was made without regard to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..indexed import Core, IndexedProblem
from ..plan import Plan, core_choices

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
