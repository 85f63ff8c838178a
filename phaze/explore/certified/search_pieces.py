"""Pieces of a certified search, and the context they are worked out in, in this process or in another one.

A piece is a block of candidates that is bounded against what is known, or points of a batch that are tightened or
evaluated. Points are independent of each other, so that it does not matter how a batch is divided.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Floats, Integers, Rows
from phaze.explore.certified.block_screening import Screen, Screened
from phaze.explore.certified.search_state import PointPool, Relevance
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.frontier.point_values import PointValues, known_columns
from phaze.explore.frontier.search_axes import SearchAxes
from phaze.explore.request.explore_request import Task
from phaze.explore.request.search_progress import Clock
from phaze.memo import Memo
from phaze.scheduling.effort import ENDLESS, Patience
from phaze.scheduling.passes import SolveLimits

LEAST = 128  # points of a batch that are worth a process


class SearchPiece(Protocol):
    """Part of a search."""

    def on(self, context: SearchContext) -> Any:  # noqa: ANN401 - each kind of piece finds something else
        """Result of the piece."""


@dataclass
class SearchContext:
    """The candidates of a search, their task, and an evaluator that keeps what pieces share.

    Points that take more than `longest_s` seconds do not count. `memo`: what earlier searches have found out. In
    another process the evaluator is one of its own.
    """

    candidates: Candidates
    task: Task
    axes: SearchAxes
    longest_s: float = np.inf
    memo: Memo | None = None

    def do(self, piece: SearchPiece) -> Any:  # noqa: ANN401 - each kind of piece finds something else
        """The result of one piece."""
        return piece.on(self)

    @cached_property
    def evaluator(self) -> Evaluator:
        """Knows the combinations of hardware of the whole space."""
        return Evaluator(self.task, self.candidates.survey(), memo=self.memo)

    def view(self, block: Block) -> PointValues:
        """Values of the points of some candidates."""
        known = known_columns(block, self.task.economics)
        evaluator = self.evaluator.on(block.table)
        return PointValues(evaluator, known, self.axes, self.longest_s, self.drawn_limit_w)

    def screen(self, relevance: Relevance, clock: Clock) -> Screen:
        """Bounds on whole blocks."""
        limits = self.longest_s, self.drawn_limit_w
        return Screen(self.evaluator, self.axes, relevance, clock, *limits)

    @property
    def drawn_limit_w(self) -> float | None:
        """Limit in W of what devices draw while a plan runs."""
        return self.candidates.budgets.drawn_limit_w

    def on(self, numbers: Integers) -> Evaluator:
        """The evaluator on candidates by number; the latest one is kept."""
        name = numbers.tobytes()
        if self._latest is None or self._latest[0] != name:
            self._latest = name, self.evaluator.on(self.candidates.table(numbers))
        return self._latest[1]

    @cached_property
    def _latest(self) -> tuple[bytes, Evaluator] | None:
        return None

    def __getstate__(self) -> dict[str, Any]:
        """Without what can be made again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class BlockPiece:
    """Candidates by number, to be bounded against what is known; see `Screen.run`."""

    numbers: Integers
    relevance: Relevance
    taken: PointPool
    clock: Clock

    def on(self, context: SearchContext) -> tuple[int, Screened]:
        """How many of them keep the budgets, and what is left of their points."""
        block = context.candidates.within(self.numbers)
        return len(block), context.screen(self.relevance, self.clock).run(block, self.taken)


