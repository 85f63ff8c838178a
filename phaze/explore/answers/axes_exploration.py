"""The main job for objectives and frontiers that throughput and TDP do not settle: energy, memory, area, cost."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats
from phaze.errors import InputError, OutOfTimeError
from phaze.explore.answers.chip_comparison import comparisons
from phaze.explore.answers.evaluated_candidates import frontier_points
from phaze.explore.answers.exploration import REPORT_S, Answer
from phaze.explore.documents.result_document import (
    Certificate,
    Comparison,
    Design,
    FrontierPoint,
    ResultDocument,
)
from phaze.explore.documents.result_manifest import describe_request, manifest, scope
from phaze.explore.evaluation.best_points import best_points
from phaze.explore.evaluation.design_builder import DesignBuilder, out_of_memory
from phaze.explore.evaluation.design_candidates import Block, Candidates
from phaze.explore.evaluation.evaluator import Evaluator, FoundPlan
from phaze.explore.evaluation.planned_iteration import worked_out
from phaze.explore.evaluation.training_config import TrainingConfig, config_columns
from phaze.explore.frontier.pareto_points import ParetoFrontier, ParetoPoint
from phaze.explore.frontier.pareto_search import ParetoSearch
from phaze.explore.request.design_metrics import PRICED, Metric, Needs, metric
from phaze.explore.request.explore_request import ExploreRequest
from phaze.explore.request.objective_floor import below_floor, floor_throughput
from phaze.explore.request.search_progress import Clock, Progress, ReportingClock
from phaze.explore.request.search_resources import ALONE, SearchResources
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.economics.package_price import price_usd
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import FEW_STATES

MOST = 2_000_000  # architectures within the budgets that are held in memory together


def axes_of(request: ExploreRequest) -> list[Metric]:
    """The objective, then the other axes, each once. Raises InputError where a name is not known."""
    return [metric(name) for name in dict.fromkeys([request.objective.value, *request.axes])]


class AxesExploration:
    """One run for one workload over any axes, the objective first among them.

    A point is an architecture in one config under its fastest plan; energy and memory are those of that plan.
    """

    def __init__(
        self, request: ExploreRequest, progress: Progress, clock: Clock, resources: SearchResources = ALONE
    ) -> None:
        self._request, self._progress, self._clock = request, progress, clock
        self._resources = resources
        self._started = datetime.now(UTC)
        self._axes = axes_of(request)
        self._candidates = Candidates(request.space, request.budgets)
        self._effort = SolveLimits(ReportingClock(clock, REPORT_S).left, FEW_STATES)

    def answer(self) -> Answer:
        """Search, then describe what was found. Raises InfeasibleError and OutOfTimeError."""
        block = self._block()
        evaluator = Evaluator(self._request.task, block.table, memo=self._resources.memo)
        columns = known_columns(block, self._request.task.economics)
        floor = floor_throughput(self._request, self._request.task)
        found = ParetoSearch(evaluator, columns, self._axes, self._clock, floor, self._progress).run()
        if not found.points:
            raise self._nothing(block, evaluator, found, floor)
        self._progress.update("describing", 0, 1, "the winner and the frontier")
        return self._describe(block, evaluator, self._fastest(evaluator, found))

    def _fastest(self, evaluator: Evaluator, found: ParetoFrontier) -> ParetoFrontier:
        """The frontier under the fastest plan of each architecture, where no axis prefers one plan to another."""
        if any(axis.needs is not Needs.ARCHITECTURE for axis in self._axes):
            return found
        fastest = best_points(evaluator, np.array([point.row for point in found.points]), self._effort)
        batch = self._request.task.cluster.global_batch
        points = tuple(
            replace(
                point, config=config, columns={**point.columns, "throughput_samples_per_s": batch / seconds}
            )
            if config
            else point
            for point, config, seconds in zip(
                found.points, fastest.configs, fastest.upper_s.tolist(), strict=True
            )
        )
        return replace(found, points=points)

    def _block(self) -> Block:
        blocks, count = [], 0
        for block in self._candidates.blocks():
            blocks.append(block)
            count += len(block)
            if count > MOST:
                raise InputError(
                    f"space {self._request.space.name} has more than {MOST:,} architectures within the budgets; "
                    "a frontier over these axes needs tighter ones, or a smaller space (--fix)"
                )
        if not count:
            raise self._candidates.none_left()
        return self._candidates.within(np.concatenate([b.numbers for b in blocks]))

    def _nothing(self, block: Block, evaluator: Evaluator, found: ParetoFrontier, floor: float) -> Exception:
        if not found.complete:
            return OutOfTimeError("the time limit passed before any design was evaluated; raise --time-limit")
        if floor > 0 and found.counts.get("floor"):
            known = known_columns(block, self._request.task.economics)
            fastest = ParetoSearch(evaluator, known, [metric("throughput")], self._clock).run()
            if fastest.points:
                best = float(fastest.points[0].columns["throughput_samples_per_s"])
                return below_floor(self._request, self._request.task, best)
        return out_of_memory(evaluator, f"space {self._request.space.name}")

    def _describe(self, block: Block, evaluator: Evaluator, found: ParetoFrontier) -> Answer:
        request = self._request
        first = self._axes[0]
        winner = min(
            found.points,
            key=lambda p: (
                (-1 if first.maximise else 1) * first.value(p.columns),
                block.tdp_w[p.row],
                block.area_mm2[p.row],
                p.row,
                -float(p.columns["throughput_samples_per_s"]),
            ),
        )
        builder = DesignBuilder(request.task, request.budgets.tdp_margin)
        best = self._design(builder, block, evaluator, winner)
        document = ResultDocument(
            request=describe_request(request) | {"axes": [axis.name for axis in self._axes]},
            best=best,
            certificate=self._certificate(block, evaluator, found, winner),
            frontier=self._frontier(evaluator, found),
            next_best=[],
            comparison=self._beside(request, best),
            manifest=manifest(self._started, self._clock.elapsed_s, request.seed),
        )
        return Answer(document, self._columns(block, document.frontier, found))

    def _beside(self, request: ExploreRequest, best: Design) -> list[Comparison]:
        """Known chips and the expert plan beside the winner."""
        builder = DesignBuilder(request.task, request.budgets.tdp_margin)
        return comparisons(request, best, builder, self._effort.left_s)

    def _design(
        self, builder: DesignBuilder, block: Block, evaluator: Evaluator, point: ParetoPoint
    ) -> Design:
        architecture = self._candidates.architecture(int(block.numbers[point.row]))
        known_s = self._request.task.cluster.global_batch / float(point.columns["throughput_samples_per_s"])
        return builder.placed(architecture, evaluator, point.row, point.config, known_s, self._effort)

    def _frontier(self, evaluator: Evaluator, found: ParetoFrontier) -> list[FrontierPoint]:
        """The points in their order, those of one config worked out together."""
        at: dict[TrainingConfig, dict[int, int]] = {}
        for position, point in enumerate(found.points):
            at.setdefault(point.config, {})[point.row] = position
        varied, margin = self._candidates.varied, self._request.budgets.tdp_margin
        told: dict[int, FrontierPoint] = {}
        for config, positions in at.items():
            plans = {row: self._plan(evaluator, found.points[k]) for row, k in positions.items()}
            each = dict(zip(plans, worked_out(evaluator, config, plans), strict=True))
            described = frontier_points(evaluator, config, each, varied, margin)
            told |= dict(zip(positions.values(), described, strict=True))
        return [told[position] for position in range(len(found.points))]

    def _plan(self, evaluator: Evaluator, point: ParetoPoint) -> FoundPlan:
        if point.plan is not None:
            return point.plan
        known_s = self._request.task.cluster.global_batch / float(point.columns["throughput_samples_per_s"])
        rows = np.array([point.row])
        (plan,) = evaluator.plans(point.config, rows, np.array([known_s]), self._effort)
        if plan is None:
            msg = f"the plan of an evaluated point in row {point.row} is gone"
            raise RuntimeError(msg)
        return plan

    def _certificate(
        self, block: Block, evaluator: Evaluator, found: ParetoFrontier, winner: ParetoPoint
    ) -> Certificate:
        """A minimised objective enters as its reciprocal."""
        first = self._axes[0]
        value = maximised(first, first.value(winner.columns))
        open_ = found.open_values[:, 0]
        hoped = -open_ if first.maximise else 1.0 / np.maximum(open_, 1e-300)
        upper = max(value, float(hoped.max(initial=0.0)))
        size, configs = self._candidates.size, len(evaluator.configs)
        counts = dict(found.counts)
        evaluated = counts.pop("evaluated", 0)
        return Certificate(
            optimal=upper <= value,
            objective=first.name,
            objective_value=value,
            upper_bound=upper,
            gap=(upper - value) / value,
            scope=axes_scope(self._request),
            space_size=size * configs,
            over_budget=(size - len(block)) * configs,
            pruned=len(block) * configs - evaluated,
            evaluated=evaluated,
            pruned_by={name: count for name, count in counts.items() if count},
            frontier_complete=found.complete,
            plans_per_architecture=evaluator.plans_each,
        )

    def _columns(
        self, block: Block, points: list[FrontierPoint], found: ParetoFrontier
    ) -> dict[str, NDArray[Any]]:
        """The design table: the points of the frontier."""
        rows = np.array([point.row for point in found.points])
        configs = [point.config for point in found.points]
        architectures = [self._candidates.architecture(int(block.numbers[row])) for row in rows]
        return {
            "id": np.array([p.id for p in points]),
            "number": block.numbers[rows],
            "throughput_samples_per_s": np.array([p.throughput_samples_per_s for p in points]),
            "mfu": np.array([p.mfu for p in points]),
            "tdp_w": block.tdp_w[rows],
            "area_mm2": block.area_mm2[rows],
            "energy_per_sample_j": np.array([p.energy_per_sample_j for p in points]),
            "memory_bytes": np.array([p.memory_bytes for p in points]),
            "price_usd": price_usd(
                block.table.take(rows), block.area_mm2[rows], self._request.task.economics
            ),
            **_told_costs(points),
            **config_columns(self._request.task, configs),
            **{f: np.array([a.value(f) for a in architectures]) for f in self._candidates.varied},
        }


def axes_scope(request: ExploreRequest) -> list[str]:
    """The model's choices, and what the frontier is of, or what plans count for the least memory."""
    if request.lean:
        return [*scope(request.task), "memory is the least of any plan, which need not be the fastest"]
    return [
        *scope(request.task),
        f"frontier of {', '.join(axis.name for axis in axes_of(request))}",
        "energy, memory, cost and carbon are those of the fastest plan of each point",
    ]


def _told_costs(points: list[FrontierPoint]) -> dict[str, NDArray[Any]]:
    """Columns of money and carbon of points, those that they have."""
    names = [metric(name).column for name in sorted(PRICED)]
    told = {name: [getattr(point, name) for point in points] for name in names}
    return {name: np.array(values) for name, values in told.items() if None not in values}


def known_columns(block: Block, economics: Economics) -> dict[str, Floats]:
    """Columns of every architecture that are known without evaluating it, (A,) each."""
    price = price_usd(block.table, block.area_mm2, economics)
    return {"tdp_w": block.tdp_w, "area_mm2": block.area_mm2, "price_usd": price}


def maximised(axis: Metric, value: float) -> float:
    """An objective as certificates tell it: a minimised one enters as its reciprocal."""
    return value if axis.maximise else 1.0 / value
