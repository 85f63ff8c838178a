"""The stages that see every point: roofline, work, path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.explore.certified.search_state import BoundStage, PointPool, Relevance
from phaze.explore.evaluation.design_candidates import Block
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.flops_utilisation import fastest_flops_per_s
from phaze.explore.request.search_progress import Clock
from phaze.hardware.architecture_table import ArchitectureTable
from phaze.tolerances import BOUND_ROUNDING

WORTH = 1.05  # times what one config promises, another one has to promise where a few good points are enough


@dataclass(frozen=True)
class Screened:
    """Screened block: what is left of it, and where the rest fell.

    `spared`: others and optimistic throughput of what was let go without proof: for the slack, or as time is over.
    """

    pool: PointPool
    fallen: Counter[str]
    spared: list[tuple[Floats, Floats]]


class Screen:
    """Bounds all points of blocks of candidates against what is known; nothing is evaluated."""

    def __init__(self, evaluator: Evaluator, relevance: Relevance, clock: Clock) -> None:
        """`evaluator` shares its costs with the blocks where it knows their combinations."""
        self._evaluator = evaluator
        self._relevance = relevance
        self._clock = clock
        self._batch = float(evaluator.task.cluster.global_batch)

    def roof(self, table: ArchitectureTable) -> Floats:
        """Throughput of the model's FLOPs at peak on all devices, (A,)."""
        task = self._evaluator.task
        peak = fastest_flops_per_s(table, task, task.recipe) * task.cluster.devices
        return np.asarray(self._batch * peak / self._evaluator.model_flops * (1 + BOUND_ROUNDING))

    def run(self, block: Block, others: Floats, taken: PointPool) -> Screened:
        """All three stages over a block with the minimised columns (A, k) of its candidates.

        Points that are `taken` already are passed over. Once time is over only the roofline is looked at, and what it
        leaves stays open.
        """
        sieve = _Sieve(self._relevance, block, others, taken)
        roof, configs = self.roof(block.table), len(self._evaluator.configs)
        alive = sieve.under_the_roof(roof, configs)
        if self._clock.over:
            sieve.leave_open(alive, roof[alive], configs)
            return Screened(PointPool.empty(), sieve.fallen, sieve.spared)
        left = self._survivors(block.table.take(alive), alive, roof[alive], sieve)
        found = [_points(block, others, alive[rows], k, bound) for k, rows, bound in left if len(rows)]
        return Screened(PointPool.join(found), sieve.fallen, sieve.spared)

    def promising(self, table: ArchitectureTable) -> Floats:
        """Bounds of points of some architectures where much may be had, throughput (configs, A); 0 elsewhere.

        Configs of the highest roofline come first, others only where that promises more than is found. Points for
        which half of the time that is left is not enough are left out.
        """
        evaluator, late = self._evaluator.on(table), self._half_over()
        roof = np.zeros((len(evaluator.configs), len(table)))
        for k, config in enumerate(evaluator.configs):
            if k == 0 or not late():
                roof[k] = self._optimistic(evaluator.roofline_s(config))
        found = np.zeros_like(roof)
        for level in np.unique(roof[:, 0])[::-1]:
            above = (roof > WORTH * found.max(axis=0)).any(axis=1)
            for k, hope in self._hopes(evaluator, np.flatnonzero(above & (roof[:, 0] == level))):
                if found.any() and late():
                    return found
                known = found.max(axis=0)
                open_ = np.flatnonzero(hope > WORTH * known)
                if len(open_):
                    give_up_s = self._batch / np.maximum(known[open_], 1e-300)
                    seconds = evaluator.iteration_bound(evaluator.configs[k], open_, give_up_s)
                    found[k, open_] = self._optimistic(seconds)
        return found

    def _half_over(self) -> Callable[[], bool]:
        """Whether half of the time that is left now is over."""
        half = self._clock.left() / 2
        return lambda: self._clock.over or self._clock.left() < half

    def _hopes(self, evaluator: Evaluator, some: Rows) -> list[tuple[int, Floats]]:
        """Configs with the throughput of all architectures, (A,), that work leaves: those that promise most first."""
        rows, hopes = np.arange(len(evaluator.table)), list[tuple[int, Floats]]()
        for k in some.tolist():
            if hopes and self._clock.over:
                break
            least_s = evaluator.iteration_bound(evaluator.configs[k], rows, np.zeros(len(rows)))
            hopes.append((k, self._optimistic(least_s)))
        return sorted(hopes, key=lambda hope: -float(hope[1].sum()))

    def _survivors(
        self, table: ArchitectureTable, alive: Rows, roof: Floats, sieve: _Sieve
    ) -> Iterator[tuple[int, Rows, Floats]]:
        """Number of a config, rows of the table that all stages leave of it, and their bounds.

        `roof` (A,): throughput that no config exceeds; points for which no time is left stay open below it.
        """
        evaluator = self._evaluator.on(table)
        for k, config in enumerate(evaluator.configs):
            free = sieve.free(alive, k)
            if self._clock.over:
                sieve.leave(alive[free], roof[free])
                continue
            able = sieve.able(free, evaluator.takes(config))
            under = self._under(self._optimistic(evaluator.roofline_s(config)), sieve, alive, able)
            if not len(under):
                continue  # its layers need not be costed
            work = self._optimistic(evaluator.work_bound(config, under))
            kept = sieve.keep("work", work, alive[under])
            rows, work = under[kept], work[kept]
            give_up_s = self._batch / np.maximum(sieve.least(alive[rows]), 1e-300)
            path = np.minimum(self._optimistic(evaluator.path_bound(config, rows, give_up_s)), work)
            kept = sieve.keep("critical_path", path, alive[rows])
            yield k, rows[kept], path[kept]

    def _under(self, roof: Floats, sieve: _Sieve, alive: Rows, rows: Rows) -> Rows:
        """Those of some rows that the roofline of a config leaves."""
        return rows[sieve.keep("roofline", roof[rows], alive[rows])]

    def _optimistic(self, seconds: Floats) -> Floats:
        return self._batch / seconds * (1 + BOUND_ROUNDING)


