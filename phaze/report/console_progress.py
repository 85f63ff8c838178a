"""Progress on stderr, for work that lasts longer than two seconds.

On a terminal one live line; elsewhere a plain line now and then; with `quiet` nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.text import Text

SILENT_S = 2.0
PLAIN_EVERY_S = 10.0
LIVE_EVERY_S = 0.1


@dataclass
class ConsoleProgress:
    """A `phaze.explore.request.search_progress.Progress` on a rich console.

    Use it as a context manager, so that the live line is always removed.
    """

    console: Console
    clock: Callable[[], float] = time.monotonic
    _start: float = field(init=False)
    _last: float = field(init=False)
    _live: Live | None = field(init=False, default=None)
    _since: tuple[str, float, int] = field(init=False, default=("", 0.0, 0))

    def __post_init__(self) -> None:
        """Start the clock; nothing is written before `SILENT_S`."""
        self._start = self.clock()
        self._last = float("-inf")

    def __enter__(self) -> ConsoleProgress:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the live line."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(self, stage: str, done: int, total: int, note: str) -> None:
        """Write the state, at most once per interval."""
        now = self.clock()
        if stage != self._since[0]:
            self._since = stage, now, done
        every = LIVE_EVERY_S if self.console.is_terminal else PLAIN_EVERY_S
        if now - self._start < SILENT_S or now - self._last < every:
            return
        self._last = now
        words = _line(stage, done, total, note, now - self._start, self._rate(now, done))
        line = Text(words, no_wrap=True, overflow="ellipsis")
        if not self.console.is_terminal:
            self.console.print(line, no_wrap=True, overflow="ellipsis")
            return
        if self._live is None:
            self._live = Live(console=self.console, transient=True, auto_refresh=False)
            self._live.start()
        self._live.update(line, refresh=True)

    def _rate(self, now: float, done: int) -> float:
        """Units per second since the stage began."""
        _, began, before = self._since
        return (done - before) / (now - began) if now > began else 0.0


def _line(stage: str, done: int, total: int, note: str, elapsed_s: float, rate: float) -> str:
    state = f"{100 * done / total:.0f} %, {total - done:,} left" if total else f"{done:,}"
    speed = f", {rate:,.3g}/s" if rate > 0 else ""
    return f"{elapsed_s:.0f} s  {stage} {state}{speed}" + (f"; {note}" if note else "")
