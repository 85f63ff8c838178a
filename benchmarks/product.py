"""The product as a whole: batched partitions and costs, one run of the search."""

from __future__ import annotations

import batches
from report import Report
from tables import duration, table
from timing import median_s, seconds

from phaze.explore.answers.main_job import explore
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Task
from phaze.hardware.cluster_network import load_network
from phaze.hardware.spaces.space_file import load_space
from phaze.workload.workload_loader import load_workload


def report() -> Report:
    """Processor times of what a search spends its time on, and of a search."""
    rows = [_partition(), _costs(), _run()]
    lines = [(row["name"], duration(row["seconds"]), row["note"]) for row in rows]
    text = "\n".join(
        ("# Product\n", "Processor time of one process.\n", table(("what", "time", "that is"), lines))
    )
    return Report("product", text + "\n", rows)


def _partition(architectures: int = 1024) -> dict[str, object]:
    taken = median_s(batches.partition(architectures))
    each = taken / (architectures * len(batches.STAGES))
    name = f"partition, {architectures} architectures x {len(batches.STAGES)} stage counts, {batches.LAYERS} layers"
    return {"name": name, "seconds": taken, "note": f"{duration(each)} each"}


def _costs(architectures: int = 4096) -> dict[str, object]:
    taken = median_s(batches.costs(architectures))
    each = taken / (architectures * batches.operators())
    name = f"costs, {architectures} architectures x {batches.operators()} operators"
    return {"name": name, "seconds": taken, "note": f"{1e9 * each:.3g} ns each"}


def _run() -> dict[str, object]:
    """`dse run --workload gpt3 --power 400W` without start-up and files."""
    task = Task(load_workload("gpt3"), 1024, load_network("default"))
    answer, taken = seconds(
        lambda: explore(ExploreRequest(task, load_space(), Budgets(power_w=400.0), time_limit_s=600.0))
    )
    gap = answer.document.certificate.gap
    name = "dse run, gpt3, 400 W, 1024 devices"
    return {"name": name, "seconds": taken, "note": f"certificate gap {gap:.3g}"}
