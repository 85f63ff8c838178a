"""Work in a thread that nobody has to wait for: what it makes is taken where it is there in time."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from threading import Thread
from typing import NoReturn, TypeVar

T = TypeVar("T")

_threads: list[Thread] = []


def in_background(work: Callable[[], T], name: str) -> Future[T]:
    """What some work makes, or raises, once it is done, in a thread of that name.

    A program that ends by itself waits for it, as libraries do not like to be left in the middle of a call; one that
    ends by `leave` does not.
    """
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            found.set_exception(error)

    thread = Thread(target=run, name=name, daemon=True)
    if not _threads:
        atexit.register(_wait)
    _threads.append(thread)
    thread.start()
    return found


def _wait() -> None:
    for thread in _threads:
        thread.join()


def leave(code: int) -> NoReturn:
    """End the process with an exit code, without waiting for work in the background."""
    if not any(thread.is_alive() for thread in _threads):
        sys.exit(code)
    try:
        atexit.unregister(_wait)
        atexit._run_exitfuncs()
        with suppress(OSError, ValueError):  # whoever read it has left, or it came closed
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(code)
