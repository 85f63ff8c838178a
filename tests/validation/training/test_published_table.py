"""The table of published runs on the assumptions page, worked out again."""

from __future__ import annotations

from pathlib import Path

import pytest

from phaze.cost.fidelity import Fidelity
from phaze.explore.answers.main_job import evaluate_document
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture import load_architecture
from phaze.hardware.cluster_network import load_network
from phaze.parallel.cluster import Recompute
from phaze.parallel.framework import load_framework
from phaze.parallel.plan_choices import load_plans
from phaze.workload.workload_loader import load_workload

PAGE = Path(__file__).parents[3] / "docs" / "assumptions.md"
HEAD = "| run | workload, chips |"
NETWORKS = {"a100-80gb": "hgx-a100", "h100": "hgx-h100"}
HELD = {
    "recompute": ("recomputes", Recompute),
    "microbatch": ("microbatches", int),
    "chunks": ("chunks", int),
}


def rows():
    """Cells of every row."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith(HEAD)) + 2
    table = lines[first : next(at for at in range(first, len(lines)) if not lines[at].startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def held(degrees, beside):
    """Choices of the plan space that a row fixes."""
    data, tensor, pipeline = map(int, degrees.split(","))
    found = {"data": (data,), "tensor": (tensor,), "pipeline": (pipeline,)}
    for name, value in (part.split() for part in beside.split(", ")):
        key, kind = HELD[name]
        found[key] = (kind(value),)
    return found


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[1])
def test_a_published_run_is_as_far_off_as_the_page_says(row):
    _, what, software, degrees, beside, batch, published_s, *errors = row
    workload, count, chip = what.replace(",", "").split()
    framework = load_framework(software)
    model = load_workload(workload, attention=framework.attention, fusion=framework.fusion)
    for rung, error in zip((Fidelity.ANALYTIC, Fidelity.CALIBRATED), errors, strict=True):
        task = Task(
            model,
            int(count),
            load_network(NETWORKS[chip]),
            int(batch),
            rung=rung,
            framework=framework,
            plans=load_plans("any"),
            held=held(degrees, beside),
        )
        result = evaluate_document(task, load_architecture(chip)).best.workloads[workload]
        told = 100 * (result.iteration_time_s / float(published_s) - 1)
        assert f"{told:+.0f} %" == error


def test_no_run_is_far_off():
    errors = [[abs(int(cell.rstrip(" %"))) for cell in row[-2:]] for row in rows()]
    analytic, calibrated = map(list, zip(*errors, strict=True))
    assert sum(analytic) / len(analytic) < 8
    assert sum(calibrated) / len(calibrated) < 5
