"""`dse` by the clock of an idle machine: other work beside it takes nothing of its time limits.

    python benchmarks/idle_clock.py FILE dse-arguments...

Its clock shows the processor seconds of this process, and of its children while it waits for them; the last value is
written to FILE.
"""

from __future__ import annotations

import atexit
import os
import select
import sys
import time
from contextlib import suppress
from multiprocessing import active_children
from multiprocessing.connection import Connection
from pathlib import Path

_LOOK_S = 0.05
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class IdleClock:
    """Seconds that an idle machine with a processor for each process would have shown."""

    def __init__(self) -> None:
        self.before_s = (
            0.0  # waits for others, and what a parent's clock showed when this process was copied from it
        )
        self.at_start_s = time.process_time()

    def show(self) -> float:
        """Seconds since the start."""
        return time.process_time() - self.at_start_s + self.before_s

    def start_copy(self) -> None:
        """Go on in a copy of a process: its own processor time starts at 0."""
        self.before_s, self.at_start_s = self._at_fork_s, time.process_time()

    def keep(self) -> None:
        """Remember what a copy begins with."""
        self._at_fork_s = self.show()

    def wait(self, connection: Connection, timeout: float | None = 0.0) -> bool:
        """`Connection.poll` for as long as a child has worked, not for as long as the machine had other work."""
        until = None if timeout is None else self.show() + timeout
        while True:
            spent = _children_s()
            there = _is_there(connection, 0.0 if timeout == 0 else _LOOK_S)
            worked = (now - spent[pid] for pid, now in _children_s().items() if pid in spent)
            self.before_s += max(worked, default=0.0)
            if there or not active_children() or (until is not None and self.show() >= until):
                return there


def _is_there(connection: Connection, timeout: float) -> bool:
    """`Connection.poll` by the machine's own clock; that one would wait by this module's, which waits with it."""
    return bool(select.select([connection], [], [], timeout)[0])


def _children_s() -> dict[int, float]:
    """Processor time of each child that is alive."""
    found = {}
    for child in active_children():
        with suppress(OSError):
            fields = Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            found[child.pid or 0] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return found


def main() -> None:
    """Run the command line under this clock."""
    file, *arguments = sys.argv[1:]
    clock, owner = IdleClock(), os.getpid()
    os.register_at_fork(before=clock.keep, after_in_child=clock.start_copy)
    time.monotonic = clock.show

    def poll(connection: Connection, timeout: float | None = 0.0) -> bool:
        return clock.wait(connection, timeout)

    Connection.poll = poll  # type: ignore[method-assign] # with the same arguments

    def tell() -> None:
        if os.getpid() == owner:
            Path(file).write_text(str(clock.show()), encoding="utf-8")

    atexit.register(tell)
    from phaze.cli.entry import main as run

    sys.argv = ["dse", *arguments]
    run()


if __name__ == "__main__":
    main()
