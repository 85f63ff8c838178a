"""Ctrl-C as a polite request: the search ends with the best it knows; a second one ends at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from phaze.errors import PhazeError

INTERRUPTED = 130
"""Exit code of a run that was interrupted: 128 + SIGINT, as shells have it."""


class InterruptedRunError(PhazeError):
    """Ctrl-C before any answer was known."""

    exit_code = INTERRUPTED


@contextmanager
def interruptible(on_interrupt: Callable[[], None] | None = None) -> Iterator[Callable[[], bool]]:
    """Give a function that says whether Ctrl-C was pressed.

    The first press also calls `on_interrupt`; the second ends the block with InterruptedRunError.
    """
    pressed = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        if on_interrupt is not None:
            on_interrupt()

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield lambda: pressed
    except KeyboardInterrupt as error:
        raise InterruptedRunError("interrupted before any answer was known") from error
    finally:
        signal.signal(signal.SIGINT, before)
