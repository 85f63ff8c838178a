"""Where hosts see who evaluates what, and what came out.

A claim is a lease: a host that no longer renews it has lost it. Leases spare work, no more: an evaluation gives
everybody the same figures, so where two hosts make one, because one of them had been thought dead, nothing is wrong.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread
from typing import Protocol
from uuid import uuid4

from sqlalchemy.exc import SQLAlchemyError

from phaze.explore.sampling.assessor import Row

LEASE_S = 60.0
"""After how long without a sign of life a claim is lost."""


@dataclass(frozen=True, slots=True)
class View:
    """What a board shows of some pieces.

    `answers`: figures of those that are done. `free`: those nobody is at, with how many hosts were and went silent.
    """

    answers: Mapping[int, Row]
    free: Mapping[int, int]


class Board(Protocol):
    """Claims and answers of pieces of work, by number. What it raises is its storage's error."""

    @property
    def host(self) -> str:
        """Who claims."""

    @property
    def lease_s(self) -> float:
        """How long a claim lasts."""

    def look(self, numbers: Sequence[int]) -> View:
        """What is known of some pieces."""

    def claim(self, numbers: Sequence[int], most: int) -> list[int]:
        """Claim the first `most` pieces, as far as nobody has by now; which were won."""

    def renew(self, numbers: Sequence[int]) -> None:
        """Make claims last from now."""

    def release(self, numbers: Sequence[int]) -> None:
        """Give up those claims that are not answered."""

    def answer(self, number: int, figures: Row) -> None:
        """Tell what came out of a piece; where somebody was first, that stands."""


@contextmanager
def held(board: Board, numbers: Sequence[int]) -> Iterator[None]:
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
