"""Order among operators."""

from __future__ import annotations

from collections.abc import Sequence


def topological_order(successors: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Positions, each after its predecessors; those on or behind a cycle are left out."""
    waiting = [0] * len(successors)
    for row in successors:
        for j in row:
            waiting[j] += 1
    order = [i for i, count in enumerate(waiting) if count == 0]
    for i in order:
        for j in successors[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                order.append(j)
    return tuple(order)
