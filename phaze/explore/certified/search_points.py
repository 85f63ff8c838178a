"""Points of a certified search: what can be asked of them, and those of one workload.

A point of one workload is an architecture in one config (microbatch, width, recompute, recipe), under the plan that
is best for its throughput. Those of several workloads are in `common_points`.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.explore.certified.block_screening import Screened, pool_of
from phaze.explore.certified.dealt_configs import Choose, DealtConfigs
from phaze.explore.certified.search_pieces import (
    LEAST,
    BatchPiece,
    BlockPiece,
    Looked,
    PlanPiece,
    SearchContext,
)
from phaze.explore.certified.search_state import Point, PointPool, Reached, Relevance
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.frontier.pareto_archive import Key
from phaze.explore.frontier.search_axes import SearchAxes
from phaze.explore.request.explore_request import Task
from phaze.explore.request.search_progress import Clock
from phaze.explore.request.search_resources import ALONE, SearchResources
from phaze.scheduling.effort import Patience
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import LAST_DIGITS


class SearchPoints(Protocol):
    """All points of a search: `configs` of every candidate, that many are tightened and scheduled exactly together.

    `seeds`: how many are taken of each class of candidates before others are bounded.
    """

    candidates: Candidates
    axes: SearchAxes
    configs: int
    batch: int
    exact_batch: int
    seeds: int

    @property
    def workers(self) -> int:
        """How many blocks `screened_aside` bounds side by side."""

    @property
    def asks_plans(self) -> bool:
        """Whether only its plan tells what a point comes to."""

    def screened_aside(
        self, wave: list[NDArray[np.int64]], relevance: Relevance, taken: PointPool
    ) -> list[tuple[int, Screened]]:
        """`screen` of blocks of numbers, by workers: how many of each keep the budgets, and what is left."""

    def roof(self, block: Block) -> Floats:
        """What leads of candidates at most, roughly: those of the highest are tried first, (A,)."""

    def promising(self, block: Block) -> Floats:
        """Throughput or score that points of candidates may reach, (configs, A); 0 where it is not looked at."""

    def hopes(self, block: Block, rows: Rows, configs: Rows, value: Floats) -> PointPool:
        """Points of some candidates that reach no more than such a value, (A,) each."""

    def screened(
        self, blocks: Sequence[Block], relevance: Relevance, taken: PointPool, threads: ThreadPoolExecutor
    ) -> list[Screened]:
        """What bounds leave of each block; points that are `taken` are passed over. `threads` may help."""

    def foresee(self, choose: Choose) -> None:
        """Tell how the next `look` goes on: `choose` tells the batch that comes first of points in some configs."""

    def look(self, points: PointPool, relevance: Relevance, effort: SolveLimits | None) -> Looked:
        """Points of one config tightened, with an effort evaluated."""

    def measured(self, points: PointPool, value: Floats, effort: SolveLimits) -> tuple[Floats, Floats]:
        """Values of points of one config of some throughputs (A,) whose plans tell more than the time they take."""

    def key(self, point: Point, found: Reached) -> Key:
        """Key of a point in an archive: of equal ones the least is kept."""


@dataclass
class WorkloadPoints:
    """The points of one workload."""

    context: SearchContext
    clock: Clock
    resources: SearchResources
    batch: int = 4096
    exact_batch: int = 256
    seeds: int = 3
    dealt: DealtConfigs | None = None
    _choose: Choose | None = None

    @classmethod
    def of(
        cls,
        candidates: Candidates,
        task: Task,
        clock: Clock,
        axes: SearchAxes,
        *,
        least: float = 0.0,
        resources: SearchResources = ALONE,
        evaluator: Evaluator | None = None,
    ) -> WorkloadPoints:
        """Points of a task that reach `least` samples/s; `evaluator`: of the task, on hardware of the whole space."""
        longest_s = task.cluster.global_batch / least * (1 + LAST_DIGITS) if least > 0 else np.inf
        context = SearchContext(candidates, task, axes, longest_s, resources.memo)
        if evaluator is not None:
            context.evaluator = evaluator
        return cls(context, clock, resources)

    def __post_init__(self) -> None:
        """Shorter names."""
        self.candidates, self.axes = self.context.candidates, self.context.axes
        self.configs = len(self.context.evaluator.configs)

    @property
    def workers(self) -> int:
        """How many there are."""
        return self.resources.executor.workers

    @property
    def asks_plans(self) -> bool:
        """See `SearchPoints.asks_plans`."""
        return self.axes.needs_plan or self.context.drawn_limit_w is not None

    def roof(self, block: Block) -> Floats:
        """Throughput of model FLOPs at peak, (A,)."""
        return self.context.screen(Relevance(self.axes.archive()), self.clock).roof(block.table)

    def promising(self, block: Block) -> Floats:
        """See `SearchPoints.promising`."""
        if self.dealt is not None:
            return self.dealt.promising(block, self.clock)
        return self.context.screen(Relevance(self.axes.archive()), self.clock).promising(block.table)

    def hopes(self, block: Block, rows: Rows, configs: Rows, value: Floats) -> PointPool:
        """See `SearchPoints.hopes`."""
        view, seconds = self.context.view(block), self.context.task.cluster.global_batch / value
        others, lead = np.zeros((len(rows), len(self.axes.others))), np.zeros(len(rows))
        for k in np.unique(configs).tolist():
            at = np.flatnonzero(configs == k)
            others[at], lead[at] = view.optimistic(view.evaluator.configs[k], rows[at], seconds[at])
        return pool_of(block, rows, configs, others, lead)

    def screened(
        self, blocks: Sequence[Block], relevance: Relevance, taken: PointPool, threads: ThreadPoolExecutor
    ) -> list[Screened]:
        """See `SearchPoints.screened`."""
        if self.dealt is not None:
            return self.dealt.screened(blocks, relevance, taken, self.clock)
        screen = self.context.screen(relevance, self.clock)
        return list(threads.map(lambda block: screen.run(block, taken), blocks))

    def foresee(self, choose: Choose) -> None:
        """See `SearchPoints.foresee`."""
        self._choose = choose

    def screened_aside(
        self, wave: list[NDArray[np.int64]], relevance: Relevance, taken: PointPool
    ) -> list[tuple[int, Screened]]:
        """See `SearchPoints.screened_aside`."""
        pieces = [BlockPiece(numbers, relevance, taken, self.clock) for numbers in wave]
        return list(self.resources.executor.map(self.context, pieces))

    def look(self, points: PointPool, relevance: Relevance, effort: SolveLimits | None) -> Looked:
        """See `SearchPoints.look`; by as many workers as a batch is worth."""
        batch, choose = self._batch(points, relevance, effort), self._choose
        self._choose = None
        if self.dealt is not None:
            return self.dealt.look(batch, choose, lambda some: self._batch(some, relevance, effort))
        workers = self.resources.executor.workers
        if min(workers, len(points) // LEAST) < 2:
            return batch.on(self.context)
        parts = list(batch.divided(workers))
        found = self.resources.executor.map(self.context, [piece for _, piece in parts])
        return Looked.join([(at, part) for (at, _), part in zip(parts, found, strict=True)])

    def _batch(self, points: PointPool, relevance: Relevance, effort: SolveLimits | None) -> BatchPiece:
        least = relevance.known.threshold(points.others)
        left, first = self.clock.left, not (least > 0).any()
        # The first answer is waited for, unless somebody interrupts.
        patience = Patience(SolveLimits(left), SolveLimits(self.clock.patience if first else left))
        return BatchPiece(points.number, int(points.config[0]), least, effort, patience)

    def measured(self, points: PointPool, value: Floats, effort: SolveLimits) -> tuple[Floats, Floats]:
        """See `SearchPoints.measured`."""
        seconds = self.context.task.cluster.global_batch / value
        return PlanPiece(points.number, int(points.config[0]), seconds, effort).on(self.context)

    def key(self, point: Point, found: Reached) -> Key:
        """By area, then number, then config."""
        return found.area_mm2, point[0] * self.configs + point[1]
