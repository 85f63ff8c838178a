"""Architectures and whole plans searched together, whole commands, beside the search of PHAZE's plans."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from report import Report
from tables import percent, table

BUDGET, DEVICES = "400W", 1024


@dataclass(frozen=True)
class Question:
    """A workload and the options of `dse run` beside it."""

    workload: str
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As it is typed."""
        return " ".join((self.workload, *self.options))


BASIS = Question("gpt3", ("--plans", "phaze", "--framework", "exposed"))
QUESTIONS = (
    BASIS,
    Question("gpt3"),
    Question("gpt3", ("--plans", "megatron")),
    *map(Question, ("bert-large", "megatron-bert", "llama2-7b", "opt-350m", "vgg16", "resnet18", "resnet50")),
    *map(Question, ("mobilenet-v3-large", "inception-v3", "llama3-70b", "mixtral-8x7b", "qwen3-235b-a22b")),
    Question("deepseek-v3"),
)


def measured(tell: Callable[[str], None], limit_s: float, names: Sequence[str] = ()) -> Report:
    """Every question once, in a process of its own without a cache, with so many seconds to search.

    `names`: workloads that are asked about besides the one that the others are held against; all by default.
    """
    asked = [one for one in QUESTIONS if one is BASIS or not names or one.workload in names]
    rows = []
    for question in asked:
        tell(f"joint: {question.name}")
        rows.append(_row(question, limit_s))
    return Report("joint", _text(rows, limit_s), rows)


def _row(question: Question, limit_s: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "phaze.cli.main", "run", "--workload", question.workload]
        command += ["--power", BUDGET, "--devices", str(DEVICES), *question.options, "--no-cache"]
        command += ["--time-limit", f"{limit_s:g}s", "--out", str(out)]
        before, begun = os.times(), monotonic()
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        taken_s, after = monotonic() - begun, os.times()
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        row: dict[str, Any] = {"question": question.name, "seconds": taken_s, "processor_s": spent}
        if ended.returncode:
            return row | {"failed": ended.stderr.strip().splitlines()[-1]}
        found = json.loads((out / "result.json").read_text(encoding="utf-8"))
    certificate = found["certificate"]
    return row | {
        "throughput_samples_per_s": certificate["objective_value"],
        "gap": certificate["gap"],
        "frontier_complete": certificate["frontier_complete"],
        "in_budget": certificate["space_size"] - certificate["over_budget"],
        "tightened": certificate["pruned_by"].get("placement", 0),
        "evaluated": certificate["evaluated"],
        "winner": found["best"]["id"],
    }


def _text(rows: Sequence[dict[str, Any]], limit_s: float) -> str:
    basis_s = rows[0]["seconds"]
    lines = [
        (
            f"`{row['question']}`",
            f"{row['seconds']:.1f}",
            f"{row['seconds'] / basis_s:.1f}",
            f"{row['processor_s']:.1f}",
            *(_answer(row) if "failed" not in row else ("", "", "", "", row["failed"])),
        )
        for row in rows
    ]
    head = ("question", "by the clock, s", "times the first", "processor, s")
    head += ("tightened", "evaluated", "gap", "frontier", "samples/s")
    return f"""# Architectures and plans together

`dse run --power {BUDGET} --devices {DEVICES}`, whole commands without a cache, {limit_s:g} s to search at most. The
first row searches PHAZE's plans, 1F1B with nothing hidden. *Tightened* are points that the screen leaves and later
bounds rule out; the frontier is that of throughput against power, points proven or not.

{table(head, lines)}
"""


def _answer(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['tightened']:,}",
        f"{row['evaluated']:,}",
        percent(row["gap"]),
        "complete" if row["frontier_complete"] else "open",
        f"{row['throughput_samples_per_s']:,.4g}",
    )
