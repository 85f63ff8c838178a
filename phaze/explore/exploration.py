"""One run of the main job: search a space, then describe what was found."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.errors import OutOfTimeError
from phaze.explore.candidates import Candidates
from phaze.explore.certified import FEW_STATES, CertifiedSearch, Outcome
from phaze.explore.comparison import comparisons
from phaze.explore.designs import DesignBuilder, out_of_memory
from phaze.explore.document import Certificate, Design, FrontierPoint, ResultDocument
from phaze.explore.evaluator import Evaluator, Setting
from phaze.explore.manifest import describe_task, manifest, scope
from phaze.explore.progress import Clock, Progress
from phaze.explore.request import ExploreRequest, Objective
from phaze.hardware.architecture import Architecture, from_table
from phaze.hardware.space import architecture_id
from phaze.placement.account import Account
from phaze.placement.plan import Plan
from phaze.scheduling.passes import Effort

FloatArray = NDArray[np.float64]
NEXT_BEST = 5
REPORT_S = 10.0  # time for schedules of what is reported; almost all are known from the search already


@dataclass(frozen=True)
class Answer:
    """The result document, and every evaluated architecture as columns of equal length."""

    document: ResultDocument
    designs: dict[str, NDArray[Any]]


class Exploration:
    """One run of the main job."""

    def __init__(self, request: ExploreRequest, progress: Progress, clock: Clock) -> None:
        self._request = request
        self._progress = progress
        self._clock = clock
        self._started = datetime.now(UTC)
        self._candidates = Candidates(request.space, request.budgets)
        block = self._candidates.all()
        self._table, self._tdp, self._area = block.table, block.tdp_w, block.area_mm2
        self._evaluator = Evaluator(request.task, self._table)
        self._reporting = Effort(Clock(clock.limit_s + REPORT_S).left, FEW_STATES)
        self._builder = DesignBuilder(request.task, request.budgets.tdp_margin, self._evaluator.planners)

    def answer(self) -> Answer:
        """Search, then describe what was found."""
        outcome = CertifiedSearch(
            self._evaluator, self._tdp, self._area, self._clock, self._progress, self._request.gap
        ).run()
        if not outcome.evaluated:
            if outcome.finished:
                raise out_of_memory(self._evaluator, f"space {self._request.space.name}")
            raise OutOfTimeError(
                "the time limit passed before any architecture was evaluated; raise --time-limit"
            )
        ranked = self._ranked(outcome)
        self._progress.update("describing", 0, 1, "the winner, the frontier and the comparison")
        best = self._design(outcome, ranked[0])
        document = ResultDocument(
            request=self._describe(),
            best=best,
            certificate=self._certificate(outcome, best),
            frontier=self._frontier(outcome),
            next_best=[self._design(outcome, row) for row in ranked[1 : NEXT_BEST + 1]],
            comparison=comparisons(self._request, best, self._builder, self._reporting),
            manifest=manifest(self._started, self._clock.elapsed_s, self._request.seed),
        )
        return Answer(document, self._columns(outcome))

    # -- the objective -------------------------------------------------------------------------------------

    def _value(self, throughput: float, tdp: float) -> float:
        """The objective to maximise; a minimised one enters as its reciprocal."""
        match self._request.objective:
            case Objective.THROUGHPUT:
                return throughput
            case Objective.THROUGHPUT_PER_TDP:
                return throughput / tdp
            case Objective.TDP:
                return 1.0 / tdp

    def _ranked(self, outcome: Outcome) -> list[int]:
        """Evaluated rows, best first; ties by lower TDP, smaller area, then number in the space."""
        best = outcome.best_per_row()
        return sorted(
            best,
            key=lambda row: (
                -self._value(best[row][0], float(self._tdp[row])),
                self._tdp[row],
                self._area[row],
                row,
            ),
        )

    def _certificate(self, outcome: Outcome, best: Design) -> Certificate:
        result = best.workloads[self._request.task.workload.name]
        value = self._value(result.throughput_samples_per_s, best.tdp_w)
        left = np.flatnonzero(outcome.open_bound > 0)
        open_values = (
            self._value(float(t), float(self._tdp[r]))
            for t, r in zip(outcome.open_bound[left], left, strict=True)
        )
        upper = max([value, *open_values])
        settings = len(self._evaluator.settings)
        evaluated = len(outcome.evaluated)
        return Certificate(
            optimal=upper <= value,
            objective=self._request.objective.value,
            objective_value=value,
            upper_bound=upper,
            gap=(upper - value) / value,
            scope=scope(self._request.task),
            space_size=self._candidates.size * settings,
            over_budget=(self._candidates.size - len(self._table)) * settings,
            pruned=len(self._table) * settings - evaluated,
            evaluated=evaluated,
            pruned_by=outcome.pruned_by,
            frontier_complete=outcome.finished,
        )

    # -- what is reported ------------------------------------------------------------------------------------

    def _architecture(self, row: int) -> Architecture:
        return from_table(self._table, row, architecture_id(self._table, row, self._candidates.varied))

    def _design(self, outcome: Outcome, row: int) -> Design:
        throughput, setting = outcome.best_per_row()[row]
        known_s = self._request.task.cluster.global_batch / throughput
        architecture = self._architecture(row)
        return self._builder.design(architecture, self._evaluator, row, setting, known_s, self._reporting)

    def _frontier(self, outcome: Outcome) -> list[FrontierPoint]:
        best = outcome.best_per_row()
        rows = [row for _, row in outcome.staircase.keys]
        by_setting: dict[Setting, list[int]] = {}
        for row in rows:
            by_setting.setdefault(best[row][1], []).append(row)
        points: dict[int, FrontierPoint] = {}
        for setting, members in by_setting.items():
            known_s = self._request.task.cluster.global_batch / np.array([best[row][0] for row in members])
            plans = self._evaluator.plans(setting, np.array(members), known_s, self._reporting)
            for row, plan in zip(members, plans, strict=True):
                if plan is not None:
                    points[row] = self._frontier_point(row, setting, plan)
        return [points[row] for row in rows]

    def _frontier_point(self, row: int, setting: Setting, plan: Plan) -> FrontierPoint:
        task, evaluator = self._request.task, self._evaluator
        account = Account(plan, evaluator.timed(setting), row, task.cluster, task.workload.numerics)
        architecture, peak = self._architecture(row), float(evaluator.peak_flops_per_s[row])
        return FrontierPoint(
            id=architecture.name,
            throughput_samples_per_s=task.cluster.global_batch / plan.iteration_s,
            tdp_w=float(self._tdp[row]),
            area_mm2=float(self._area[row]),
            energy_per_sample_j=account.energy_j() / task.cluster.global_batch,
            memory_bytes=plan.memory_bytes,
            mfu=evaluator.model_flops / (plan.iteration_s * task.devices * peak),
            architecture=dict(architecture.fields),
        )

    def _columns(self, outcome: Outcome) -> dict[str, NDArray[Any]]:
        best = outcome.best_per_row()
        rows = sorted(best)
        settings = [best[row][1] for row in rows]
        table = self._table.take(rows)
        architectures = [from_table(table, i, "") for i in range(len(rows))]
        throughput = np.array([best[row][0] for row in rows])
        task = self._request.task
        per_sample = self._evaluator.model_flops / task.cluster.global_batch
        columns: dict[str, NDArray[Any]] = {
            "id": np.array([self._architecture(row).name for row in rows]),
            "throughput_samples_per_s": throughput,
            "mfu": throughput * per_sample / (task.devices * self._evaluator.peak_flops_per_s[rows]),
            "tdp_w": self._tdp[rows],
            "area_mm2": self._area[rows],
            "microbatch_size": np.array([s.microbatch for s in settings]),
            "tensor_parallel": np.array([s.tensor_parallel for s in settings]),
            "recompute": np.array([s.recompute.value for s in settings]),
        }
        for name in self._candidates.varied:
            columns[name] = np.array([a.value(name) for a in architectures])
        return columns

    def _describe(self) -> dict[str, Any]:
        request, task = self._request, self._request.task
        return {
            **describe_task(task),
            "power_w": request.budgets.power_w,
            "area_mm2": request.budgets.area_mm2,
            "tdp_margin": request.budgets.tdp_margin,
            "dvfs": request.budgets.dvfs,
            "space": request.space.name,
            "objective": request.objective.value,
            "time_limit_s": request.time_limit_s,
            "gap": request.gap,
            "seed": request.seed,
        }
