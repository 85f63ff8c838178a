"""How long the best plan takes to find, and how many plans are looked at for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from timing import seconds

from phaze.explore.documents.plan_document import PlanDocument
from phaze.explore.plans.plan_search import find_best_plan
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.parallel.plan_batches.plan_batch import batch_iterations
from phaze.parallel.plan_search.screened_plans import screened_plans
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.workload.workload_loader import load_workload

CHIP = "h100"


@dataclass(frozen=True)
class Search:
    """A model on so many devices."""

    workload: str
    devices: int


SEARCHES = (
    Search("gpt3", 1024),
    Search("gpt3", 100_000),
    Search("llama3-405b", 16_384),
    Search("mixtral-8x7b", 64),
)


def measure(tell: Callable[[str], None]) -> list[dict[str, object]]:
    """One row per search; a first one, not told, loads what Python loads once."""
    _plan(Search("gpt3-small", 8))
    rows = []
    for search in SEARCHES:
        tell(f"plans: {search.workload} on {search.devices:,} devices")
        found, processor_s = seconds(lambda search=search: _plan(search))
        counts = found.certificate
        rows.append(
            {
                "search": search.workload,
                "devices": search.devices,
                "plans": counts.space_size,
                "out_of_memory": counts.out_of_memory,
                "evaluated": counts.evaluated,
                "best_s": found.best.iteration_time_s,
                "processor_s": processor_s,
            }
        )
    tell("plans: every plan of gpt3 on 1,024 devices, exact")
    plans, processor_s = every_plan(SEARCHES[0])
    return [*rows, {"every_plan_of": "gpt3", "devices": 1024, "plans": plans, "processor_s": processor_s}]


def every_plan(search: Search) -> tuple[int, float]:
    """All plans of a space, evaluated exactly, and the processor time that takes once layers are costed."""
    _every_plan(Search("gpt3-small", 64))  # loads machine code
    return _every_plan(search)


def _every_plan(search: Search) -> tuple[int, float]:
    task, chip = _task(search), load_architecture(CHIP)
    rest = (task.cluster, task.framework, task.rung, task.own)
    estimator, space = Estimator(task.workload, to_table([chip]), *rest), task.plan_space
    plans = [plan for some in screened_plans(estimator, space) for plan in space.variants(some.plan)]
    return len(plans), seconds(lambda: batch_iterations(estimator, plans))[1]


def _plan(search: Search) -> PlanDocument:
    """As `dse plan` finds it, from a workload that nothing is known of yet."""
    return find_best_plan(_task(search), load_architecture(CHIP))


def _task(search: Search) -> Task:
    return Task(load_workload(search.workload), search.devices, load_network())


_HEAD = """
## How long it takes

The best plan and the next four on H100s, as `dse plan` finds them, in a process that has loaded what it needs. Every
plan has a bound. It is made to fit into memory only where bounds ask for it, and *evaluated*, its pipeline run by the
event simulation, only where no bound is above the fifth best. Microseconds per plan are those of the whole search over
all plans of the space, costs of layers included.

| model | devices | plans | do not fit | evaluated | processor time, s | µs per plan |
|---|--:|--:|--:|--:|--:|--:|
"""


def table(rows: list[dict[str, object]]) -> str:
    """The rows in words."""
    *searches, every = rows
    return _HEAD + "".join(_line(row) for row in searches) + _every(every)


def _every(row: dict[str, object]) -> str:
    plans, spent = row["plans"], row["processor_s"]
    assert isinstance(plans, int)
    assert isinstance(spent, float)
    return (
        f"\nAll {plans:,} plans of {row['every_plan_of']} on {row['devices']:,} devices evaluated exactly, as they "
        "stand before any recompute\nthat memory asks for, every pipeline simulated, layers costed before: "
        f"{spent:.2f} s of processor time, {1e6 * spent / plans:.0f} µs each.\n"
    )


def _line(row: dict[str, object]) -> str:
    plans, spent = row["plans"], row["processor_s"]
    assert isinstance(plans, int)
    assert isinstance(spent, float)
    return (
        f"| {row['search']} | {row['devices']:,} | {plans:,} | {row['out_of_memory']:,} | {row['evaluated']:,} "
        f"| {spent:.2f} | {1e6 * spent / plans:.0f} |\n"
    )
