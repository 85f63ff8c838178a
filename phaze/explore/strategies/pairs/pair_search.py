"""The best pipeline of two designs, best first over configs and pairs, with a bound of what is left."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from phaze.arrays import Rows
from phaze.explore.evaluation.design_candidates import Block
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.request.explore_request import Task
from phaze.explore.request.search_progress import Clock, Progress
from phaze.explore.strategies.pairs.pair_frontier import ConfigBounds, PairFrontier
from phaze.explore.strategies.wham.mixed_designs import MixedDesigns, MixedPlan
from phaze.explore.strategies.wham.wham_target import WhamTarget
from phaze.scheduling.passes import SolveLimits


@dataclass
class PairTally:
    """Work of a search: configs, those whose bound did not rule them out, designs worked out, and pairs of them.

    `designs`: told apart, over all configs that were opened. `bounded`: pairs of what no other one dominates, as last
    bounded. `searched`: pairs whose pipelines were searched.
    """

    configs: int = 0
    opened: int = 0
    designs: int = 0
    worked_out: int = 0
    bounded: int = 0
    searched: int = 0


@dataclass(frozen=True)
class PairFound:
    """The best pipeline of two designs that is faster than what was known, and seconds that none is faster than."""

    plan: MixedPlan | None
    seconds: float
    bound_s: float


def deep_task(task: Task) -> Task:
    """The task among pipelines of two or more stages; of one stage there is no second design."""
    given = task.held.get("pipeline") or task.plans.pipeline or range(2, task.cluster.devices + 1)
    return replace(task, held={**task.held, "pipeline": tuple(p for p in given if p > 1)})


@dataclass
class PairSearch:
    """Pipelines in which every stage has one of two designs of a block (`evaluator`: of its table, of a `deep_task`).

    `below_s`: iterations that have to be beaten by the share `gap`; smaller gains are not looked for.
    """

    evaluator: Evaluator
    block: Block
    below_s: float
    clock: Clock
    progress: Progress
    gap: float = 0.0
    tally: PairTally = field(default_factory=PairTally)
    found: MixedPlan | None = None
    _settled: dict[tuple[int, int, int], float] = field(default_factory=dict)

    def best(self) -> PairFound:
        """The best of all; ends early where time does, with the bound of what is left."""
        queue = list(self._configs())
        heapq.heapify(queue)
        while queue and queue[0][0] < self._needed_s and not self.clock.over:
            bound_s, number = heapq.heappop(queue)
            self.progress.update("pairs", self.tally.searched, 0, f"no pair below {bound_s:.4g} s")
            if (left := self._advanced(number)) < self._needed_s:
                heapq.heappush(queue, (max(left, bound_s), number))
        left = min([self._needed_s, *(bound_s for bound_s, _ in queue), *self._settled.values()])
        return PairFound(self.found, self.below_s, left)

    @property
    def _needed_s(self) -> float:
        """Seconds from which on a pair is not worth a look."""
        return self.below_s / (1 + self.gap)

    def _configs(self) -> Iterator[tuple[float, int]]:
        """Bounds of configs and their numbers, where no roofline rules them out."""
        for number, config in enumerate(self.evaluator.configs):
            bounds = ConfigBounds(self.evaluator, config)
            if not bounds.exists:
                continue
            self.tally.configs += 1
            takes = self.evaluator.takes(config)
            least_s = float(self.evaluator.roofline_s(config)[takes].min(initial=np.inf))
            if least_s < self._needed_s:
                yield least_s, number

    @cached_property
    def _frontiers(self) -> dict[int, PairFrontier | None]:
        return {}

    def _advanced(self, number: int) -> float:
        """The bound of a config after one step: its designs told apart, some worked out, or a pair searched."""
        bounds = ConfigBounds(self.evaluator, self.evaluator.configs[number])
        if number not in self._frontiers:
            self._frontiers[number] = None
            return bounds.least_s()
        frontier = self._frontiers[number]
        if frontier is None:
            frontier = self._frontiers[number] = PairFrontier.of(bounds, self._needed_s)
            self.tally.opened += 1
            self.tally.designs += len(frontier.figures)
        frontier.below_s = self._needed_s
        if not frontier.ready:
            before = frontier.worked_out
            frontier.step(self._effort)
            self.tally.worked_out += frontier.worked_out - before
            self.tally.bounded += len(frontier.pairs)
        if frontier.ready and (pair := frontier.taken()) is not None:
            self._look(number, frontier, *pair)
        return frontier.bound_s

    def _look(self, number: int, frontier: PairFrontier, rows: Rows, bound_s: float) -> None:
        """Search the pipelines of two designs, where their bound does not rule them out."""
        if bound_s >= self._needed_s:
            return
        block = Block(
            self.block.numbers[rows],
            self.block.table.take(rows),
            self.block.tdp_w[rows],
            self.block.area_mm2[rows],
        )
        designs = MixedDesigns(
            self.evaluator.on(block.table), block, self.evaluator.configs[number], self._effort
        )
        plan, proven_s = designs.proven(WhamTarget(), None, self._needed_s)
        self.tally.searched += 1
        if plan is not None and plan.value < self.below_s:
            self.found, self.below_s = plan, plan.value
        if proven_s < self._needed_s:
            self._settled[number, int(rows[0]), int(rows[-1])] = max(proven_s, bound_s)

    @property
    def _effort(self) -> SolveLimits:
        return SolveLimits(self.clock.left)
