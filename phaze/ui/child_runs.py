"""Commands at work: `dse` in child processes, what they say, how far they are, and how they are stopped."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from phaze.errors import InputError
from phaze.report.console_progress import SEARCHING
from phaze.runs.run_log import LOG

MOST_AT_ONCE = 4
_KEPT_LINES = 40
_PATIENCE_S = 2.0
_COUNTED = re.compile(
    r"\S+\s+(?P<stage>[^:]+): (?P<done>[\d,]+)(?: of (?P<total>[\d,]+))?(?:; (?P<note>.*))?"
)


@dataclass
class ChildRun:
    """A command and its process; `out`: the folder it writes, `target`: the address to go to when it is done.

    `limit_s`: time that a search may take.
    """

    words: Sequence[str]
    out: Path
    target: str
    process: subprocess.Popen[str]
    limit_s: float | None = None
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None
    said: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    asked_to_stop: bool = False

    @property
    def state(self) -> dict[str, Any]:
        """What the page shows of it: state, seconds, how far it is, what it said."""
        code = self.process.poll()
        state = (
            "working"
            if code is None
            else "done"
            if code == 0
            else "stopped"
            if self.asked_to_stop
            else "failed"
        )
        if code is not None and (self.out / "result.json").is_file() and state == "stopped":
            state = "done"  # stopped with the best known
        return {
            "state": state,
            "elapsed_s": (self.ended or time.monotonic()) - self.started,
            "limit_s": self.limit_s,
            "progress": progress(self.out / LOG),
            "said": list(self.said) if state in ("failed", "stopped") else [],
            "target": self.target if state == "done" else None,
        }

    def stop(self) -> None:
        """First with the best known, as Ctrl-C does; a second time at once."""
        if self.process.poll() is not None:
            return
        if self.asked_to_stop or not hasattr(signal, "SIGINT") or os.name == "nt":
            self.kill()
        else:
            self.asked_to_stop = True
            self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End it with all its processes."""
        self.asked_to_stop = True
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if hasattr(os, "killpg"):
                    os.killpg(self.process.pid, signal.SIGKILL)
                else:
                    self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_PATIENCE_S)

    def listen(self) -> None:
        """Read what it says until it ends."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip()[:500])
        self.process.wait()
        self.ended = time.monotonic()


@dataclass
class ChildRuns:
    """All commands of one page."""

    at_work: dict[str, ChildRun] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def start(self, words: Sequence[str], out: Path, target: str, limit_s: float | None = None) -> str:
        """Start `dse WORDS`; the name of the command here. Raises InputError where enough are at work."""
        if sum(run.process.poll() is None for run in self.at_work.values()) >= MOST_AT_ONCE:
            raise InputError(
                f"at most {MOST_AT_ONCE} commands run at a time; wait until one ends, or stop one"
            )
        process = subprocess.Popen(
            [sys.executable, "-m", "phaze.cli.child_entry", *words],
            stdin=subprocess.PIPE,  # its end tells the child that this process has ended
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        run = ChildRun(words, out, target, process, limit_s)
        threading.Thread(target=run.listen, daemon=True).start()
        name = str(next(self._numbers))
        self.at_work[name] = run
        return name

    def run(self, name: str) -> ChildRun:
        """A command by its name. Raises InputError where there is none."""
        if name not in self.at_work:
            raise InputError(f"there is no command {name!r} here")
        return self.at_work[name]

    def end(self) -> None:
        """End all of them."""
        for run in self.at_work.values():
            run.kill()


def progress(log: Path) -> Mapping[str, Any] | None:
    """The last line of a run's log that tells how far it is: stage, done, total and a note; None where none does.

    Steps of a search that take turns are one, whose end no count tells.
    """
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        if found := _COUNTED.fullmatch(line):
            done, total = (int(found[key].replace(",", "")) if found[key] else 0 for key in ("done", "total"))
            if found["stage"] in SEARCHING:
                return {"stage": "searching", "done": 0, "total": 0, "note": found["note"] or ""}
            return {"stage": found["stage"], "done": done, "total": total, "note": found["note"] or ""}
    return None
