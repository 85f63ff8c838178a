"""Ctrl-C as a polite request: the search ends with the best it knows; a second one ends at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from phaze.errors import NOTHING_KNOWN, OutOfTimeError, PhazeError

if TYPE_CHECKING:
    from phaze.explore.request.search_progress import Progress

INTERRUPTED = 130
"""Exit code of a run that was interrupted: 128 + SIGINT, as shells have it."""


class InterruptedRunError(PhazeError):
    """Ctrl-C before any answer was known."""

    exit_code = INTERRUPTED


@dataclass
class Heard:
    """Progress that is passed on, and whether there was any: before it, nothing is known that Ctrl-C could wait for."""

    progress: Progress
    anything: bool = False

    def update(self, stage: str, done: int, total: int, note: str) -> None:
        """Pass on."""
        self.anything = True
        self.progress.update(stage, done, total, note)


@contextmanager
def interruptible(
    on_interrupt: Callable[[], None] | None = None, heard: Heard | None = None
) -> Iterator[Callable[[], bool]]:
    """Give a function that says whether Ctrl-C was pressed.

    The first press also calls `on_interrupt`; the second, and one before anything was `heard`, ends the block with
    InterruptedRunError.
    """
    pressed = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed or (heard is not None and not heard.anything):
            raise KeyboardInterrupt
        pressed = True
        # Not through sys.stderr: the signal may have come in the middle of a write to it.
        os.write(2, b"\ndse: stopping with the best known so far; Ctrl-C again stops at once\n")
        if on_interrupt is not None:
            on_interrupt()

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield lambda: pressed
    except KeyboardInterrupt as error:
        raise InterruptedRunError(NOTHING_KNOWN) from error
    except OutOfTimeError as error:
        raise (InterruptedRunError(NOTHING_KNOWN) if pressed else error) from error
    finally:
        signal.signal(signal.SIGINT, before)
