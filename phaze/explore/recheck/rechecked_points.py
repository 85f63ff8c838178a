"""Points of a re-check: architectures in configs, each with its value on every axis, and what throughputs are worth to
the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.explore.documents.result_document import ResultDocument
from phaze.explore.evaluation.design_candidates import Block
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.explore.frontier.point_values import PointValues, known_columns
from phaze.explore.frontier.search_axes import SearchAxes, maximised
from phaze.explore.request.common_score import CombinedScore
from phaze.explore.request.design_metrics import Metric
from phaze.explore.request.explore_request import ExploreRequest, axes_of, check_weights
from phaze.explore.request.objective_floor import Goal, floor_throughput
from phaze.scheduling.passes import SolveLimits
from phaze.tolerances import FEW_STATES, POINT_STATES, SAME

FEW, WHOLE = (SolveLimits(lambda: np.inf, states) for states in (FEW_STATES, POINT_STATES))


def spend_as_searched(evaluator: Evaluator, config: TrainingConfig, rows: Rows) -> SolveLimits:
    """Schedule layers of points as long as the search does: longer where little does not settle the iteration.

    The effort with which the evaluator then tells what it knows.
    """
    nothing = np.full(len(rows), np.inf)
    found = evaluator.exact(config, rows, nothing, FEW)
    if (open_ := found.lower_s < found.upper_s).any():
        evaluator.exact(config, rows[open_], nothing[open_], WHOLE)
    return FEW


DRAWN = 8  # configs that points are taken in blindly: each takes seconds to set up on a large cluster
BLIND = 2  # of them every sampled architecture is evaluated in so many, without asking any bound


def drawn_configs(count: int, random: np.random.Generator) -> Rows:
    """Positions of configs drawn at random, of so many."""
    return random.choice(count, size=min(DRAWN, count), replace=False)


@dataclass(frozen=True)
class AxesPoints:
    """Evaluates points of some candidates over the axes of a request.

    Values are (A, axes), every axis turned so that less is better; rows of points that do not fit in memory or miss
    the floors are infinite.
    """

    request: ExploreRequest
    block: Block

    @cached_property
    def evaluator(self) -> Evaluator:
        """Of the candidates."""
        return Evaluator(self.request.task, self.block.table)

    @cached_property
    def _values(self) -> PointValues:
        axes = SearchAxes(tuple(axes_of(self.request)))
        known = known_columns(self.block, self.request.task.economics)
        limit_w = self.request.budgets.drawn_limit_w
        return PointValues(self.evaluator, known, axes, drawn_limit_w=limit_w)

    def reached(self, config: TrainingConfig, rows: Rows, known_s: Floats) -> Floats:
        """Values of points that are said to be reached in `known_s` seconds, (A,), with all effort it takes."""
        return self._measured(config, rows, known_s, WHOLE)

    def settled(self, config: TrainingConfig, rows: Rows) -> Floats:
        """Values of points that little effort settles, without any bound; infinite where it does not."""
        found = self.evaluator.exact(config, rows, np.full(len(rows), np.inf), FEW)
        sure = np.isfinite(found.upper_s)
        if self._values.asks_plans:  # slower schedules than the best ones might come with another plan
            sure &= found.lower_s >= found.upper_s
        values = np.full((len(rows), len(self._values.axes.metrics)), np.inf)
        if sure.any():
            values[sure] = self._measured(config, rows[sure], found.upper_s[sure], FEW)
        return values

    def _measured(self, config: TrainingConfig, rows: Rows, known_s: Floats, effort: SolveLimits) -> Floats:
        found = self._values.measures.exact(config, rows, effort, known_s)
        seconds, energy_j = found.iteration_s, found.energy_per_sample_j
        columns = self._values.columns(config, rows, seconds, energy_j, found.memory_bytes)
        floor = floor_throughput(self.request, self.request.task)
        slow = columns["throughput_samples_per_s"] < max(floor, np.nextafter(0.0, 1.0)) * (1 - SAME)
        slow |= ~self._values.keeps(seconds, energy_j)
        return np.where(slow[:, None], np.inf, turned(self._values.axes.metrics, columns))


def turned(axes: Sequence[Metric], columns: Mapping[str, Any]) -> Floats:
    """Axes of points, (A, axes), each turned so that less is better."""
    return np.stack([(-1.0 if axis.maximise else 1.0) * axis.of(columns) for axis in axes], axis=1)


def claimed_values(request: ExploreRequest, rows: list[Mapping[str, Any]]) -> Floats:
    """Points as a run tells them, (A, axes), turned alike. Raises InputError where a row lacks a column."""
    axes = axes_of(request)
    told = [[(-1.0 if axis.maximise else 1.0) * axis.value(row) for axis in axes] for row in rows]
    return np.array(told, dtype=np.float64).reshape(len(rows), len(axes))


def objective(request: ExploreRequest, values: Floats) -> Floats:
    """The objective of points, (A,), as certificates tell it; 0 where they are infinite."""
    first = axes_of(request)[0]
    told = [maximised(first, -v if first.maximise else v) for v in values[:, 0]]
    return np.where(np.isfinite(values[:, 0]), told, 0.0)


def beaten(values: Floats, frontier: Floats) -> NDArray[np.bool_]:
    """Points (A, axes) that some point of the frontier is as good as on every axis."""
    near = values + SAME * np.abs(values)
    return np.array([bool((frontier <= one).all(axis=1).any()) for one in near], dtype=np.bool_)


def by_config(chosen: list[TrainingConfig]) -> Iterator[tuple[TrainingConfig, Rows]]:
    """Every config with the positions where it is chosen."""
    for config in sorted(set(chosen), key=lambda one: one.order):
        yield config, np.array([i for i, one in enumerate(chosen) if one == config], dtype=np.intp)


Row = Mapping[str, Any]


@dataclass(frozen=True)
class MaximisedValue:
    """From throughputs to what was maximised."""

    goal: Goal
    names: tuple[str, ...]
    rule: CombinedScore | None

    @classmethod
    def of(cls, request: ExploreRequest, document: ResultDocument) -> MaximisedValue:
        """Of a request, by its rule; of several workloads relative to the optima that the document tells."""
        names = tuple(task.workload.name for task in request.tasks)
        if document.portfolio is None:
            return cls(Goal(request.objective, floor_throughput(request, request.task)), names, None)
        shares = document.portfolio.workloads
        rule = CombinedScore(
            request.combine,
            check_weights(request),
            tuple(shares[name].own.throughput_samples_per_s for name in names),
            tuple(floor_throughput(request, task) for task in request.tasks),
        )
        return cls(Goal(request.objective), names, rule)

    def throughputs(self, row: Row) -> list[float]:
        """Samples/s of a row of the design table, one per workload."""
        if self.rule is None:
            return [float(row["throughput_samples_per_s"])]
        return [float(row[f"throughput_samples_per_s[{name}]"]) for name in self.names]

    def score(self, throughputs: Sequence[float] | Floats) -> float:
        """Throughput of one workload, or the combined score."""
        if self.rule is None:
            return float(throughputs[0])
        return float(self.rule.score(np.asarray(throughputs, dtype=np.float64)[:, None])[0])

    def value(self, score: float, tdp: float) -> float:
        """Maximised objective of a score and a TDP in W."""
        return self.goal.value(score, tdp)
