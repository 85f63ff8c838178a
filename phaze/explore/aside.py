"""Work that is done beside other work, in a process of its own."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")


def aside(work: Callable[[], T]) -> Callable[[], T]:
    """Start some work on a copy of this process; what is returned waits for its result, which can be pickled.

    Where processes cannot be copied, or the copy fails, the work is done when its result is asked for: so the
    answer is the same, and errors are raised here. Ctrl-C is left to this process; its end ends the copy.
    """
    from multiprocessing import get_all_start_methods, get_context

    if "fork" not in get_all_start_methods():
        return work
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
        finally:
            receiver.close()
            copy.join()

    return result


def _send(work: Callable[[], T], sender: Connection) -> None:
    """Send what the work comes to; nothing where it fails."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(Exception):
        sender.send(work())
