"""A copy of this process that works beside it on pieces of the same work, each in the order in which it is asked."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from phaze.explore.request.search_progress import Clock, interrupt_arrived
from phaze.explore.request.search_resources import end_with_parent

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_LOOK_S = 0.25
"""Between two looks at whether somebody wants everything to end."""

Do = Callable[[Any], Any]
"""Works out a piece; both can be pickled, piece and result."""


def may_work_beside() -> bool:
    """Whether this process can be copied, and a processor is there for the copy."""
    from multiprocessing import current_process, get_all_start_methods

    affinity = getattr(os, "sched_getaffinity", None)
    processors = len(affinity(0)) if affinity else os.cpu_count() or 1
    return processors > 1 and "fork" in get_all_start_methods() and not current_process().daemon


class PartnerProcess:
    """A copy of this process, as it was when it was made.

    Pieces that are asked for while it is busy wait for it. Where it ends, whatever the reason, pieces are worked out
    here instead, so that an answer, or an error, is the same. Ctrl-C reaches it as it reaches this process.
    """

    def __init__(self, do: Do, pipe: Connection, process_id: int, clock: Clock) -> None:
        """Made by `partner_process`."""
        self._do = do
        self._pipe = pipe
        self._process_id = process_id
        self._clock = clock
        self._asked: deque[Any] = deque()
        self._there = True
        self._told = False

    def __len__(self) -> int:
        """Pieces that are asked for and not answered."""
        return len(self._asked)

    def ask(self, piece: Any) -> None:  # noqa: ANN401 - pieces are of many kinds
        """Have a piece worked out."""
        self._asked.append(piece)
        if self._there:
            try:
                self._pipe.send(piece)
            except OSError:
                self._there = False

    def answer(self) -> Any:  # noqa: ANN401 - each kind of piece finds something else
        """The result of the piece that was asked for first of those that are not answered; waits for it."""
        piece = self._asked.popleft()
        if self._there:
            try:
                return self._received()
            except (EOFError, OSError):
                self._there = False
        return self._do(piece)

    def _received(self) -> Any:  # noqa: ANN401 - as above
        while not self._pipe.poll(_LOOK_S):
            if not self._told and self._clock.patience() <= 0:
                self._told = True
                os.kill(self._process_id, signal.SIGINT)
        return self._pipe.recv()


@contextmanager
def partner_process(do: Do, clock: Clock) -> Iterator[PartnerProcess]:
    """A copy of this process for the time of a block; `clock` tells when somebody interrupts."""
    from multiprocessing import get_context

    context = get_context("fork")
    here, there = context.Pipe()
    copy = context.Process(target=_serve, args=(do, here, there), daemon=True)
    copy.start()
    there.close()
    try:
        yield PartnerProcess(do, here, copy.pid or 0, clock)
    finally:
        here.close()
        copy.kill()
        copy.join()


def _serve(do: Do, here: Connection, there: Connection) -> None:
    """Work out one piece after the other. What it raises is raised by the other process, which tries it again."""
    here.close()
    end_with_parent()
    signal.signal(signal.SIGINT, lambda *_: interrupt_arrived())
    pieces: SimpleQueue[Any] = SimpleQueue()

    def read() -> None:
        # Where the other process has closed its end, or sends what cannot be read, it works alone from then on.
        with suppress(Exception):
            while True:
                pieces.put(there.recv())
        os._exit(0)

    # Pieces are read at once: the other process never waits to be heard while this one waits to be.
    Thread(target=read, daemon=True).start()
    with suppress(Exception):
        while True:
            there.send(do(pieces.get()))
    there.close()
