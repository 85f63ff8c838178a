"""Plays command lines in a process of its own that is bounded in time and memory, and says how each ended."""

from __future__ import annotations

import json
import os
import re
import resource
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

LONGEST_S = 10.0
LARGEST_BYTES = 2**30
STARTING_S = 120.0
SHOWN = 200_000


@dataclass(frozen=True)
class Outcome:
    """`code`: the exit code, or the word for another end."""

    code: int | str
    out: str
    err: str
    seconds: float


class Player:
    """A process that plays cases; another one takes its place where it dies or does not end."""

    def __init__(self, folder):
        self._folder, self._process = folder, None

    def play(self, arguments, folder):
        if self._process is None:
            self._start()
        case = json.dumps([*map(str, (folder, self._folder)), *map(str, arguments)])
        self._process.stdin.write(case + "\n")
        self._process.stdin.flush()
        reply = self._reply(3 * LONGEST_S)
        if reply is not None:
            return Outcome(**reply)
        alive = self._process.poll() is None
        self.stop()
        return Outcome("no end" if alive else f"crash {self._process_code}", "", self._said("err"), LONGEST_S)

    def stop(self):
        if self._process is not None:
            self._process.kill()
            self._process_code = self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                stream.close()
        self._process = None

    def _start(self):
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._folder,
        )
        if self._reply(STARTING_S) is None:
            raise RuntimeError("the player does not start")

    def _reply(self, seconds):
        """The next line of the process; None where it has died or takes longer."""
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline() if ready else ""
        return json.loads(line) if line else None

    def _said(self, stream):
        file = self._folder / stream
        return file.read_text(errors="replace")[-SHOWN:] if file.is_file() else ""


def main():
    """Play every case that comes in, and reply to each with one line."""
    replies = os.fdopen(os.dup(1), "w")
    call = prepared()
    bound_memory()
    print("{}", file=replies, flush=True)
    for line in sys.stdin:
        folder, own, *arguments = json.loads(line)
        print(json.dumps(played(call, arguments, folder, Path(own))), file=replies, flush=True)


def prepared():
    """The command line with all of its commands built, as every process builds them once."""
    from phaze.cli import main as cli

    cli.commands()
    return cli.main


def bound_memory():
    """No more than a gigabyte beyond what the process has when everything is loaded."""
    import numba
    import numpy

    import phaze.explore.answers.main_job
    import phaze.runs.document_formats

    assert all((numba, numpy, phaze.explore.answers.main_job, phaze.runs.document_formats))
    held = int(re.search(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (held + LARGEST_BYTES,) * 2)


def played(call, arguments, folder, own):
    """How one command line ends, with what it wrote."""
    os.chdir(folder)
    streams = [os.open(own / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600) for name in ("out", "err")]
    for target, stream in zip((1, 2), streams, strict=True):
        os.dup2(stream, target)
    sys.argv = ["dse", *arguments]
    began, code = time.process_time(), None
    try:
        call()
    except SystemExit as left:
        code = left.code
    seconds = time.process_time() - began  # not on the clock: others may be at work on this machine
    sys.stdout.flush()
    sys.stderr.flush()
    for stream in streams:
        os.close(stream)
    out, err = ((own / name).read_text(errors="replace")[:SHOWN] for name in ("out", "err"))
    return {"code": code, "out": out, "err": err, "seconds": seconds}


if __name__ == "__main__":
    main()