@dataclass(frozen=True)
class Looked:
    """What a closer look at points says: `others` (A, k) and `lead` (A,) at best, and what a plan of each reaches.

    `value` (A,): throughput or score that is reached, 0 where nothing is known; `met`: nothing is better than that.
    """

    others: Floats
    lead: Floats
    value: Floats
    reached: tuple[Floats, Floats]
    met: Flags

    @staticmethod
    def join(parts: list[tuple[NDArray[np.intp], Looked]]) -> Looked:
        """Parts of a batch as one, each with the positions of its points."""
        order = np.argsort(np.concatenate([at for at, _ in parts]), kind="stable")
        found = [part for _, part in parts]

        def whole(name: str) -> Any:  # noqa: ANN401 - an array of any kind
            return np.concatenate([getattr(part, name) for part in found])[order]

        others, lead = (np.concatenate([part.reached[side] for part in found])[order] for side in (0, 1))
        return Looked(whole("others"), whole("lead"), whole("value"), (others, lead), whole("met"))

    def take(self, rows: Rows) -> Looked:
        """Some of the points."""
        reached = self.reached[0][rows], self.reached[1][rows]
        return Looked(self.others[rows], self.lead[rows], self.value[rows], reached, self.met[rows])

    def given_up(self, which: Flags) -> Looked:
        """The same where some points, (A,), are given up."""
        lead, value, reached = (np.where(which, 0.0, one) for one in (self.lead, self.value, self.reached[1]))
        return Looked(self.others, lead, value, (self.reached[0], reached), self.met & ~which)


@dataclass(frozen=True)
class BatchPiece:
    """Points of one config, by the numbers of their candidates and of the config: tightened, with `effort` evaluated.

    `least` (A,): what they have to lead with to be of interest. `patience`: when to stop.
    """

    numbers: Integers
    config: int
    least: Floats
    effort: SolveLimits | None = None
    patience: Patience | None = None

    def on(self, context: SearchContext) -> Looked:
        """Bounds on their values."""
        return self.judged(context)[0]

    def give_up_s(self, context: SearchContext) -> Floats:
        """Iteration times (A,) from which on points are given up."""
        view, rows = context.view(context.candidates.kept(self.numbers)), np.arange(len(self.numbers))
        return view.give_up_s(view.evaluator.configs[self.config], rows, self.least)

    def judged(self, context: SearchContext) -> tuple[Looked, Floats]:
        """Bounds on their values, and the seconds (A,) by which it is judged whether they are given up."""
        view = context.view(context.candidates.kept(self.numbers))
        evaluator, rows = view.evaluator, np.arange(len(self.numbers))
        config = evaluator.configs[self.config]
        give_up_s = view.give_up_s(config, rows, self.least)
        if self.effort is None:
            found = evaluator.bounds(config, rows, give_up_s, self.patience or ENDLESS)
        else:
            found = evaluator.exact(config, rows, give_up_s, self.effort)
        met = np.isfinite(found.upper_s) & (found.lower_s == found.upper_s)
        reached = view.measured(config, rows, found.upper_s)
        value = evaluator.task.cluster.global_batch / found.upper_s
        values = view.optimistic(config, rows, found.lower_s)
        return Looked(*values, value, reached, np.asarray(met)), found.judged_s

    def take(self, at: Rows) -> BatchPiece:
        """Some of the points."""
        return replace(self, numbers=self.numbers[at], least=self.least[at])

    def divided(self, most: int) -> Iterator[tuple[NDArray[np.intp], BatchPiece]]:
        """At most that many parts that are worth a process, with the positions of their points.

        Candidates with close numbers stay together, as they share costs and schedules.
        """
        parts = max(1, min(most, len(self.numbers) // LEAST))
        for at in np.array_split(np.argsort(self.numbers, kind="stable"), parts):
            yield at, self.take(at)


@dataclass(frozen=True)
class PlanPiece:
    """Points of one config whose iteration times, (A,) seconds, are known, for what only their plans tell."""

    numbers: Integers
    config: int
    seconds: Floats
    effort: SolveLimits

    def on(self, context: SearchContext) -> tuple[Floats, Floats]:
        """Their values: the other axes (A, k), and what leads (A,)."""
        view = context.view(context.candidates.kept(self.numbers))
        rows = np.arange(len(self.numbers))
        return view.measured(view.evaluator.configs[self.config], rows, self.seconds, self.effort)
