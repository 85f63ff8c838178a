"""Ctrl-C as a polite request: the search ends with the best it knows; a second one ends at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether Ctrl-C was pressed; the second press raises KeyboardInterrupt."""
    pressed = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
