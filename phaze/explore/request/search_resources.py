"""Resources of a search besides time: who works for it, what is remembered for it, and a copy of this process
that works beside it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Protocol, TypeVar

from phaze.memo import Memo

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


Piece = TypeVar("Piece")
Result = TypeVar("Result")
Asked_contra = TypeVar("Asked_contra", contravariant=True)
Found_co = TypeVar("Found_co", covariant=True)


class Work(Protocol[Asked_contra, Found_co]):
    """Job of the workers: a picklable object of which every worker has a copy.

    It may remember what pieces share, as long as an answer does not depend on which pieces came before.
    """

    def do(self, piece: Asked_contra) -> Found_co:
        """The result of one piece."""


class Executor(Protocol):
    """Has pieces of work done; who does which changes no answer."""

    @property
    def workers(self) -> int:
        """How many pieces are done side by side."""

    def map(self, work: Work[Piece, Result], pieces: Sequence[Piece]) -> Iterator[Result]:
        """Results in the order of the pieces; what a piece raises is raised here."""


class Store(Protocol):
    """Remembers evaluations under the digest of everything they depend on, so that none can be out of date."""

    def get(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """Values that are known of some keys."""

    def put(self, items: Mapping[str, bytes]) -> None:
        """Remember; a value that is there already stays."""


def never() -> bool:
    """Nobody asks for an end."""
    return False


class InThisProcess:
    """Works in this process, one piece after the other."""

    workers = 1

    def map(self, work: Work[Piece, Result], pieces: Sequence[Piece]) -> Iterator[Result]:
        """Results as they are asked for."""
        return map(work.do, pieces)


class NoStore:
    """Remembers nothing."""

    def get(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """Nothing."""
        del keys
        return {}

    def put(self, items: Mapping[str, bytes]) -> None:
        """Forget."""


@dataclass(frozen=True)
class SearchResources:
    """An executor and a store."""

    executor: Executor = field(default_factory=InThisProcess)
    store: Store = field(default_factory=NoStore)

    @property
    def memo(self) -> Memo | None:
        """Memo that evaluators ask for earlier results; None where nothing is remembered."""
        return None if isinstance(self.store, NoStore) else Memo(self.store)


ALONE = SearchResources()


T = TypeVar("T")
_LOOK_S = 1.0
"""Between two looks at the time: somebody may want everything to end sooner."""
_ARRIVE_S = 0.1
"""That results which are there may take to arrive, whatever the time."""


GIVE_WAY_S = 8.0
"""Processor time after which a copy that gives way does: what is done by then fills a processor that others leave."""
_GIVEN_WAY = 10
"""By how much it is nicer then: of a processor that it shares with another process it has a tenth."""


@contextmanager
def run_in_fork(
    work: Callable[[], Iterable[T]],
    left_s: Callable[[], float] = lambda: float("inf"),
    give_way_s: float = 0.0,
) -> Iterator[Callable[[], T | None]]:
    """Start some work on a copy of this process, whose results, which can be pickled, are each better than the last.

    What is given waits for the last one, or tells the best so far when no time is left; None before the first. Where
    processes cannot be copied, or the copy fails, the work is done when its result is asked for: so the answer is the
    same, errors are raised here, but a step that has begun is not cut short. Ctrl-C is left to this process. At the
    end the copy ends as well, whether anybody has asked or not.

    `give_way_s`: processor time of the copy after which all other processes come first; 0: it has its share for good.
    """
    from multiprocessing import get_all_start_methods, get_context

    if "fork" not in get_all_start_methods():
        yield lambda: _done_here(work, left_s)
        return
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    copy = context.Process(target=_send, args=(work, sender, give_way_s), daemon=True)
    copy.start()
    sender.close()

    def result() -> T | None:
        try:
            return _received(receiver, left_s)
        except EOFError:
            return _done_here(work, left_s)

    try:
        yield result
    finally:
        receiver.close()
        copy.kill()
        copy.join()


def end_with_parent() -> None:
    """Let this process end as soon as the one that started it has ended, in whatever way, and whatever it is at."""
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    def watch(sentinel: int) -> None:
        wait([sentinel])
        os._exit(1)

    if (parent := parent_process()) is not None:
        Thread(target=watch, args=(parent.sentinel,), daemon=True).start()


def _send(work: Callable[[], Iterable[T]], sender: Connection, give_way_s: float) -> None:
    """Send each result, and that there is no other; not that where the work fails."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, lambda *_: os.nice(_GIVEN_WAY))
    signal.setitimer(signal.ITIMER_PROF, give_way_s)
    with suppress(Exception):
        for result in work():
            sender.send((result,))
        sender.send(())


def _received(receiver: Connection, left_s: Callable[[], float]) -> T | None:
    """The last result that comes in time. Raises EOFError where the copy has failed."""
    latest: T | None = None
    while True:
        left = left_s()
        if receiver.poll(min(max(left, _ARRIVE_S), _LOOK_S)):
            message: tuple[T, ...] = receiver.recv()
            if not message:
                return latest
            (latest,) = message
        elif left <= 0:
            return latest


def _done_here(work: Callable[[], Iterable[T]], left_s: Callable[[], float]) -> T | None:
    """The last result that there is time to begin; the first one in any case."""
    latest: T | None = None
    for latest in work():  # noqa: B007 - the last one is what is wanted
        if left_s() <= 0:
            break
    return latest
