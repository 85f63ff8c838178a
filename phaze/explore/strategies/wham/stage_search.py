"""The local search of one stage: core dimensions from the largest by halving, counts by conflicts, the best designs
kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.explore.strategies.wham.core_growth import Growth, GrowthStep, StageMetric, StageWorth, grow_cores
from phaze.explore.strategies.wham.core_latencies import CoreGrid, StageKind, core_grids
from phaze.explore.strategies.wham.wham_axes import SearchAxes

Value = tuple[float, ...]
"""Value of dimensions, to be maximised."""
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


def explore_dimensions(
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


@dataclass(frozen=True, slots=True)
class StageDesign:
    """A design that a stage asks for: its number as a candidate, what it is worth there, where it was found."""

    number: int
    worth: StageWorth
    seconds: float
    critical_s: float
    tdp_w: float
    area_mm2: float
    node: Node


@dataclass(frozen=True)
class LocalResult:
    """Result for one kind of stage: dimensions in the order visited, cores added, the best designs."""

    kind: StageKind
    visits: tuple[Visit, ...]
    growths: dict[Node, Growth]
    designs: tuple[StageDesign, ...]


@dataclass
class LocalSearch:
    """Searches the stages of one config; what is costed for one kind of stage serves the others."""

    axes: SearchAxes
    evaluator: Evaluator
    config: TrainingConfig
    _grids: dict[Node, CoreGrid | None] = field(default_factory=dict)

    def run(self, kind: StageKind, metric: StageMetric, hysteresis: int, top_k: int) -> LocalResult:
        """The `top_k` best designs for a kind of stage, at most one for each choice of dimensions."""
        growths: dict[Node, Growth] = {}

        def evaluate(nodes: Sequence[Node]) -> list[StageWorth | None]:
            self._cost(nodes)
            for node in nodes:
                grid = self._grids[node]
                if grid is not None and (growth := grow_cores(grid, kind, metric)) is not None:
                    growths[node] = growth
            return [growths[node].best.worth if node in growths else None for node in nodes]

        depths = [len(options) - 1 for options in self._halved.values()]
        visits = explore_dimensions(len(self._starts), depths, evaluate, hysteresis)
        grown = (self._design(node, growth.best, self.grid(node)) for node, growth in growths.items())
        designs = _distinct(sorted(grown, key=_rank))[:top_k]
        if self.axes.clocked:
            designs = self._at_best_clocks(designs, growths, kind, metric)
        return LocalResult(kind, tuple(visits), growths, tuple(designs))

    def _at_best_clocks(
        self,
        designs: Sequence[StageDesign],
        growths: dict[Node, Growth],
        kind: StageKind,
        metric: StageMetric,
    ) -> list[StageDesign]:
        """The designs of the same dimensions at the clock that is best for the metric, cores added at that clock.

        `growths` gets those that lead there.
        """
        clocks = [{k: option} for k in self.axes.clocked for option in self.axes.descending(k)]
        pairs = [(design.node, self.chosen(design.node) | clock) for design in designs for clock in clocks]
        grids = core_grids(self.axes, self.evaluator, self.config, [chosen for _, chosen in pairs])
        best = {design.node: design for design in designs}
        for (node, _), grid in zip(pairs, grids, strict=True):
            growth = None if grid is None else grow_cores(grid, kind, metric)
            if grid is not None and growth is not None:
                found = self._design(node, growth.best, grid)
                if _rank(found) < _rank(best[node]):
                    best[node], growths[node] = found, growth
        return sorted(best.values(), key=_rank)

    @cached_property
    def _starts(self) -> list[tuple[int, ...]]:
        """Every combination of the axes that are enumerated."""
        axes = self.axes.space.axes
        return list(itertools.product(*(range(len(axes[k].options)) for k in self.axes.enumerated)))

    @cached_property
    def _halved(self) -> dict[int, tuple[int, ...]]:
        return {axis: self.axes.descending(axis) for axis in self.axes.halved}

    def chosen(self, node: Node) -> dict[int, int]:
        """Option of every axis but the core counts, by position of the axis."""
        start = zip(self.axes.enumerated, self._starts[node[0]], strict=True)
        halved = zip(self._halved.items(), node[1:], strict=True)
        return dict(start) | {axis: options[halvings] for (axis, options), halvings in halved}

    def fields(self, node: Node) -> dict[str, str]:
        """The same as hardware fields with their values."""
        axes = self.axes.space.axes
        chosen = sorted(self.chosen(node).items())
        pairs = ((axes[k].fields, axes[k].options[option]) for k, option in chosen)
        return {
            name: str(value) for fields, option in pairs for name, value in zip(fields, option, strict=True)
        }

    def grid(self, node: Node) -> CoreGrid:
        """The costed core counts of dimensions that have a design."""
        grid = self._grids[node]
        assert grid is not None
        return grid

    def _cost(self, nodes: Sequence[Node]) -> None:
        new = [node for node in nodes if node not in self._grids]
        if new:
            choices = [self.chosen(node) for node in new]
            grids = core_grids(self.axes, self.evaluator, self.config, choices)
            self._grids.update(zip(new, grids, strict=True))

    def _design(self, node: Node, best: GrowthStep, grid: CoreGrid) -> StageDesign:
        return StageDesign(
            number=int(grid.numbers[best.counts]),
            worth=best.worth,
            seconds=best.time.seconds,
            critical_s=best.time.critical_s,
            tdp_w=float(grid.tdp_w[best.counts]),
            area_mm2=float(grid.area_mm2[best.counts]),
            node=node,
        )


def _distinct(ranked: Sequence[StageDesign]) -> list[StageDesign]:
    """The first of every group of designs that are worth the same and draw the same power."""
    first: dict[tuple[StageWorth, float], StageDesign] = {}
    for design in ranked:
        first.setdefault((design.worth, design.tdp_w), design)
    return list(first.values())


def _rank(design: StageDesign) -> tuple[StageWorth, float, float, int]:
    """Best first; of equals the one of lower TDP, then smaller area, then smaller number."""
    return tuple(-part for part in design.worth), design.tdp_w, design.area_mm2, design.number
