"""Searches without proof at equal budgets: what each has found after how many evaluations and seconds.

A case is a workload in a space under its budgets. For each, the certified search says what the optimum is,
known chips say what hand-made designs reach, and every registered strategy searches with a fresh oracle.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phaze.errors import PhazeError
from phaze.explore.api import Answer, explore
from phaze.explore.candidates import Candidates
from phaze.explore.comparison import comparisons
from phaze.explore.designs import DesignBuilder
from phaze.explore.progress import Clock, Silent
from phaze.explore.request import Budgets, ExploreRequest, Task
from phaze.explore.strategies.distance import distance
from phaze.explore.strategies.oracle import Oracle
from phaze.explore.strategies.registry import strategies
from phaze.explore.strategies.strategy import SearchBudget, Strategy
from phaze.hardware.network import load_network
from phaze.hardware.space_file import load_space
from phaze.scheduling.passes import Effort
from phaze.workload.library import builtin_names
from phaze.workload.load import load_workload

Row = dict[str, object]
CHIPS = ("tpuv4", "tpuv2", "phaze-reference")
POWER_W = 400.0
CHIPS_S = 60.0
NO_LIMIT_S = 1e9  # the budget is in evaluations
SMALL = Path(__file__).parent / "small-space.yaml"


@dataclass(frozen=True)
class Plan:
    """What to measure; `certified_s`: time for the certified answer of a case; `workers`: cases at a time."""

    workloads: tuple[str, ...] = ()
    spaces: tuple[str, ...] = ("phaze", "default")
    evaluations: int = 200
    seeds: int = 3
    devices: int = 1024
    certified_s: float = 120.0
    workers: int = 2


def quick(workers: int = 1) -> Plan:
    """A small case, which shows that everything runs."""
    return Plan(("opt-350m",), (str(SMALL),), evaluations=12, seeds=1, devices=16, workers=workers)


def measure(plan: Plan, tell: Callable[[str], None]) -> list[Row]:
    """All rows, by case: the certified answer, the chips, every run of every strategy."""
    cases = [(space, name) for space in plan.spaces for name in plan.workloads or builtin_names()]
    found: dict[tuple[str, str], list[Row]] = {}
    for case, rows in _answers(plan, cases):
        found[case] = rows
        tell(f"{Path(case[0]).stem}, {case[1]}: done, {len(found)} of {len(cases)}")
    return [row for case in cases for row in found[case]]


def _answers(plan: Plan, cases: Iterable[tuple[str, str]]) -> Iterator[tuple[tuple[str, str], list[Row]]]:
    """Cases as they end. A worker lives for one case: what it has learnt helps no other."""
    if plan.workers == 1:
        yield from ((case, measure_case(plan, *case)) for case in cases)
        return
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(plan.workers, mp_context=fresh, max_tasks_per_child=1) as pool:
        running = {pool.submit(measure_case, plan, *case): case for case in cases}
        for job in as_completed(running):
            yield running[job], job.result()


def measure_case(plan: Plan, space: str, workload: str) -> list[Row]:
    """The rows of one case."""
    request = _request(plan, space, workload)
    case: Row = {"space": request.space.name, "workload": workload, "devices": plan.devices}
    try:
        answer = explore(request)
    except PhazeError as error:
        return [{**case, "kind": "certified", "name": "certified", "value": None, "note": str(error)}]
    certificate = answer.document.certificate
    rows: list[Row] = [
        {
            "kind": "certified",
            "name": "certified",
            "value": certificate.objective_value,
            "upper_bound": certificate.upper_bound,
            "runtime_s": answer.document.manifest.wall_time_s,
        },
        *_chips(request, answer),
    ]
    for strategy in strategies().values():
        for seed in range(plan.seeds if strategy.seeded else 1):
            row = _search(request, strategy, plan.evaluations, seed)
            rows.append(row | _distance(row, certificate.objective_value, certificate.upper_bound))
    return [case | row for row in rows]


def _request(plan: Plan, space: str, workload: str) -> ExploreRequest:
    """PHAZE's space within PHAZE's area, any other within 400 W."""
    task = Task(load_workload(workload), plan.devices, load_network("default"))
    chosen = load_space(space)
    limit = chosen.area_filter
    budgets = Budgets(power_w=POWER_W) if limit is None else Budgets(area_mm2=limit.limit_mm2)
    return ExploreRequest(task, chosen, budgets, time_limit_s=plan.certified_s)


def _chips(request: ExploreRequest, answer: Answer) -> list[Row]:
    """Hand-made chips at the highest clock in the budget, and the published plan on the winner."""
    builder = DesignBuilder(request.task, request.budgets.tdp_margin)
    beside = comparisons(request, answer.document.best, builder, Effort(Clock(CHIPS_S).left), CHIPS)
    return [
        {
            "kind": "chip",
            "name": chip.name,
            "value": chip.result.throughput_samples_per_s if chip.result else None,
            "note": chip.note,
        }
        for chip in beside
    ]


def throughput(samples_per_s: np.ndarray, _tdp_w: np.ndarray, _area_mm2: np.ndarray) -> np.ndarray:
    """What is maximised, (A,) samples/s of the only workload."""
    return samples_per_s[0]


def _search(request: ExploreRequest, strategy: Strategy, evaluations: int, seed: int) -> Row:
    row: Row = {"kind": "search", "name": strategy.name, "seed": seed}
    candidates = Candidates(request.space, request.budgets)
    oracle = Oracle(candidates, [request.task], throughput, Clock(NO_LIMIT_S))
    try:
        report = strategy.run(oracle, SearchBudget(evaluations), seed, Silent())
    except PhazeError as error:
        return {**row, "value": None, "note": str(error)}
    return {
        **row,
        "value": report.best_value,
        "evaluations": report.evaluations,
        "runtime_s": report.runtime_s,
        "stopped": report.stopped.value,
        "figures": report.figures,
        "history": [list(step.model_dump().values()) for step in report.history],
    }


def _distance(row: Row, certified: float, upper_bound: float) -> Row:
    """Of a run that took place."""
    if "history" not in row:
        return {}
    found = distance(row["value"], certified, upper_bound)
    return {"distance": found.share, "proven": found.proven}
