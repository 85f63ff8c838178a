"""Placement: the instances in files and GPT-3 on 1024 devices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import batches
from phaze.solvers.placement import place, read_problem
from placement_instances import transformer_chain
from report import Report
from tables import duration, spread, table
from timing import median_s, seconds

ARCHITECTURES = 1000
"""In the batch of placements."""


def report(folder: Path | None) -> Report:
    """Median and 95th percentile over the files, and the GPT-3 case."""
    rows = [*_files(folder), *_gpt3()]
    times = [row["seconds"] for row in rows if row["set"] == "files"]
    lines = [(f"{len(times)} files", *spread(times))] if times else []
    lines += [(row["name"], duration(row["seconds"]), "") for row in rows if row["set"] == "gpt3"]
    text = "\n".join(
        (
            "# Placement\n",
            "Processor time of one exact placement, checked.\n",
            table(("instance", "median", "95th percentile"), lines),
        )
    )
    return Report("placement", text + "\n", rows)


def _files(folder: Path | None) -> Iterator[dict[str, object]]:
    for file in sorted((folder / "placement").glob("*.json")) if folder else []:
        problem = read_problem(json.loads(file.read_text(encoding="utf-8")))
        result, taken = seconds(lambda problem=problem: place(problem))
        yield {"set": "files", "name": file.stem, "seconds": taken, "status": result.status.value}


def _gpt3() -> Iterator[dict[str, object]]:
    """The size of the published reference's hardest case, for one architecture and for many."""
    problem = read_problem(transformer_chain(98, 1024))
    taken = median_s(lambda: place(problem))
    name = "GPT-3, 98 layers, 1024 devices, 4 widths"
    yield {"set": "gpt3", "name": name, "seconds": taken}
    taken = seconds(batches.placements(ARCHITECTURES))[1]
    yield {"set": "gpt3", "name": f"the same for {ARCHITECTURES} architectures at once", "seconds": taken}
