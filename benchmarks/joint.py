"""Architectures and whole plans searched together: whole commands, beside what they should take."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from commands import KeptRows, Row, run_command, searched
from report import Report
from tables import percent, table

ASKED = ("--power", "400W", "--devices", "1024")
SMALL = ("--power", "400W", "--devices", "64")
LAYERS = 500
PLANS = (
    *(("gpt3", devices) for devices in (64, 1024, 16_384)),
    *(("mixtral-8x7b", devices) for devices in (64, 1024, 16_384)),
    ("deepseek-v3", 1024),
)

DEEP = f"""schema_version: 1
name: deep
family: decoder
source: {{all: 500 equal layers for this benchmark}}
dimensions: {{layers: {LAYERS}, hidden: 4096, heads: 32, ffn_hidden: 16384, vocabulary: 32000, max_positions: 2048,
  activation: gelu_tanh, norm: layer, norm_place: pre, bias: true, positions: learned, tied_embeddings: true}}
sequence_length: 2048
global_batch: 1024
"""


@dataclass(frozen=True)
class Case:
    """A command and the seconds that it should take; `measure` tells its row."""

    name: str
    target_s: float
    measure: Callable[[float], Row]


def _run(name: str, target_s: float, asked: Sequence[str] = ASKED) -> Case:
    """`dse run` of a workload and options as they are typed."""
    workload, *options = name.split()
    arguments = ("--workload", workload, *asked, *options)
    told = name if asked is ASKED else f"{name} {' '.join(asked[2:])}"
    return Case(told, target_s, lambda limit_s: searched(told, arguments, limit_s))


def _certified(limit_s: float) -> Row:
    return searched("certify gpt3", ("--workload", "gpt3", *ASKED), limit_s, then=("certify",))


def _planned(workload: str, devices: int, limit_s: float) -> Row:
    """`dse plan` of a workload."""
    name = _plan_name(workload, devices)
    asked = ("plan", "--arch", "h100", "--workload", workload, "--devices", str(devices))
    with tempfile.TemporaryDirectory() as folder:
        spent = run_command(asked, Path(folder) / "output", limit_s)
    return {"case": name, **spent.row} | ({"failed": f"exit code {spent.code}"} if spent.code else {})


def _plan_name(workload: str, devices: int) -> str:
    return f"plan h100 {workload} --devices {devices}"


def _deep(limit_s: float) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "deep.yaml"
        file.write_text(DEEP, encoding="utf-8")
        return searched(f"{LAYERS} layers", ("--workload", str(file), *ASKED), limit_s)


CASES = (
    _run("gpt3 --plans phaze --framework exposed", 2.3),
    _run("gpt3", 5.0),
    *(
        _run(name, 10.0)
        for name in ("bert-large", "megatron-bert", "llama2-7b", "opt-350m", "vgg16", "resnet50")
    ),
    _run("mobilenet-v3-large", 10.0),
    _run("resnet18", 60.0),
    _run("inception-v3", 60.0),
    _run("llama3-70b", 15.0),
    _run("mixtral-8x7b", 20.0),
    _run("qwen3-235b-a22b", 45.0),
    _run("deepseek-v3", 45.0),
    _run("gpt3 --space phaze", 10.0),
    _run("gpt3 --space wide", 120.0),
    _run("gpt2-xl --workload bert-large", 20.0, SMALL),
    _run("gpt2-xl --workload bert-large --workload resnet50 --workload mobilenet-v3-large", 60.0, SMALL),
    Case(f"{LAYERS} layers", 30.0, _deep),
    Case("certify gpt3", 20.0, _certified),
    *(Case(_plan_name(w, d), 2.0, partial(_planned, w, d)) for w, d in PLANS),
)


def measured(
    tell: Callable[[str], None], limit_s: float, only: Sequence[str] = (), kept: Path | None = None
) -> Report:
    """Every case once, with so many seconds to search; `only`: those with such a word in their names.

    `kept`: file of rows that are done, which are not measured again.
    """
    done, rows = KeptRows(kept), []
    _warm(limit_s)
    for case in CASES:
        if not only or any(word in case.name for word in only):
            tell(f"joint: {case.name}")
            row = done.get(case.name, partial(case.measure, limit_s))
            rows.append(row | {"target_s": case.target_s})
    return Report("joint", _text(rows, limit_s), rows)


def _warm(limit_s: float) -> None:
    """Small questions first, so that modules are compiled and read from a disk that has them at hand."""
    searched("before", ("--workload", "gpt3-small", *SMALL), limit_s)
    _planned("gpt3-small", 8, limit_s)


def _text(rows: Sequence[Row], limit_s: float) -> str:
    head = ("case", "target, s", "by the clock, s", "processor, s", "memory, GB")
    head += ("tightened", "evaluated", "gap", "frontier", "objective")
    return f"""# Architectures and plans together

Whole commands without a cache, code compiled before. Most are `dse run --power 400W --devices 1024 --workload` with
what stands in the first column. They have {limit_s:g} s to search, and should prove all in the time of their target.
*Tightened* are points that the screen leaves and later bounds rule out; the frontier is that of throughput against
power, points proven or not; the objective is samples/s, or the score of several workloads. Then: a run certified again,
and `dse plan --arch h100`. What a plan takes that is evaluated exactly stands with the [plans](plans.md).

{table(head, map(_line, rows))}

Again: `python benchmarks/run.py joint --out docs/benchmarks/joint.md`; with `--runs FILE` what is done is kept and a
run that was stopped goes on, `--only WORD ...` takes some of the cases.
"""


def _line(row: Row) -> tuple[str, ...]:
    times = (f"{row['target_s']:g}", f"{row['seconds']:.1f}", f"{row['processor_s']:.1f}")
    times = (*times, f"{row['peak_bytes'] / 1e9:.2f}")
    return (f"`{row['case']}`", *times, *_answer(row))


def _answer(row: Row) -> tuple[str, ...]:
    """What was found, or why there is nothing."""
    if "failed" in row:
        return ("", "", "", "", row["failed"])
    if "gap" not in row:
        return ("",) * 5
    counts = f"{row['tightened']:,}", f"{row['evaluated']:,}"
    frontier = "complete" if row["frontier_complete"] else "open"
    return (*counts, percent(row["gap"]), frontier, f"{row['value']:,.4g}")
