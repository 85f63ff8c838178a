"""SCALE-Sim's result buffer: when it writes to memory, and when the array waits for it.

Half of the buffer collects results; when it is full the oldest lines, each as wide as the memory interface, leave
for memory while the other half fills. Results that find no room wait until the lines have left.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from phaze.arrays import Integers
from phaze.cost.scalesim import Layout

NEVER = 1 << 62
"""A cycle that does not come."""


def result_words(plan: Layout) -> Integers:
    """Words that leave the array in each cycle, (cycles,): partial results too, once per fold."""
    words = np.empty((plan.column_folds, plan.row_folds, plan.fold_cycles), dtype=np.int64)
    edge_high = plan.along_rows - (plan.row_folds - 1) * plan.rows
    edge_wide = plan.along_columns - (plan.column_folds - 1) * plan.columns
    words[:-1, :-1] = _wave(plan, plan.rows, plan.columns)
    words[:-1, -1] = _wave(plan, edge_high, plan.columns)
    words[-1, :-1] = _wave(plan, plan.rows, edge_wide)
    words[-1, -1] = _wave(plan, edge_high, edge_wide)
    return words.ravel()


def _wave(plan: Layout, rows: int, columns: int) -> Integers:
    """Words that leave in each cycle of a fold that uses so many rows and columns of the array."""
    high = rows if plan.keeps_results else plan.steps
    # Results that stay leave behind those of unused rows; others once the last row has added to them.
    lead = plan.steps - 1 + plan.rows - rows if plan.keeps_results else 2 * plan.rows - 1
    wave = np.arange(1, high + columns)
    words = np.zeros(plan.fold_cycles, dtype=np.int64)
    words[lead : lead + len(wave)] = np.minimum(np.minimum(wave, wave[::-1]), min(high, columns))
    return words


@dataclass(slots=True)
class ResultBuffer:
    """The buffer while results come in; `words` per cycle of the array, (cycles,).

    `written`: words sent to memory, as the tool counts them; `busy_until`: cycle at which the last line left.
    """

    words: Integers
    buffer_words: int
    words_per_cycle: int
    written: int = 0
    busy_until: int = 0
    _stored: Integers = field(init=False)  # words up to each cycle
    _flushed: int = 0  # words that lie in lines
    _lines: deque[list[int]] = field(default_factory=deque)  # [lines, words in each]

    def __post_init__(self) -> None:
        """Count words."""
        self._stored = np.cumsum(self.words)

    @property
    def _half(self) -> int:
        return -(-self.buffer_words // 2)

    def next_cycle(self, since: int, stall: int) -> int:
        """The next of the array's cycles after `since` in which lines leave or results wait; NEVER if none.

        The array is `stall` cycles late.
        """
        done = int(self._stored[since]) if since >= 0 else 0
        full = self._cycle_of(max(self.buffer_words + self.written, done + 1))
        if full + stall < self.busy_until:
            return full
        free = self._cycle_of(max(self.buffer_words + self.written - self._half + 1, done + 1))
        idle = self.busy_until - stall
        if free >= idle:
            return free
        before = int(self._stored[idle - 1]) if idle <= len(self._stored) else int(self._stored[-1])
        return self._cycle_of(before + 1)

    def serve(self, cycle: int, stall: int) -> int:
        """Take the words of one of the array's cycles in; returns how long they wait."""
        now = cycle + stall
        stored, end = int(self._stored[cycle] - self.words[cycle]), int(self._stored[cycle])
        while True:
            waits = now < self.busy_until
            room = self.buffer_words + self.written - stored
            need = max(room if waits else room - self._half + 1, 1)
            if stored + need > end:
                return now - cycle - stall
            stored += need
            if waits:
                now = self.busy_until
            else:
                self._write(stored, now)

    def empty(self, now: int) -> int:
        """Write all that is left, beside what still leaves; returns the cycle in which the last line left."""
        last = self.busy_until
        while self._lines or self._flushed < self._stored[-1]:
            self._write(int(self._stored[-1]), now)
            now = self.busy_until + 1
        return max(last, self.busy_until)

    def _cycle_of(self, word: int) -> int:
        """The array's cycle that makes so many words."""
        cycle = int(np.searchsorted(self._stored, word))
        return cycle if cycle < len(self._stored) else NEVER

    def _write(self, stored: int, now: int) -> None:
        """Send half a buffer of lines to memory; what came since the last time makes lines of its own.

        A line that is not full counts as a full one unless it is the last that leaves.
        """
        full, rest = divmod(stored - self._flushed, self.words_per_cycle)
        self._lines.extend(line for line in ([full, self.words_per_cycle], [1, rest]) if all(line))
        self._flushed = stored
        wanted = -(-(self.buffer_words - self._half) // self.words_per_cycle)
        taken, width = 0, 0
        while self._lines and taken < wanted:
            lines = self._lines[0]
            now_taken, width = min(wanted - taken, lines[0]), lines[1]
            lines[0] -= now_taken
            taken += now_taken
            if not lines[0]:
                self._lines.popleft()
        self.written += (taken - 1) * self.words_per_cycle + width
        self.busy_until = now + taken - 1