class _Sieve:
    """One block: what its candidates must promise, and where their points fall."""

    def __init__(self, relevance: Relevance, block: Block, others: Floats, taken: PointPool) -> None:
        self._least, self._slack, self._others = relevance.least(others), relevance.slack, others
        self._floor = relevance.floor
        at = np.minimum(np.searchsorted(block.numbers, taken.number), max(len(block) - 1, 0))
        here = block.numbers[at] == taken.number if len(block) else np.zeros(len(taken), dtype=bool)
        self._taken_row, self._taken_setting = at[here], taken.config[here]
        self.fallen: Counter[str] = Counter()
        self.spared: list[tuple[Floats, Floats]] = []

    def under_the_roof(self, roof: Floats, configs: int) -> Rows:
        """Rows of the candidates whose roofline can matter; all points of the others fall."""
        kept = roof >= self._least
        self._spare(roof, np.arange(len(roof)))
        low = roof < self._floor
        self.fallen["floor"] += self._points(low, configs)
        self.fallen["roofline"] += self._points(~kept & ~low, configs)
        return np.flatnonzero(kept)

    def least(self, rows: Rows) -> Floats:
        """Throughput that the candidates at some rows must promise."""
        return self._least[rows]

    def leave_open(self, rows: Rows, bound: Floats, configs: int) -> None:
        """Count all points of some candidates as undecided."""
        there = np.zeros(len(self._least), dtype=bool)
        there[rows] = True
        self.fallen["open"] += self._points(there, configs)
        self.spared.append((self._others[rows], bound))

    def leave(self, rows: Rows, bound: Floats) -> None:
        """Count one point of each of some candidates as undecided."""
        self.fallen["open"] += len(rows)
        self.spared.append((self._others[rows], bound))

    def free(self, rows: Rows, k: int) -> Rows:
        """Positions in `rows` whose points in config k are not taken."""
        mine = self._taken_row[self._taken_setting == k]
        return np.flatnonzero(~np.isin(rows, mine)) if len(mine) else np.arange(len(rows))

    def able(self, rows: Rows, takes: NDArray[np.bool_]) -> Rows:
        """Positions in `rows` whose arrays take the formats of a config; the rest is counted."""
        self.fallen["format"] += int((~takes[rows]).sum())
        return rows[takes[rows]]

    def keep(self, stage: str, bound: Floats, rows: Rows) -> Rows:
        """Positions in `bound` that can matter, of the candidates at `rows`; the rest is counted."""
        unfit = bound <= 0
        kept = (bound >= self._least[rows]) & ~unfit
        self._spare(bound, rows)
        low = (bound < self._floor) & ~unfit
        self.fallen["memory"] += int(unfit.sum())
        self.fallen["floor"] += int(low.sum())
        self.fallen[stage] += int((~kept & ~unfit & ~low).sum())
        return np.flatnonzero(kept)

    def _points(self, which: NDArray[np.bool_], configs: int) -> int:
        """Points of some candidates, without those that are taken."""
        return int(which.sum()) * configs - int(which[self._taken_row].sum())

    def _spare(self, bound: Floats, rows: Rows) -> None:
        """Remember what falls for the slack alone."""
        if self._slack > 1.0:
            least = self._least[rows]
            near = (bound < least) & (bound * self._slack >= least) & (bound >= self._floor) & (bound > 0)
            self.spared.append((self._others[rows[near]], bound[near]))


def _points(block: Block, others: Floats, rows: Rows, k: int, bound: Floats) -> PointPool:
    return PointPool(
        block.numbers[rows],
        np.full(len(rows), k, dtype=np.int16),
        others[rows],
        block.area_mm2[rows],
        bound,
        np.full(len(rows), BoundStage.PATH, dtype=np.int8),
    )
