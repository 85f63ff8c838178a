"""Work that is done beside other work, in a process of its own, as long as there is time."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")
_LOOK_S = 1.0
"""Between two looks at the time: somebody may want everything to end sooner."""
_ARRIVE_S = 0.1
"""That results which are there may take to arrive, whatever the time."""


@contextmanager
def aside(
    work: Callable[[], Iterable[T]], left_s: Callable[[], float] = lambda: float("inf")
) -> Iterator[Callable[[], T | None]]:
    """Start some work on a copy of this process, whose results, which can be pickled, are each better than the last.

    What is given waits for the last one, or tells the best so far when no time is left; None before the first. Where
    processes cannot be copied, or the copy fails, the work is done when its result is asked for: so the answer is the
    same, errors are raised here, but a step that has begun is not cut short. Ctrl-C is left to this process. At the
    end the copy ends as well, whether anybody has asked or not.
    """
    from multiprocessing import get_all_start_methods, get_context

    if "fork" not in get_all_start_methods():
        yield lambda: _done_here(work, left_s)
        return
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    copy = context.Process(target=_send, args=(work, sender), daemon=True)
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


def _send(work: Callable[[], Iterable[T]], sender: Connection) -> None:
    """Send each result, and that there is no other; not that where the work fails."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
