"""Work that is done beside other work, in a process of its own."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")


@contextmanager
def aside(work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Start some work on a copy of this process; what is given waits for its result, which can be pickled.

    Where processes cannot be copied, or the copy fails, the work is done when its result is asked for: so the
    answer is the same, and errors are raised here. Ctrl-C is left to this process. At the end the copy ends as well,
    whether anybody has asked or not.
    """
    from multiprocessing import get_all_start_methods, get_context

    if "fork" not in get_all_start_methods():
        yield work
        return
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    copy = context.Process(target=_send, args=(work, sender), daemon=True)
    copy.start()
    sender.close()

    def result() -> T:
        try:
            return cast("T", receiver.recv())
        except EOFError:
            return work()

    try:
        yield result
    finally:
        receiver.close()
        copy.kill()
        copy.join()


def _send(work: Callable[[], T], sender: Connection) -> None:
    """Send what the work comes to; nothing where it fails."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(Exception):
        sender.send(work())
