"""Plans of five models on 1024 TPUv4-like chips beside hand-made ones, as PHAZE's authors compared them later.

Chips, network, hand-made plans and their ratios: NEST (arXiv 2603.06798). Their operator latencies are not public, so
that ratios are compared, not times.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import plan_searches
from report import Report

from phaze.errors import InfeasibleError
from phaze.explore.answers.main_job import evaluate
from phaze.explore.plans.plan_search import find_best_plan
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture import Architecture, load_architecture
from phaze.hardware.cluster_network import load_network
from phaze.parallel.chunk_division import Grain
from phaze.parallel.cluster import Recompute
from phaze.parallel.framework import load_framework
from phaze.parallel.plan_choices import load_plans
from phaze.workload.workload_loader import load_workload

DEVICES = 1024
_NETWORK = Path(__file__).parent / "tpu-v4-fat-tree.yaml"


@dataclass(frozen=True)
class Published:
    """A model, (pipeline, tensor, data) of a hand-made plan and of PHAZE's, and throughputs over that of the former."""

    workload: str
    recompute: Recompute
    manual: tuple[int, int, int]
    phaze: tuple[int, int, int]
    phaze_ratio: float
    nest_ratio: float


PUBLISHED = (
    Published("bert-large", Recompute.NONE, (8, 1, 128), (1, 1, 1024), 1.62, 1.62),
    Published("llama2-7b", Recompute.FULL, (8, 1, 128), (6, 1, 164), 1.08, 1.25),
    Published("llama3-70b", Recompute.FULL, (80, 1, 12), (41, 1, 23), 1.92, 2.07),
    Published("mixtral-8x7b", Recompute.FULL, (32, 1, 8), (16, 1, 64), 1.34, 2.01),
    Published("gpt3", Recompute.FULL, (32, 4, 8), (16, 4, 16), 1.19, 1.34),
)


def chip() -> Architecture:
    """TPU v4 with the memory that the published comparison gives it."""
    return load_architecture("tpuv4").replace("tpuv4-64gib", hbm_capacity_bytes=64 * 2**30)


def measure(tell: Callable[[str], None]) -> list[dict[str, object]]:
    """One row per model: seconds of an iteration under each plan, microbatch 1."""
    return list(_rows(tell))


def _rows(tell: Callable[[str], None]) -> Iterator[dict[str, object]]:
    architecture, network = chip(), load_network(_NETWORK)
    for known in PUBLISHED:
        tell(f"plans: {known.workload}")
        task = Task(load_workload(known.workload), DEVICES, network)
        as_phaze = replace(task, plans=load_plans("phaze"), framework=load_framework("exposed"))
        started = time.process_time()
        manual = _iteration_s(as_phaze, architecture, known, known.manual)
        theirs = _iteration_s(as_phaze, architecture, known, known.phaze)
        held = {"microbatches": (1,), "recomputes": (known.recompute,)}
        best = evaluate(replace(as_phaze, held=held), architecture).workloads[task.workload.name]
        any_plan = find_best_plan(task, architecture).best
        yield {
            "model": known.workload,
            "manual_s": manual,
            "phaze_plan_s": theirs,
            "best_of_phaze_s": best.iteration_time_s,
            "best_of_phaze": [
                best.placement.pipeline_parallel,
                best.placement.tensor_parallel,
                best.placement.data_parallel,
            ],
            "best_plan_s": any_plan.iteration_time_s,
            "best_plan": any_plan.strategy.model_dump(),
            "published_phaze_ratio": known.phaze_ratio,
            "published_nest_ratio": known.nest_ratio,
            "processor_s": time.process_time() - started,
        }


def _iteration_s(
    task: Task, architecture: Architecture, known: Published, degrees: tuple[int, int, int]
) -> float | None:
    """None where the plan does not fit."""
    pipeline, tensor, data = degrees
    degrees_held = {"data": (data,), "tensor": (tensor,), "pipeline": (pipeline,)}
    blocks = {"grains": (Grain.BLOCK,)}  # published plans cut between blocks
    held = {**degrees_held, **blocks, "microbatches": (1,), "recomputes": (known.recompute,)}
    try:
        found = evaluate(replace(task, held=held), architecture)
    except InfeasibleError:
        return None
    return found.workloads[task.workload.name].iteration_time_s


_HEAD = """# Plans beside published ones

Five models on 1 024 TPUv4-like chips with 64 GiB, on a fat tree of 8, 32 and all devices at 900, 100 and 400 GB/s: the
comparison that PHAZE's authors published with NEST (arXiv 2603.06798). Throughput over that of their hand-made plan: of
PHAZE's plan as published and as this model sees the same degrees, of the best plan of PHAZE's space (`--plans phaze
--framework exposed`: 1F1B, nothing hidden) with microbatch 1 and their recompute, and of the best plan of any kind that
can be launched (`dse plan`). Their operator latencies are not public: ratios are compared, nothing passes or fails.
Stages of published plans are whole blocks, the best of `phaze` may cut blocks in two, and software keeps 4 % of a
device's memory. Degrees are pipeline/tensor/data.

| model | hand-made | PHAZE's, published | PHAZE's, here | NEST's, published | best of `phaze` | | best plan | |
|---|---|--:|--:|--:|--:|---|--:|---|
"""


def measured() -> Report:
    """Measure, and make the tables."""

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    beside, searches = report(measure(tell)), plan_searches.measure(tell)
    return Report(beside.name, beside.text + plan_searches.table(searches), [*beside.rows, *searches])


def report(rows: list[dict[str, object]]) -> Report:
    """The table."""
    lines = [_line(row, known) for row, known in zip(rows, PUBLISHED, strict=True)]
    return Report("plans", _HEAD + "\n".join(lines) + "\n", rows)


def _line(row: dict[str, object], known: Published) -> str:
    manual = row["manual_s"]

    def ratio(seconds: object) -> str:
        if not isinstance(manual, float) or not isinstance(seconds, float):
            return "does not fit"
        return f"{manual / seconds:.2f}"

    best = row["best_plan"]
    assert isinstance(best, dict)
    told = f"{best['pipeline_parallel']}/{best['tensor_parallel']}/{best['data_parallel']} {best['schedule']}"
    told += f", microbatch {best['microbatch_size']}, ZeRO {best['zero_stage']}"
    ours = "/".join(map(str, row["best_of_phaze"]))  # type: ignore[call-overload]
    hand = "/".join(map(str, known.manual))
    return (
        f"| {row['model']} | {hand} | {known.phaze_ratio:.2f} | {ratio(row['phaze_plan_s'])} | {known.nest_ratio:.2f} "
        f"| {ratio(row['best_of_phaze_s'])} | {ours} | {ratio(row['best_plan_s'])} | {told} |"
    )
