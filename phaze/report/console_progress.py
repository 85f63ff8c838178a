"""Progress on stderr, for work that lasts longer than two seconds.

On a terminal one live line that also goes on while nothing is reported; elsewhere a plain line now and then; with
`quiet` nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, RLock, Thread

from rich.console import Console
from rich.live import Live
from rich.text import Text

SILENT_S = 2.0
PLAIN_EVERY_S = 10.0
LIVE_EVERY_S = 0.1
_TICK_S = 0.5

SEARCHING = frozenset({"bounding", "refining", "evaluating", "counting devices"})
"""Steps of a search that take turns: together one phase, whose end no count of them tells."""


@dataclass
class ConsoleProgress:
    """A `phaze.explore.request.search_progress.Progress` on a rich console.

    Use it as a context manager, so that the live line is always removed. `phase`: what all of the work is called, where
    its steps are no concern of a reader; `limit_s`: the time that a search may take.
    """

    console: Console
    clock: Callable[[], float] = time.monotonic
    phase: str = ""
    limit_s: float | None = None
    _start: float = field(init=False)
    _last: float = field(init=False)
    _live: Live | None = field(init=False, default=None)
    _since: tuple[str, float, int] = field(init=False, default=("", 0.0, 0))
    _told: Callable[[float], str] = field(init=False)
    _lock: RLock = field(init=False, default_factory=RLock)
    _over: Event = field(init=False, default_factory=Event)

    def __post_init__(self) -> None:
        """Start the clock; nothing is written before `SILENT_S`."""
        self._start = self.clock()
        self._last = float("-inf")
        self._told = lambda elapsed_s: f"{elapsed_s:.0f} s  {self.phase or 'working'}"

    def __enter__(self) -> ConsoleProgress:
        """Return itself; on a terminal the seconds go on by themselves."""
        if self.console.is_terminal:
            Thread(target=self._tick, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the live line."""
        self._over.set()
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None

    def update(self, stage: str, done: int, total: int, note: str) -> None:
        """Write the state, at most once per interval."""
        now = self.clock()
        if stage != self._since[0]:
            self._since = stage, now, done
        self._told = self._sentence(stage, done, total, note, now)
        every = LIVE_EVERY_S if self.console.is_terminal else PLAIN_EVERY_S
        if now - self._start < SILENT_S or now - self._last < every:
            return
        self._last = now
        self._show(now)

    def _tick(self) -> None:
        while not self._over.wait(_TICK_S):
            if (now := self.clock()) - self._start >= SILENT_S:
                self._show(now)

    def _show(self, now: float) -> None:
        line = Text(self._told(now - self._start), no_wrap=True, overflow="ellipsis")
        if not self.console.is_terminal:
            self.console.print(line, no_wrap=True, overflow="ellipsis")
            return
        with self._lock:
            if self._over.is_set():
                return
            if self._live is None:
                self._live = Live(console=self.console, transient=True, auto_refresh=False)
                self._live.start()
            self._live.update(line, refresh=True)

    def _sentence(self, stage: str, done: int, total: int, note: str, now: float) -> Callable[[float], str]:
        """The line after some seconds: phase, how far and how long, what is known."""
        searching = stage in SEARCHING
        name = self.phase or ("searching" if searching else stage)
        steps = "" if searching or self.phase or not total else self._steps(done, total, now)
        tail = f"; {note}" if note else ""

        def told(elapsed_s: float) -> str:
            limit = (
                f"; at most {max(0.0, self.limit_s - elapsed_s):.0f} s left"
                if self.limit_s and searching
                else ""
            )
            return f"{elapsed_s:.0f} s  {name}{steps}{tail}{limit}"

        return told

    def _steps(self, done: int, total: int, now: float) -> str:
        """Share of a stage, and about how long the rest takes at its pace so far."""
        _, began, before = self._since
        share = f" {100 * min(done / total, 1.0):.0f} %"
        pace = (done - before) / (now - began) if now > began else 0.0
        left = max(total - done, 0)
        return share + (f", about {left / pace:.0f} s left" if pace > 0 and left else "")
