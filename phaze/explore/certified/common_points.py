"""Points of a certified search for one common design: architectures, each under its best plan for every workload.

An architecture is judged by the score of its throughputs. Bounds on each workload bound the score; where one rules the
architecture out, the others need not be looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.explore.certified.block_screening import Screened, pool_of
from phaze.explore.certified.dealt_configs import Choose
from phaze.explore.certified.search_pieces import Looked
from phaze.explore.certified.search_state import Point, PointPool, Reached, Relevance
from phaze.explore.certified.workload_bounds import (
    BoundedArchitectures,
    WorkloadBounds,
    roofline_throughput,
    throughput_bound,
)
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.explore.frontier.pareto_archive import Key
from phaze.explore.frontier.point_values import known_columns
from phaze.explore.frontier.search_axes import SearchAxes
from phaze.explore.request.common_score import CombinedScore
from phaze.explore.request.search_progress import Clock
from phaze.hardware.economics.economic_figures import Economics
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import BOUND_ROUNDING

_ROUNDED = 1 - BOUND_ROUNDING


@dataclass
class CommonPoints:
    """The architectures of a space under a rule.

    `evaluators`: one per workload, on hardware of the whole space. `caps` (W,): throughput that no candidate exceeds,
    proven by the searches for the optimum of each workload alone.
    """

    candidates: Candidates
    axes: SearchAxes
    evaluators: Sequence[Evaluator]
    rule: CombinedScore
    caps: Floats
    clock: Clock
    configs: int = 1
    batch: int = 1024
    exact_batch: int = 256
    seeds: int = 1
    workers: int = 1
    asks_plans: bool = False

    def __post_init__(self) -> None:
        """Nothing is bounded yet."""
        self._bounds = [WorkloadBounds(evaluator) for evaluator in self.evaluators]

    def roof(self, block: Block) -> Floats:
        """Score of model FLOPs at peak, (A,)."""
        return self.rule.score(self._roofs(block))

    def promising(self, block: Block) -> Floats:
        """Score of bounds that look at every config, (1, A)."""
        every = np.arange(len(block))
        bounds = [throughput_bound(one.on(block.table), every) for one in self.evaluators]
        return self.rule.score(np.minimum(np.stack(bounds), self._caps))[None]

    def hopes(self, block: Block, rows: Rows, configs: Rows, value: Floats) -> PointPool:
        """See `SearchPoints.hopes`."""
        others, lead = self._values(block, rows, value)
        return pool_of(block, rows, configs, others, lead)

    def screened(
        self, blocks: Sequence[Block], relevance: Relevance, taken: PointPool, threads: ThreadPoolExecutor
    ) -> list[Screened]:
        """See `SearchPoints.screened`."""
        return list(threads.map(lambda block: self.screen(block, relevance, taken), blocks))

    def foresee(self, choose: Choose) -> None:
        """See `SearchPoints.foresee`: nothing is looked at ahead."""

    def screen(self, block: Block, relevance: Relevance, taken: PointPool) -> Screened:
        """One block, one workload after the other, without the architectures that are ruled out."""
        sieve = _Sieve(self, block, relevance, taken)
        hoped = self._roofs(block)
        sieve.keep("roofline", hoped)
        for w, evaluator in enumerate(self.evaluators):
            if self.clock.over:
                return sieve.undecided(hoped)
            alive = sieve.alive
            here, rows = evaluator.on(block.table.take(alive)), np.arange(len(alive))
            bound = throughput_bound(here, rows, self._needed(w, sieve.least[alive], hoped[:, alive]))
            hoped[w, alive] = np.minimum(hoped[w, alive], bound)
            sieve.keep("critical_path", hoped)
        others, lead = self._values(block, sieve.alive, self.rule.score(hoped[:, sieve.alive]))
        pool = pool_of(block, sieve.alive, np.zeros(len(lead), dtype=np.intp), others, lead)
        return Screened(pool, sieve.fallen, sieve.spared)

    def screened_aside(
        self, wave: list[NDArray[np.int64]], relevance: Relevance, taken: PointPool
    ) -> list[tuple[int, Screened]]:
        """See `SearchPoints.screened_aside`."""
        blocks = [self.candidates.within(numbers) for numbers in wave]
        return [(len(block), self.screen(block, relevance, taken)) for block in blocks]

    def look(self, points: PointPool, relevance: Relevance, effort: SolveLimits | None) -> Looked:
        """See `SearchPoints.look`: one workload after the other, as in `screen`."""
        block = self.candidates.within(points.number)
        each = [bounds.on(points.number, block.table) for bounds in self._bounds]
        known = relevance.known.threshold(points.others)
        alive = np.arange(len(points))
        for w, one in enumerate(each):
            hoped = self._hoped(each)
            alive = alive[self._matters(block, alive, hoped[:, alive], relevance)]
            needed = self._needed(w, known[alive], hoped[:, alive])
            if effort is None:
                one.tighten(alive, needed, SolveLimits(self.clock.left))
            else:
                one.settle(alive, needed, effort)
        return self._looked(block, each)

    def measured(self, points: PointPool, value: Floats, effort: SolveLimits) -> tuple[Floats, Floats]:
        """See `SearchPoints.measured`: axes of several workloads depend on no plan."""
        del effort
        return self._values(self.candidates.within(points.number), np.arange(len(points)), value)

    def key(self, point: Point, found: Reached) -> Key:
        """By area, then number."""
        return found.area_mm2, point[0]

    def reached(self, number: int) -> tuple[tuple[float, ...], tuple[TrainingConfig | None, ...]]:
        """Throughput of each workload on a candidate that was looked at, and the config that reaches it."""
        found = [bounds.found(number) for bounds in self._bounds]
        return tuple(speed for speed, _ in found), tuple(config for _, config in found)

    # -- values -------------------------------------------------------------------------------------------

    @cached_property
    def _caps(self) -> Floats:
        return np.asarray(self.caps, dtype=np.float64)[:, None] * (1 + BOUND_ROUNDING)

    @property
    def _economics(self) -> Economics:
        return self.evaluators[0].task.economics

    def _roofs(self, block: Block) -> Floats:
        """Throughput (W, A) of each workload that no architecture exceeds."""
        roofs = [roofline_throughput(evaluator, block.table) for evaluator in self.evaluators]
        return np.minimum(np.stack(roofs), self._caps)

    def _hoped(self, each: Sequence[BoundedArchitectures]) -> Floats:
        return np.minimum(np.stack([one.hoped for one in each]), self._caps)

    def _needed(self, workload: int, known: Floats, hoped: Floats) -> Floats:
        """Throughput (A,) of a workload below which no score gets beyond what is known, (A,); 0 where none leads.

        `hoped` (W, A): what the others reach at best.
        """
        if self.axes.leader.name != "score":
            return np.zeros(len(known))
        return self.rule.least(workload, known * _ROUNDED, hoped) * _ROUNDED

    def _matters(self, block: Block, rows: Rows, hoped: Floats, relevance: Relevance) -> NDArray[np.bool_]:
        return relevance.matters(*self._values(block, rows, self.rule.score(hoped)))

    def _values(
        self, block: Block, rows: Rows, score: Floats, rounded: float = BOUND_ROUNDING
    ) -> tuple[Floats, Floats]:
        """Values on the axes of candidates that reach no more than a score, (A,)."""
        known = {name: column[rows] for name, column in known_columns(block, self._economics).items()}
        others, lead = self.axes.values({**known, "score": score * (1 + rounded)}, len(rows))
        return others, np.where(score > 0, lead, 0.0)

    def _looked(self, block: Block, each: Sequence[BoundedArchitectures]) -> Looked:
        rows = np.arange(len(block))
        score = self.rule.score(np.stack([one.reached for one in each]))
        hoped = self._values(block, rows, self.rule.score(self._hoped(each)))
        met = np.logical_and.reduce([one.exact for one in each]) & (score > 0)
        return Looked(*hoped, score, self._values(block, rows, score, 0.0), met)


class _Sieve:
    """One block: which of its candidates may matter, and where the others fell."""

    def __init__(self, points: CommonPoints, block: Block, relevance: Relevance, taken: PointPool) -> None:
        self._points, self._block, self._relevance = points, block, relevance
        every = np.arange(len(block))
        self.least = relevance.known.threshold(points._values(block, every, np.ones(len(block)))[0])
        self.alive: Rows = np.flatnonzero(~np.isin(block.numbers, taken.number))
        self.fallen: Counter[str] = Counter()
        self.spared: list[tuple[Floats, Floats]] = []

    def keep(self, stage: str, hoped: Floats) -> None:
        """Drop those that cannot matter where workloads reach no more than this, (W, all)."""
        score = self._points.rule.score(hoped[:, self.alive])
        values = self._points._values(self._block, self.alive, score)
        kept, near = self._relevance.matters(*values), self._relevance.near(*values)
        self.spared.append((values[0][near], values[1][near]))
        unfit = (hoped[:, self.alive] <= 0).any(axis=0)
        self.fallen["memory"] += int(unfit.sum())
        self.fallen["floor"] += int(((score <= 0) & ~unfit).sum())
        self.fallen[stage] += int((~kept & (score > 0)).sum())
        self.alive = self.alive[kept]

    def undecided(self, hoped: Floats) -> Screened:
        """All that are left, undecided."""
        score = self._points.rule.score(hoped[:, self.alive])
        self.fallen["open"] += len(self.alive)
        self.spared.append(self._points._values(self._block, self.alive, score))
        return Screened(PointPool.empty(), self.fallen, self.spared)
