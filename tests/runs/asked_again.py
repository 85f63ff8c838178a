"""Answers questions of all kinds in one process, and prints a digest of every folder they end in: a script."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from killed import answer, called
from small_cases import small_decoder

from phaze.explore.sampling.sampled_study import NEEDS
from phaze.explore.strategies.strategy_registry import STRATEGIES as REGISTERED

SPACE = """
schema_version: 1
name: few
axes:
  - {fields: [tensor_cores], values: [1, 2, 4]}
  - {fields: [vector_core_alus], values: [64, 1024]}
"""
PACKAGES = {name: NEEDS.get(name, ()) for name in ("certified", *REGISTERED.built_in)}
"""Every strategy, and what it needs that may be missing."""
STRATEGIES = tuple(name for name, needed in PACKAGES.items() if all(map(find_spec, needed)))
FILES = ("designs.csv", "frontier.csv", "architecture.yaml")


def questions():
    """Command lines by name."""
    for name in STRATEGIES:
        own = "" if name in {"certified", "phaze", "wham"} else " --evaluations 4"
        yield name, f"run --time-limit 1h --strategy {name}{own}"
    yield "axes", "run --time-limit 1h --axes throughput,energy_per_sample,tdp"
    yield "three workers", "run --time-limit 1h --workers 3"
    yield "three workers, axes", "run --time-limit 1h --workers 3 --axes throughput,energy_per_sample"
    yield "sweep", "sweep --trials 4"
    for name in (name for name in STRATEGIES if PACKAGES[name]):
        yield f"sweep, {name}", f"sweep --trials 4 --sampler {name} --objectives throughput"


def main(folder: Path) -> None:
    """Everything in turn, in a folder of its own."""
    small_decoder(folder)
    (folder / "few.yaml").write_text(SPACE)
    os.chdir(folder)
    common = "-w tiny.yaml --space few.yaml --devices 4 --power 400W --no-cache --quiet --out"
    found = {}
    for k, (name, words) in enumerate(questions()):
        code = called([*words.split(), *common.split(), f"run-{k}"])
        found[name] = code, digest(Path(f"run-{k}"))
    sys.stdout.write(json.dumps(found))


def digest(run: Path) -> str:
    """Of all that the folder tells but times."""
    told = [(run / name).read_bytes() for name in FILES if (run / name).exists()]
    told += [answer(run).encode()] if (run / "result.json").exists() else []
    assert told
    return hashlib.sha256(b"\0".join(told)).hexdigest()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
