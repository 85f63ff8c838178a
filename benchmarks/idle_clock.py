"""`dse` by the clock of an idle machine: other work beside it takes nothing of its time limits.

    python benchmarks/idle_clock.py FILE dse-arguments...

Its clock shows the processor seconds of this process, and where it waits for a child that has used more since it was
asked, those; the last value is written to FILE.
"""

from __future__ import annotations

import atexit
import os
import select
import sys
import time
from collections import Counter
from contextlib import suppress
from multiprocessing import active_children
from multiprocessing.connection import Connection
from pathlib import Path

_LOOK_S = 0.05
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class IdleClock:
    """Seconds that an idle machine with a processor for each process would have shown."""

    def __init__(self) -> None:
        self.before_s = 0.0  # waits for others, and what a parent's clock showed when this process was copied
        self.at_start_s = time.process_time()
        self._at_fork_s = 0.0
        self._forked_s: dict[int, float] = {}
        self._begun: dict[int, dict[int, float]] = {}
        self._open: Counter[int] = Counter()

    def show(self) -> float:
        """Seconds since the start."""
        return time.process_time() - self.at_start_s + self.before_s

    def start_copy(self) -> None:
        """Go on in a copy of a process: its own processor time starts at 0."""
        self.before_s, self.at_start_s = self._at_fork_s, time.process_time()

    def keep(self) -> None:
        """Remember what a copy begins with."""
        self._at_fork_s = self.show()

    def ask(self, connection: Connection) -> None:
        """Something is sent to a child: it begins now, or after what it was asked for before."""
        if not self._open[id(connection)]:
            self._begun[id(connection)] = {
                pid: self.show() - spent for pid, spent in self._children_s().items()
            }
        self._open[id(connection)] += 1

    def take(self, connection: Connection) -> None:
        """An answer is read."""
        self._open[id(connection)] -= 1

    def wait(self, connection: Connection, timeout: float | None = 0.0) -> bool:
        """`Connection.poll` until children have worked for so long, not for as long as the machine had other work.

        What they worked while this process did as well is not waited for.
        """
        self._children_s()
        begun_s = self._forked_s | self._begun.get(id(connection), {})
        until = None if timeout is None else self.show() + timeout
        while True:
            there = _is_there(connection, 0.0 if timeout == 0 else _LOOK_S)
            each = (begun_s.get(pid, 0.0) + spent for pid, spent in self._children_s().items())
            self.before_s += max(0.0, max(each, default=0.0) - self.show())
            if there or not active_children() or (until is not None and self.show() >= until):
                return there

    def _children_s(self) -> dict[int, float]:
        """Processor time of each child that is alive."""
        found = {}
        for child in active_children():
            with suppress(OSError):
                fields = (
                    Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                )
                found[child.pid or 0] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
        for pid in found:
            self._forked_s.setdefault(pid, self._at_fork_s)
        return found


def _is_there(connection: Connection, timeout: float) -> bool:
    """`Connection.poll` by the machine's own clock; that one would wait by this module's, which waits with it."""
    return bool(select.select([connection], [], [], timeout)[0])


def main() -> None:
    """Run the command line under this clock."""
    file, *arguments = sys.argv[1:]
    clock, owner = IdleClock(), os.getpid()
    os.register_at_fork(before=clock.keep, after_in_child=clock.start_copy)
    time.monotonic = clock.show

    def poll(connection: Connection, timeout: float | None = 0.0) -> bool:
        return clock.wait(connection, timeout)

    send, receive = Connection.send, Connection.recv

    def asking(connection: Connection, what: object) -> None:
        clock.ask(connection)
        send(connection, what)

    def taking(connection: Connection) -> object:
        found = receive(connection)
        clock.take(connection)
        return found

    # With the same arguments as they have.
    Connection.poll, Connection.send, Connection.recv = poll, asking, taking  # type: ignore[method-assign,assignment]

    def tell() -> None:
        if os.getpid() == owner:
            Path(file).write_text(str(clock.show()), encoding="utf-8")

    atexit.register(tell)
    from phaze.cli.entry import main as run

    sys.argv = ["dse", *arguments]
    run()


if __name__ == "__main__":
    main()
