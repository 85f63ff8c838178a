"""Pieces of a certified search, and the context they are worked out in, in this process or in another one.

A piece is a block of candidates that is bounded against what is known, or points of a batch that are tightened or
evaluated. Points are independent of each other, so that it does not matter how a batch is divided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Integers
from phaze.explore.certified.block_screening import Screen, Screened
from phaze.explore.certified.search_state import PointPool, Relevance
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.evaluation.evaluator import Evaluator, PointBounds
from phaze.explore.request.explore_request import Task
from phaze.explore.request.search_progress import Clock
from phaze.memo import Memo
from phaze.scheduling.passes import SolveLimits

LEAST = 128  # points of a batch that are worth a process


class SearchPiece(Protocol):
    """Part of a search."""

    def on(self, context: SearchContext) -> Any:  # noqa: ANN401 - each kind of piece finds something else
        """Result of the piece."""


@dataclass
class SearchContext:
    """The candidates of a search, their task, and an evaluator that keeps what pieces share.

    `others`: the columns (A, k) that are minimised. `memo`: what earlier searches have found out. In another
    process the evaluator is one of its own.
    """

    candidates: Candidates
    task: Task
    others: Callable[[Block], Floats]
    memo: Memo | None = None

    def do(self, piece: SearchPiece) -> Any:  # noqa: ANN401 - each kind of piece finds something else
        """The result of one piece."""
        return piece.on(self)

    @cached_property
    def evaluator(self) -> Evaluator:
        """Knows the combinations of hardware of the whole space."""
        return Evaluator(self.task, self.candidates.survey(), memo=self.memo)

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
        return len(block), self.of(block, context)

    def of(self, block: Block, context: SearchContext) -> Screened:
        """Screened points of those that keep the budgets."""
        screen = Screen(context.evaluator, self.relevance, self.clock)
        return screen.run(block, context.others(block), self.taken)


@dataclass(frozen=True)
class BatchPiece:
    """Points of one config, by the numbers of their candidates and of the config: tightened, with `effort` evaluated.

    `give_up_s` (A,): iteration times above which a point is of no interest.
    """

    numbers: Integers
    config: int
    give_up_s: Floats
    effort: SolveLimits | None = None

    def on(self, context: SearchContext) -> PointBounds:
        """Bounds on their iteration times, (A,)."""
        evaluator, rows = (
            context.evaluator.on(context.candidates.table(self.numbers)),
            np.arange(len(self.numbers)),
        )
        config = evaluator.configs[self.config]
        if self.effort is None:
            return evaluator.bounds(config, rows, self.give_up_s)
        return evaluator.exact(config, rows, self.give_up_s, self.effort)

    def divided(self, most: int) -> Iterator[tuple[NDArray[np.intp], BatchPiece]]:
        """At most that many parts that are worth a process, with the positions of their points.

        Candidates with close numbers stay together, as they share costs and schedules.
        """
        parts = max(1, min(most, len(self.numbers) // LEAST))
        for at in np.array_split(np.argsort(self.numbers, kind="stable"), parts):
            yield at, BatchPiece(self.numbers[at], self.config, self.give_up_s[at], self.effort)
