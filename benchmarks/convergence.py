"""Searches without proof at equal budgets: what each has found after how many evaluations and seconds.

A case is a workload in a space under its budgets. For each, the certified search says what the optimum is,
known chips say what hand-made designs reach, and every registered strategy searches with a fresh oracle.
Seconds are processor time, which other work on the machine disturbs less than a clock on the wall.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic, process_time

import numpy as np
from convergence_jobs import CERTIFIED, Crew, Job, Kept, Plan, Row

from phaze.errors import PhazeError
from phaze.explore.answers.chip_comparison import chips_beside, plan_beside
from phaze.explore.answers.main_job import Answer, explore
from phaze.explore.documents.strategy_report import certified_distance
from phaze.explore.evaluation.design_builder import DesignBuilder
from phaze.explore.evaluation.design_candidates import Candidates
from phaze.explore.evaluation.evaluation_oracle import Oracle
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Task
from phaze.explore.request.search_progress import Clock, SilentProgress
from phaze.explore.strategies.search_strategy import SearchBudget
from phaze.explore.strategies.strategy_registry import strategy
from phaze.hardware.cluster_network import load_network
from phaze.hardware.spaces.space_file import load_space
from phaze.workload.workload_loader import load_workload

CHIPS = ("tpuv4", "tpuv2", "phaze-reference")
POWER_W = 400.0
CERTIFIED_S = 900.0
NO_LIMIT_S = 1e9  # the budget is in evaluations


@dataclass
class ProcessorClock(Clock):
    """A clock that stands still while the process waits."""

    started: float = field(default_factory=process_time)

    @property
    def elapsed_s(self) -> float:
        """Processor time since the start, s."""
        return process_time() - self.started


def measure(plan: Plan, tell: Callable[[str], None], kept: Kept) -> list[Row]:
    """The rows of all jobs that end in time: certified answers and chips, then every run of every strategy."""
    crew, answers = Crew(do_job, plan.workers, monotonic() + plan.limit_s), plan.answers()
    _do(crew, answers, kept, tell)
    certified = {job: kept.rows([job])[0] for job in answers if job in kept}
    searches = plan.searches([job for job, row in certified.items() if row["value"] is not None])
    _do(crew, searches, kept, tell)
    found = ((row, certified[job.answer]) for job in searches for row in kept.rows([job]))
    return [*kept.rows(answers), *(row | _distance(row, best) for row, best in found)]


def _do(crew: Crew, jobs: Sequence[Job], kept: Kept, tell: Callable[[str], None]) -> None:
    """Those that are not done yet."""
    todo = [job for job in jobs if job not in kept]
    for count, (job, rows) in enumerate(crew.do(todo), 1):
        kept.add(job, rows)
        tell(f"{job}: done, {len(jobs) - len(todo) + count} of {len(jobs)}")


def do_job(job: Job) -> list[Row]:
    """The rows of one job."""
    request = _request(job)
    case: Row = {"space": request.space.name, "workload": job.workload, "devices": job.devices}
    found = _answer(request) if job.name == CERTIFIED else [_search(request, job)]
    return [case | row for row in found]


def _request(job: Job) -> ExploreRequest:
    """PHAZE's space within PHAZE's area, any other within 400 W."""
    task = Task(load_workload(job.workload), job.devices, load_network("default"))
    chosen = load_space(job.space)
    limit = chosen.area_filter
    budgets = Budgets(power_w=POWER_W) if limit is None else Budgets(area_mm2=limit.limit_mm2)
    return ExploreRequest(task, chosen, budgets, time_limit_s=CERTIFIED_S)


def _answer(request: ExploreRequest) -> list[Row]:
    clock = ProcessorClock(NO_LIMIT_S)
    try:
        answer = explore(request)
    except PhazeError as error:
        return [{"kind": CERTIFIED, "name": CERTIFIED, "value": None, "note": str(error)}]
    certificate = answer.document.certificate
    certified: Row = {
        "kind": CERTIFIED,
        "name": CERTIFIED,
        "value": certificate.objective_value,
        "upper_bound": certificate.upper_bound,
        "runtime_s": clock.elapsed_s,
    }
    return [certified, *_chips(request, answer)]


def _chips(request: ExploreRequest, answer: Answer) -> list[Row]:
    """Hand-made chips at the highest clock in the budget, and the published plan on the winner, where there is one."""
    builder = DesignBuilder(request.task, request.budgets.tdp_margin)
    plan = [*plan_beside(request, answer.document.best.architecture)][-1:]
    *_, chips = chips_beside(request, builder, CHIPS)
    return [
        {
            "kind": "chip",
            "name": chip.name,
            "value": chip.result.throughput_samples_per_s if chip.result else None,
            "note": chip.note,
        }
        for chip in (*chips, *(one for told in plan for one in told))
    ]


def throughput(samples_per_s: np.ndarray, _tdp_w: np.ndarray, _area_mm2: np.ndarray) -> np.ndarray:
    """What is maximised, (A,) samples/s of the only workload."""
    return samples_per_s[0]


def _search(request: ExploreRequest, job: Job) -> Row:
    row: Row = {"kind": "search", "name": job.name, "seed": job.seed}
    candidates = Candidates(request.space, request.budgets)
    oracle = Oracle(candidates, [request.task], throughput, ProcessorClock(NO_LIMIT_S))
    try:
        report = strategy(job.name).run(oracle, SearchBudget(job.evaluations), job.seed, SilentProgress())
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


def _distance(row: Row, certified: Row) -> Row:
    """Of a run that took place."""
    if "history" not in row:
        return {}
    found = certified_distance(row["value"], certified["value"], certified["upper_bound"])
    return {"distance": found.share, "proven": found.proven}
