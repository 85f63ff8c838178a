"""Configs of a search dealt between this process and a copy of it, which works beside it on those of its own.

What layers, plans and schedules of a config take is worked out by one of the two alone. Points are looked at in the
order in which one process would: batches that come next are worked out ahead, against what is known by then, and what
they tell is cut to what is known when it is their turn. So the answer, and the count of points, is that of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from phaze.arrays import Flags, Floats, Integers, Rows
from phaze.explore.certified.block_screening import Screen, Screened, in_order
from phaze.explore.certified.search_pieces import BatchPiece, Looked, SearchContext
from phaze.explore.certified.search_state import Point, PointPool, Relevance
from phaze.explore.evaluation.design_candidates import Block
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.explore.request.partner_process import PartnerProcess
from phaze.explore.request.search_progress import Clock
from phaze.hardware.architecture_table import ArchitectureTable

_ODD = np.uint64(
    0x9E3779B97F4A7C15
)  # 2^64 over the golden ratio: its multiples are spread evenly (Knuth, 6.4)

WORTH_PART = 8
"""Points for which a process is asked for a part of a batch."""

AHEAD = 2
"""Batches that the other process is asked for before their turn."""

Choose = Callable[[Flags], PointPool]
"""The batch of points that would come next if only points in some configs, (configs,), were there; may be empty."""


def dealt(configs: Sequence[TrainingConfig]) -> Flags:
    """Which configs are for the other process, (configs,): half of the groups of those with much in common.

    A group differs in how experts are divided, in what runs again, and in where stages may be cut. By turns (Thue and
    Morse), so that no process has all groups of one kind, as those with sequence parallelism, of which most matter.
    """
    groups: dict[tuple[Any, ...], int] = {}
    each = ((c.recipe, c.microbatch, c.tensor_parallel, c.sequence, c.context) for c in configs)
    numbers = [groups.setdefault(group, len(groups)) for group in each]
    return np.array([number.bit_count() % 2 for number in numbers], dtype=np.bool_)


@dataclass
class DealtConfigs:
    """Configs of one search, `away` (configs,) those of the other process.

    `ready`: batches that were looked at before their turn, by config, each with the piece that asked for it.
    `swapped`: points, by the numbers of candidate and config, whose plans the process knows that has not their config.
    """

    context: SearchContext
    partner: PartnerProcess
    away: Flags
    _ready: dict[int, tuple[BatchPiece, Looked, Floats]] = field(default_factory=dict)
    _asked: list[BatchPiece] = field(default_factory=list)
    _swapped: set[Point] = field(default_factory=set)

    # -- whole tables -------------------------------------------------------------------------------------

    def promising(self, block: Block, clock: Clock) -> Floats:
        """See `Screen.promising`."""
        self._receive()
        return _DealtScreen(self, block.numbers, clock).promising(block.table)

    def screened(
        self, blocks: Sequence[Block], relevance: Relevance, taken: PointPool, clock: Clock
    ) -> list[Screened]:
        """See `Screen.run`: all blocks, of which the other process does its configs."""
        self._receive()
        theirs, ours = self.parts()
        for block in blocks:
            figures = block.numbers, block.tdp_w, block.area_mm2
            self.partner.ask(ConfigsPiece(*figures, relevance, taken, clock, theirs))
        screen = self.context.screen(relevance, clock)
        here = [screen.run(block, taken, ours) for block in blocks]
        return [_joined(one, self.partner.answer()) for one in here]

    def parts(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Numbers of the configs of the other process, and of those of this one."""
        return tuple(np.flatnonzero(self.away).tolist()), tuple(np.flatnonzero(~self.away).tolist())

    # -- batches ------------------------------------------------------------------------------------------

    def look(
        self, piece: BatchPiece, choose: Choose | None, batch_of: Callable[[PointPool], BatchPiece]
    ) -> Looked:
        """What a batch tells. `choose`: what may come after it; `batch_of` makes batches of that."""
        found, theirs = self._looked(piece, choose, batch_of)
        self._remember(piece, found, theirs)
        return found

    def _looked(
        self, piece: BatchPiece, choose: Choose | None, batch_of: Callable[[PointPool], BatchPiece]
    ) -> tuple[Looked, Flags]:
        """The same, and of which points the other process told it, (A,)."""
        owner = np.full(len(piece.numbers), self.away[piece.config])
        if (known := self._known(piece)) is not None:
            return known, owner
        if not self.away[piece.config]:
            if choose is not None:
                self._ask_ahead(choose, batch_of)
            theirs = owner if self._asked else self._shares(piece)
            return self._worked_out(piece, theirs), theirs
        self._receive()
        if (known := self._known(piece)) is not None:
            return known, owner
        if choose is None or not len(points := choose(self._open(~self.away))):
            theirs = self._shares(piece)
            return self._worked_out(piece, theirs), theirs
        self.partner.ask(piece)
        ahead = batch_of(points)
        self._ready[ahead.config] = (ahead, *ahead.judged(self.context))
        return self.partner.answer(), owner

    def _shares(self, piece: BatchPiece) -> Flags:
        """Which points of a batch the other process takes, (A,), where one of the two has nothing of its own to do."""
        theirs = self._for_partner(piece.numbers)
        worth = min(theirs.sum(), (~theirs).sum()) >= WORTH_PART
        return theirs if worth else np.full(len(theirs), self.away[piece.config])

    def _worked_out(self, piece: BatchPiece, theirs: Flags) -> Looked:
        """What a batch tells, each process working out its points; the other one waits for nothing else."""
        there, here = np.flatnonzero(theirs), np.flatnonzero(~theirs)
        if len(there):
            self.partner.ask(piece.take(there))
        parts = [(here, piece.take(here).on(self.context))] if len(here) else []
        if len(there):
            parts.append((there, self.partner.answer()))
        return Looked.join(parts)

    def _remember(self, piece: BatchPiece, found: Looked, theirs: Flags) -> None:
        """Remember where plans are known that are not where their config is."""
        reached, swapped = found.reached[1] != 0, theirs != self.away[piece.config]
        self._swapped.difference_update((n, piece.config) for n in piece.numbers[reached & ~swapped].tolist())
        self._swapped.update((n, piece.config) for n in piece.numbers[reached & swapped].tolist())

    def _for_partner(self, numbers: Integers) -> Flags:
        """Which of some candidates the other process takes where a batch is divided, (A,), whatever batch it is.

        So one process schedules the layers on an architecture, which with another memory size is the same.
        """
        sizes = max(1, len(self.context.candidates.space.hbm_capacities_bytes))
        mixed = (numbers // sizes).astype(np.uint64) * _ODD
        return np.asarray(mixed >> np.uint64(63) == 1)

    def knows_there(self, point: Point) -> bool:
        """Whether it is the other process that knows the plan of a point that was looked at."""
        return bool(self.away[point[1]]) != (point in self._swapped)

    def _ask_ahead(self, choose: Choose, batch_of: Callable[[PointPool], BatchPiece]) -> None:
        """Keep the other process at work on what comes next of its configs."""
        self._receive(AHEAD - 1)
        while len(self._asked) < AHEAD and len(points := choose(self._open(self.away))):
            self._asked.append(batch_of(points))
            self.partner.ask(AheadPiece(self._asked[-1]))

    def _open(self, which: Flags) -> Flags:
        """Configs of which nothing is worked out ahead."""
        open_ = which.copy()
        open_[[*self._ready, *(piece.config for piece in self._asked)]] = False
        return open_

    def await_partner(self) -> None:
        """Wait until the other process has done all that it was asked for ahead: what it is asked next is next."""
        self._receive()

    def _receive(self, most: int = 0) -> None:
        """Wait until at most that many batches that were asked for ahead are not there."""
        while len(self._asked) > most:
            piece = self._asked.pop(0)
            self._ready[piece.config] = (piece, *self.partner.answer())

    def _known(self, piece: BatchPiece) -> Looked | None:
        """What was worked out ahead of a batch, where it was of all of its points, as if it were worked out now."""
        if piece.effort is not None:
            return None
        if piece.config not in self._ready and any(one.config == piece.config for one in self._asked):
            self._receive()
        before, found, judged_s = self._ready.pop(piece.config, (None, None, None))
        if before is None or found is None or judged_s is None:
            return None
        order = np.argsort(before.numbers, kind="stable")
        at = np.searchsorted(before.numbers, piece.numbers, sorter=order)
        rows = order[np.minimum(at, len(order) - 1)]
        if not np.array_equal(before.numbers[rows], piece.numbers):
            return None
        return found.take(rows).given_up(judged_s[rows] >= piece.give_up_s(self.context))


def _joined(one: Screened, other: Screened) -> Screened:
    """What is left of a block of which each had some configs."""
    pool = PointPool.join([p for p in (one.pool, other.pool) if len(p)])
    in_turn = pool.take(np.argsort(pool.config, kind="stable"))
    return Screened(in_turn, one.fallen + other.fallen, [*one.spared, *other.spared])


class _DealtScreen(Screen):
    """Bounds on architectures by number, each config by its process."""

    def __init__(self, configs: DealtConfigs, numbers: Integers, clock: Clock) -> None:
        context = configs.context
        super().__init__(context.evaluator, context.axes, Relevance(context.axes.archive()), clock)
        self._configs, self._numbers, self._partner = configs, numbers, configs.partner
        self._warm: set[int] = set()
        self._asked_ahead = 0

    def hopes(self, evaluator: Evaluator, some: Rows) -> list[tuple[int, Floats]]:
        """See `Screen.hopes`."""
        self._receive()
        away = self._configs.away[some]
        self._partner.ask(HopesPiece(self._numbers, some[away], self._clock))
        found = dict(super().hopes(evaluator, some[~away])) | dict(self._partner.answer())
        return in_order([(k, found[k]) for k in some.tolist() if k in found])

    def bound_s(self, evaluator: Evaluator, hopes: Sequence[tuple[int, Floats]], known: Floats) -> Floats:
        """See `Screen.bound_s`. While one process works the other does what comes next of its own."""
        away = self._configs.away
        k, open_, give_up_s = self.asked(hopes[0], known)
        later = next((one for one in hopes[1:] if away[one[0]] != away[k] and one[0] not in self._warm), None)
        if not away[k]:
            if later is not None and self._asked_ahead == 0:
                self._warm.add(later[0])
                self._asked_ahead += 1
                self._partner.ask(BoundsPiece(self._numbers, *self.asked(later, known)))
            return evaluator.iteration_bound(evaluator.configs[k], open_, give_up_s)
        self._receive()
        self._partner.ask(BoundsPiece(self._numbers, k, open_, give_up_s))
        if later is not None:
            self._warm.add(later[0])
            number, rows, limit_s = self.asked(later, known)
            evaluator.iteration_bound(evaluator.configs[number], rows, limit_s)
        found: Floats = self._partner.answer()
        return found

    def promising(self, table: ArchitectureTable) -> Floats:
        """See `Screen.promising`."""
        found = super().promising(table)
        self._receive()
        return found

    def _receive(self) -> None:
        """Wait until the other process has done what it was asked for before its turn."""
        while self._asked_ahead:
            self._partner.answer()
            self._asked_ahead -= 1


# -- pieces -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AheadPiece:
    """A batch before its turn."""

    batch: BatchPiece

    def on(self, context: SearchContext) -> tuple[Looked, Floats]:
        """What it tells, and seconds (A,) that are held against when points are given up."""
        return self.batch.judged(context)


@dataclass(frozen=True)
class ConfigsPiece:
    """Candidates that keep the budgets, by number with TDP in W and area in mm2, to be bounded in some configs."""

    numbers: Integers
    tdp_w: Floats
    area_mm2: Floats
    relevance: Relevance
    taken: PointPool
    clock: Clock
    configs: Sequence[int]

    def on(self, context: SearchContext) -> Screened:
        """What is left of their points."""
        table = context.candidates.table(self.numbers)
        block = Block(self.numbers, table, self.tdp_w, self.area_mm2)
        return context.screen(self.relevance, self.clock).run(block, self.taken, self.configs)


@dataclass(frozen=True)
class HopesPiece:
    """Candidates by number, in some configs."""

    numbers: Integers
    configs: Rows
    clock: Clock

    def on(self, context: SearchContext) -> list[tuple[int, Floats]]:
        """What each promises; see `Screen.hopes`."""
        screen = context.screen(Relevance(context.axes.archive()), self.clock)
        return screen.hopes(context.on(self.numbers), self.configs)


@dataclass(frozen=True)
class BoundsPiece:
    """Some of the candidates at these numbers, in one config."""

    numbers: Integers
    config: int
    rows: Rows
    give_up_s: Floats

    def on(self, context: SearchContext) -> Floats:
        """See `Evaluator.iteration_bound`."""
        evaluator = context.on(self.numbers)
        return evaluator.iteration_bound(evaluator.configs[self.config], self.rows, self.give_up_s)
