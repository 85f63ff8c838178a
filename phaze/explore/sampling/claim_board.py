"""Where hosts see who evaluates what, and the evaluation of a batch together: each claims what it has worked out and
looks for the rest.
"""

from __future__ import annotations

import json
import os
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread
from typing import Protocol
from uuid import uuid4

from sqlalchemy.exc import SQLAlchemyError

from phaze.errors import PhazeError
from phaze.explore.sampling.design_assessor import Row

LEASE_S = 60.0
"""After how long without a sign of life a claim is lost."""


@dataclass(frozen=True, slots=True)
class BoardView:
    """State of some pieces on a board.

    `answers`: figures of those that are done. `free`: those nobody is at, with how many hosts were and went silent.
    """

    answers: Mapping[int, Row]
    free: Mapping[int, int]


class ClaimBoard(Protocol):
    """Claims and answers of pieces of work, by number. What it raises is its storage's error."""

    @property
    def host(self) -> str:
        """Who claims."""

    @property
    def lease_s(self) -> float:
        """How long a claim lasts."""

    def look(self, numbers: Sequence[int]) -> BoardView:
        """Answers of some pieces, and which of the others are free to claim."""

    def claim(self, numbers: Sequence[int], most: int) -> list[int]:
        """Claim the first `most` pieces, as far as nobody has by now; which were won."""

    def renew(self, numbers: Sequence[int]) -> None:
        """Make claims last from now."""

    def release(self, numbers: Sequence[int]) -> None:
        """Give up those claims that are not answered."""

    def answer(self, number: int, figures: Row) -> None:
        """Tell what came out of a piece; where somebody was first, that stands."""


@contextmanager
def held_claims(board: ClaimBoard, numbers: Sequence[int]) -> Iterator[None]:
    """Renew claims while the block runs, and give up those that it leaves unanswered."""
    over = Event()

    def renew() -> None:
        while not over.wait(board.lease_s / 4):
            with suppress(SQLAlchemyError, OSError):  # the block will meet it itself
                board.renew(numbers)

    renewing = Thread(target=renew, daemon=True)
    renewing.start()
    try:
        yield
    finally:
        over.set()
        renewing.join()
        with suppress(SQLAlchemyError, OSError):
            board.release(numbers)


def host_name() -> str:
    """A name that no other process has: of the machine, then what tells its processes apart."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"


FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
_LOST = 5  # hosts that may go silent over one design before no other one tries


class DeadlyDesignError(PhazeError):
    """A design that host after host has begun to evaluate and not finished."""


@dataclass
class SharedEvaluation:
    """Figures of candidates, by whichever host comes first.

    `evaluate`: does it here, `workers` candidates side by side. `stop`: whether to leave. `evaluated` counts what
    this host did, `waited_s` is how long it had nothing to do.
    """

    board: ClaimBoard
    evaluate: Callable[[Sequence[int]], Iterator[Row]]
    workers: int
    stop: Callable[[], bool]
    evaluated: int = 0
    waited_s: float = 0.0

    def assess(self, numbers: Sequence[int]) -> Iterator[Row]:
        """Figures of some candidates, in the order asked for, as far as `stop` lets it come.

        Raises DeadlyDesignError where several hosts died of one.
        """
        known: dict[int, Row] = {}
        pause_s = FIRST_PAUSE_S
        for number in numbers:
            while number not in known:
                if self.stop():
                    return
                found = self._work_or_look([n for n in numbers if n not in known])
                known |= found
                pause_s = FIRST_PAUSE_S if found else self._wait(pause_s)
            yield known[number]

    def _work_or_look(self, missing: Sequence[int]) -> dict[int, Row]:
        """Figures that others have found by now, and those this host finds if there is something left to claim."""
        view = self.board.look(missing)
        for number, lost in view.free.items():
            if lost >= _LOST:
                raise DeadlyDesignError(
                    f"{lost} hosts began to evaluate candidate {number} and none came back; do they have enough memory?"
                )
        claimed = self.board.claim(self._turned(list(view.free)), self.workers)
        return {**view.answers, **self._evaluated(claimed)}

    def _evaluated(self, claimed: Sequence[int]) -> dict[int, Row]:
        if not claimed:
            return {}
        found: dict[int, Row] = {}
        with held_claims(self.board, claimed):
            for number, row in zip(claimed, self.evaluate(claimed), strict=True):
                self.board.answer(number, row)
                found[number] = json.loads(json.dumps(row))  # as all others read it
                self.evaluated += 1
                if self.stop():
                    break
        return found

    def _turned(self, free: list[int]) -> list[int]:
        """Each host begins somewhere else, so that they seldom want the same."""
        start = zlib.crc32(self.board.host.encode()) % max(1, len(free))
        return free[start:] + free[:start]

    def _wait(self, pause_s: float) -> float:
        """Wait; how long to wait next time."""
        time.sleep(pause_s)
        self.waited_s += pause_s
        return min(2 * pause_s, LONGEST_PAUSE_S)
