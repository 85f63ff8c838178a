"""Whole commands of `dse`, each in a process of its own without a cache: time, memory, and what the document says."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from threading import Timer
from time import monotonic
from typing import Any

Row = dict[str, Any]

_INFEASIBLE = 3
_PATIENCE_S = 60.0  # beyond the limit of a search, before a command is ended from outside
_BUSY = 20  # how much slower a machine with other work may be
_IDLE_CLOCK = Path(__file__).with_name("idle_clock.py")


@dataclass(frozen=True)
class Spent:
    """What a command took: seconds by its clock and of processors, bytes at its peak, its exit code."""

    seconds: float
    processor_s: float
    peak_bytes: int
    code: int

    @property
    def row(self) -> Row:
        """As columns."""
        return {"seconds": self.seconds, "processor_s": self.processor_s, "peak_bytes": self.peak_bytes}


def run_command(arguments: Sequence[str], output: Path, limit_s: float, *, idle: bool = False) -> Spent:
    """A command of `dse`, its streams in `output`; it is ended a minute after the limit that it was told.

    `idle`: its clock, too, shows what it would on an idle machine (`idle_clock`), whatever else this one does.
    """
    told = output.with_suffix(".clock")
    entry = [str(_IDLE_CLOCK), str(told)] if idle else ["-m", "phaze.cli.main"]
    begun, ends_s = monotonic(), limit_s + _PATIENCE_S
    with output.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            [sys.executable, *entry, *arguments], stdout=stream, stderr=subprocess.STDOUT, env=_environment()
        )
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (ceil(ends_s),) * 2)
        timer = Timer(_BUSY * ends_s if idle else ends_s, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = float(told.read_text(encoding="utf-8")) if told.exists() else monotonic() - begun
    return Spent(seconds, _processor_s(usage), usage.ru_maxrss * 1024, process.returncode)


def _environment() -> dict[str, str]:
    """That of this process, but with bytecode kept, as where phaze is installed: compiling 300 modules takes 0.4 s."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _processor_s(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def searched(
    name: str, arguments: Sequence[str], limit_s: float, then: Sequence[str] = (), *, idle: bool = False
) -> Row:
    """`dse run` with so many seconds to search, as a row; with `then`, another command on its folder is measured.

    `idle`: by the clock of an idle machine.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, output = Path(folder) / "run", Path(folder) / "output"
        asked = ["run", *arguments, "--no-cache", "--time-limit", f"{limit_s:g}s", "--out", str(out)]
        spent = run_command(asked, output, limit_s, idle=idle)
        if then and not spent.code:
            spent = run_command([*then, str(out)], output, limit_s)
        row = {"case": name, **spent.row}
        if spent.code:
            return row | {"failed": _why(spent.code, output), "infeasible": spent.code == _INFEASIBLE}
        found = json.loads((out / "result.json").read_text(encoding="utf-8"))
    certificate = found["certificate"]
    return row | {
        "value": certificate["objective_value"],
        "gap": certificate["gap"],
        "frontier_complete": certificate["frontier_complete"],
        "in_budget": certificate["space_size"] - certificate["over_budget"],
        "tightened": certificate["pruned_by"].get("placement", 0),
        "evaluated": certificate["evaluated"],
        "winner": found["best"]["id"],
    }


def _why(code: int, output: Path) -> str:
    """Why a command failed, in its own words."""
    if code < 0:
        return f"ended from outside {_PATIENCE_S:g} s after its limit"
    lines = output.read_text(encoding="utf-8").strip().splitlines()
    return next((line for line in lines if line.startswith("dse: ")), f"exit code {code}")


@dataclass
class KeptRows:
    """Rows by case; with a file, over all runs of a benchmark, so that one that was stopped goes on.

    `known`: rows of a report that was written before; those of the file are younger and stand. Of both those count that
    answer the same `question`.
    """

    file: Path | None = None
    known: Sequence[Row] = ()
    question: Row = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read what is done."""
        lines = self.file.read_text(encoding="utf-8").splitlines() if self._there else []
        done = [row for row in (*self.known, *map(json.loads, lines)) if self.question.items() <= row.items()]
        self._rows: dict[str, Row] = {row["case"]: row for row in done}

    @property
    def _there(self) -> bool:
        return self.file is not None and self.file.exists()

    def get(self, case: str, measure: Callable[[], Row]) -> Row:
        """The row of a case, measured and written at once where it is not known."""
        if case not in self._rows:
            self._rows[case] = measure() | self.question
            if self.file is not None:
                with self.file.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(self._rows[case]) + "\n")
        return self._rows[case]

    @property
    def cases(self) -> frozenset[str]:
        """What is done."""
        return frozenset(self._rows)
