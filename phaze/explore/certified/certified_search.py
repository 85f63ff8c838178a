"""The certified search over the candidates of a space, block by block, after a few points that are worth evaluating
first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.errors import NOTHING_KNOWN, OutOfTimeError
from phaze.explore.certified.block_screening import Screened
from phaze.explore.certified.bound_refinement import Refinement
from phaze.explore.certified.search_points import SearchPoints
from phaze.explore.certified.search_state import Outcome, Point, PointPool, Relevance, Undecided
from phaze.explore.evaluation.design_candidates import Block
from phaze.explore.request.search_progress import Clock, Progress

CLASSES, SAMPLE = 32, 48  # classes of the first column, and candidates tried in each


def seed_candidates(first: Floats, roof: Floats) -> list[Rows]:
    """Candidates to try: of every class of a first column (of power, as a rule) those with the highest roofline.

    The class of the least values is divided further, by twos: nothing is known below the least value that is
    evaluated. first (A,), roof (A,); positions, an array per class.
    """
    order = np.argsort(first, kind="stable")
    least, *classes = np.array_split(order, min(CLASSES, len(order)))
    ends = [1 << i for i in range(len(least).bit_length()) if 1 << i < len(least)]
    classes = [*np.split(least, ends), *classes]
    return [c[np.argsort(-roof[c], kind="stable")[:SAMPLE]] for c in classes]


def best_of_classes(value: Floats, classes: list[Rows], most: int) -> tuple[Rows, Rows]:
    """Rows and configs of the points of the highest value (configs, A), so many of every class of rows."""
    picked = list(_best(value, classes, most))
    rows, configs = (np.array([p[i] for p in picked], dtype=np.intp) for i in (0, 1))
    return rows, configs


def _best(bound: Floats, classes: list[Rows], most: int) -> Iterator[tuple[int, int]]:
    """Rows and configs, class by class."""
    for rows in classes:
        part = bound[:, rows]
        for flat in np.argsort(-part, axis=None, kind="stable")[:most]:
            k, column = divmod(int(flat), len(rows))
            if part[k, column] > 0:
                yield int(rows[column]), k


BLOCK = 1 << 15  # candidates bounded at once
SMALLER = 8  # of those where bounds are dear, so that the first ones teach what rules out the others
TOGETHER = 160  # such smaller ones bounded in one call once nothing is learnt between them
WAVE = 64  # blocks between two looks at the pool: they may run side by side
CAP = 1 << 18  # points that may wait in the pool while blocks are still to come
LATE_CAP = 16  # times as many where half of the time is over


def merged_numbers(wave: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """Numbers of several blocks in ascending order, `TOGETHER` blocks at a time."""
    return [np.sort(np.concatenate(wave[i : i + TOGETHER])) for i in range(0, len(wave), TOGETHER)]


class CertifiedSearch:
    """Finds the complete frontier of what leads against the other axes, and proves it.

    Gains smaller than `gap` are of no interest. `first`: numbers of candidates within the budgets that are looked at
    before others. `threads` change no answer.
    """

    def __init__(
        self,
        points: SearchPoints,
        clock: Clock,
        progress: Progress,
        *,
        gap: float = 0.0,
        first: Sequence[int] = (),
        known: float = 0.0,
        threads: int = 2,
        block: int = BLOCK,
        cap: int = CAP,
    ) -> None:
        """Nothing is evaluated yet. `known`: what leads of a design elsewhere, to be beaten; no other axis then."""
        self._points = points
        self._known = known
        self._candidates = points.candidates
        self._clock = clock
        self._progress = progress
        self._first = np.array(first, dtype=np.int64)
        self._threads = threads
        self._cap = cap
        self._blocks = -(-self._candidates.size // -(-block // SMALLER))
        self._relevance = Relevance(points.axes.archive(), 1.0 + gap)
        if known > 0:
            self._relevance.known.add((), known, (0.0, -1))
        self._undecided = Undecided(points.axes.archive())
        self._taken = PointPool.empty()
        self._fallen: Counter[str] = Counter()
        self._done = 0
        self._in_budget = 0

    def run(self) -> Outcome:
        """Search until nothing can be better or time is over.

        Raises InfeasibleError, with the smallest budgets that would do, where no candidate keeps them, and
        OutOfTimeError where somebody ends it before anything is reached.
        """
        with ThreadPoolExecutor(self._threads) as threads:
            self._refinement = Refinement(
                self._points, self._relevance, self._undecided, self._clock, self._progress
            )
            for wave in self._waves():
                self._take(wave, threads)
                self._check_wanted()
            if not self._in_budget:
                raise self._candidates.none_left()
            self._refinement.holds_all = True
            if self._clock.half_over:
                self._refinement.lead()
            self._refinement.tighten()
            self._refinement.lead()
            self._refinement.evaluate()
        return self._outcome()

    def _check_wanted(self) -> None:
        """Raise OutOfTimeError where nobody waits for the first design: nothing else is counted then."""
        found = self._known or self._refinement.evaluated or self._refinement.reached
        if not found and self._clock.patience() <= 0:
            raise OutOfTimeError(NOTHING_KNOWN)

    # -- blocks -------------------------------------------------------------------------------------------

    def _waves(self) -> Iterator[list[NDArray[np.int64]]]:
        """Numbers of the blocks, a wave at a time; every block is spread evenly over the space.

        Each wave is thrice as large as all before, and what it leaves is looked at first.
        """
        size, done = self._candidates.size, 0
        blocks = (np.arange(i, size, self._blocks, dtype=np.int64) for i in range(self._blocks))
        while wave := list(islice(blocks, min(max(3 * done, 1), WAVE * SMALLER))):
            yield wave
            done += len(wave)

    def _take(self, wave: list[NDArray[np.int64]], threads: ThreadPoolExecutor) -> None:
        """Bound all points of a wave of blocks; what is left joins the pool, which is then kept small."""
        done = self._done
        self._progress.update("bounding", done, self._blocks, self._refinement.told)
        if self._in_budget and self._points.workers > 1:
            screened = self._screened_by_workers(wave)
        else:
            screened = self._screened(wave, threads)
        self._refinement.take_in([self._in_order([self._counted(found) for found in screened])])
        self._done += len(wave)
        if self._done < self._blocks:
            self._make_room()

    def _screened_by_workers(self, wave: list[NDArray[np.int64]]) -> list[Screened]:
        found = self._points.screened_aside(wave, self._relevance, self._taken)
        self._in_budget += sum(count for count, _ in found)
        return [screened for _, screened in found]

    def _screened(self, wave: list[NDArray[np.int64]], threads: ThreadPoolExecutor) -> list[Screened]:
        """Remainder of the blocks; the first ones in budget are also where promising points are looked for.

        Once there are some, nothing is learnt within a wave: then many blocks are bounded in a few calls.
        """
        parts = merged_numbers(wave) if self._in_budget else wave
        blocks = [b for b in threads.map(self._candidates.within, parts) if len(b)]
        if blocks and not self._in_budget and not self._known:
            self._seed(blocks)
        self._in_budget += sum(map(len, blocks))
        return self._points.screened(blocks, self._relevance, self._taken, threads)

    def _seed(self, blocks: list[Block]) -> None:
        """Tighten a few promising points, so that bounds have something to meet."""
        roof = np.concatenate([self._points.roof(b) for b in blocks])
        power = np.concatenate([b.tdp_w for b in blocks])
        numbers = np.concatenate([b.numbers for b in blocks])
        first = power if self._points.axes.others else -roof
        classes = [some[: len(some) // SMALLER + 1] for some in seed_candidates(first, roof)]
        tried = self._candidates.within(numbers[np.concatenate(classes)])
        classes = np.split(np.arange(len(tried)), np.cumsum([len(c) for c in classes])[:-1])
        self._taken = self._best_of(tried, classes)
        if len(others := np.setdiff1d(self._first, self._taken.number)):
            wanted = self._candidates.within(others)
            self._taken = PointPool.join(
                [self._taken, self._best_of(wanted, list(np.arange(len(wanted))[:, None]))]
            )
        self._refinement.take_in([self._taken])
        self._refinement.tighten()

    def _best_of(self, block: Block, classes: list[Rows]) -> PointPool:
        """Points of every class of candidates that promise most."""
        value = self._points.promising(block)
        rows, configs = best_of_classes(value, classes, self._points.seeds)
        return self._points.hopes(block, rows, configs, value[configs, rows])

    def _counted(self, screened: Screened) -> PointPool:
        self._fallen += screened.fallen
        for others, lead in screened.spared:
            self._undecided.add(others, lead)
        return screened.pool

    def _in_order(self, pools: list[PointPool]) -> PointPool:
        """Points in the order of the blocks of their candidates, whatever was joined: ties are broken by it."""
        pool = PointPool.join([p for p in pools if len(p)])
        return pool.take(np.argsort(pool.number % self._blocks, kind="stable"))

    def _make_room(self) -> None:
        """Strengthen what is known; leave at most half of the cap in a pool that is over it.

        Half of the time is for what is still to be bounded, so that no gap is that of points never looked at: from then
        on more may wait.
        """
        self._refinement.tighten(early=True)
        cap = LATE_CAP * self._cap if self._clock.half_over else self._cap
        if len(self._refinement.pool) > cap:
            self._refinement.tighten(cap // 2)
            self._refinement.evaluate(cap // 2)

    # -- the end ------------------------------------------------------------------------------------------

    def _outcome(self) -> Outcome:
        """Outcome: what was found, where points fell, and what is left open as a bound."""
        refinement, pool = self._refinement, self._refinement.pool
        fallen, evaluated = self._fallen + refinement.fallen, refinement.evaluated
        fallen["open"] += len(pool)
        self._undecided.add(pool.others, pool.bound)
        # Stopped early: what is reached counts, though it may not be the best of its point.
        if fallen["open"] or self._relevance.slack > 1.0:
            some = refinement.reached.keys() - evaluated.keys()
            waiting = self._waiting(some)
            fallen["open"] -= waiting
            fallen["placement"] -= len(some) - waiting
            evaluated = {**refinement.reached, **evaluated}
        frontier = self._points.axes.archive()
        for point, one in evaluated.items():
            if one.lead > 0:
                frontier.add(one.others, one.lead, self._points.key(point, one))
        return Outcome(
            configs=self._points.configs,
            in_budget=self._in_budget,
            pruned_by={name: count for name, count in sorted(fallen.items()) if count},
            evaluated=evaluated,
            frontier=frontier,
            undecided=self._undecided.beyond(frontier),
        )

    def _waiting(self, some: Collection[Point]) -> int:
        """How many of some points are still in the pool, which may hold a million."""
        pool, configs = self._refinement.pool, self._points.configs
        if not some:
            return 0
        asked = np.sort(np.array([number * configs + config for number, config in some], dtype=np.int64))
        there = pool.number * configs + pool.config
        place = np.minimum(np.searchsorted(asked, there), len(asked) - 1)
        return len(np.unique(there[asked[place] == there]))
