"""The configuration pruner: a tree of core dimensions from the largest by halving, cut where it stops paying.

Every child halves one dimension. A level that does not improve on the best above it is passed, but only so many in
a row (hysteresis); beyond that nothing below is looked at. Several parents may lead to the same dimensions: the most
hopeful way there counts. Dimensions that no design of the budgets has are passed at no charge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Value = tuple[float, ...]
"""What dimensions are worth, to be maximised."""
Node = tuple[int, ...]
"""Which of the starting points, then how often each dimension was halved."""


@dataclass(frozen=True, slots=True)
class Visit:
    """Dimensions that were tried: what they are worth (None: no design), and the fruitless levels up to them.

    `parent`: where they were reached from, None at the top. `pruned`: nothing below was looked at for want of
    improvement.
    """

    node: Node
    parent: Node | None
    value: Value | None
    misses: int
    pruned: bool


def explore(
    roots: int,
    depths: Sequence[int],
    evaluate: Callable[[Sequence[Node]], Sequence[Value | None]],
    hysteresis: int,
) -> list[Visit]:
    """Try `roots` trees level by level; dimension k can be halved `depths[k]` times.

    `evaluate` gives the values of some nodes. `hysteresis`: so many levels in a row may fail to improve.
    """
    level: dict[Node, _Way] = {(r, *(0 for _ in depths)): _Way(None, None, 0) for r in range(roots)}
    visits: list[Visit] = []
    while level:
        nodes = sorted(level)
        below: dict[Node, _Way] = {}
        for node, value in zip(nodes, evaluate(nodes), strict=True):
            way = level[node]
            improved = value is not None and (way.best is None or value > way.best)
            misses = way.misses if value is None else 0 if improved else way.misses + 1
            pruned = misses > hysteresis
            visits.append(Visit(node, way.parent, value, misses, pruned))
            if not pruned:
                _add_children(below, depths, _Way(node, value if improved else way.best, misses))
        level = below
    return visits


@dataclass(frozen=True, slots=True)
class _Way:
    """How dimensions were reached: from where, past which best value, after how many fruitless levels."""

    parent: Node | None
    best: Value | None
    misses: int

    @property
    def order(self) -> tuple[int, int, tuple[float, ...]]:
        """Fewest fruitless levels first, then the way that is easiest to improve on."""
        return self.misses, 0 if self.best is None else 1, self.best or ()


def _add_children(level: dict[Node, _Way], depths: Sequence[int], way: _Way) -> None:
    assert way.parent is not None
    for k, depth in enumerate(depths, 1):
        if way.parent[k] < depth:
            child = (*way.parent[:k], way.parent[k] + 1, *way.parent[k + 1 :])
            known = level.get(child)
            if known is None or way.order < known.order:
                level[child] = way
