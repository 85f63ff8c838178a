"""What architectures come to by the objective of a run, each at its best point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze.explore.any_axes import known_columns, maximised
from phaze.explore.best import best_points
from phaze.explore.candidates import Block
from phaze.explore.evaluator import Evaluator
from phaze.explore.goal import floor_throughput
from phaze.explore.measures import Measures
from phaze.explore.metrics import Metric, Needs, metric
from phaze.explore.pareto_points import ParetoPoint
from phaze.explore.pareto_search import ParetoSearch
from phaze.explore.pareto_values import PointValues
from phaze.explore.progress import Clock
from phaze.explore.request import ExploreRequest
from phaze.hardware.area import area_mm2
from phaze.hardware.power import tdp_w
from phaze.scheduling.passes import Effort

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Worth:
    """Samples per second and the objective of some architectures, (A,) each; 0 where nothing fits in memory.

    More of the objective is better: a minimised one enters as its reciprocal.
    """

    throughput: FloatArray
    objective: FloatArray


def worth(request: ExploreRequest, evaluator: Evaluator, effort: Effort) -> Worth:
    """Of all architectures of the evaluator's table, budgets aside.

    The best point is the fastest, unless the objective depends on the plan or on formats: then it is the best that
    keeps the floors, or the best of all where none does.
    """
    axis, table = metric(request.objective), evaluator.table
    block = Block(np.arange(len(table)), table, tdp_w(table, request.budgets.tdp_margin), area_mm2(table))
    if axis.needs is Needs.PLAN or request.task.recipe is not None:  # settings then differ in their peaks
        return _each(request, evaluator, block, axis)
    seconds = best_points(evaluator, block.numbers, effort).upper_s
    values = PointValues(Measures(evaluator), known_columns(block), [axis])
    unknown = np.full(len(block), np.nan)
    columns = values.columns(evaluator.settings[0], block.numbers, seconds, unknown, unknown)
    told = np.array([maximised(axis, value) for value in np.asarray(axis.of(columns)).tolist()])
    return Worth(columns["throughput_samples_per_s"], np.where(np.isfinite(seconds), told, 0.0))


def _each(request: ExploreRequest, evaluator: Evaluator, block: Block, axis: Metric) -> Worth:
    """One architecture after the other, a search for the best point of each."""
    found = Worth(np.zeros(len(block)), np.zeros(len(block)))
    for row in range(len(block)):
        at = np.array([row])
        one = Block(at, block.table.take(at), block.tdp_w[at], block.area_mm2[at])
        point = _best(request, evaluator.on(one.table), one, axis)
        if point is not None:
            found.throughput[row] = point.columns["throughput_samples_per_s"]
            found.objective[row] = maximised(axis, axis.value(point.columns))
    return found


def _best(request: ExploreRequest, evaluator: Evaluator, one: Block, axis: Metric) -> ParetoPoint | None:
    for floor in dict.fromkeys([floor_throughput(request, request.task), 0.0]):
        found = ParetoSearch(evaluator, known_columns(one), [axis], Clock(np.inf), floor).run()
        if found.points:
            return found.points[0]
    return None
