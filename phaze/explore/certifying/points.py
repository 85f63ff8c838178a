"""Points of a re-check: architectures in settings, each with its value on every axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.explore.any_axes import axes_of, known_columns, maximised
from phaze.explore.candidates import Block
from phaze.explore.certifying.checks import CLOSE
from phaze.explore.evaluator import Evaluator
from phaze.explore.goal import floor_throughput
from phaze.explore.measures import Measures
from phaze.explore.pareto_values import PointValues
from phaze.explore.request import ExploreRequest
from phaze.explore.setting import Setting
from phaze.scheduling.passes import Effort

FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]
STATES = 500  # of each schedule's search; a point that is not settled by then is not judged
WHOLE = Effort(lambda: np.inf, 1e7)  # as much as the search spends on a point


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
        return PointValues(Measures(self.evaluator), known_columns(self.block), axes_of(self.request))

    def reached(self, setting: Setting, rows: Rows, known_s: FloatArray) -> FloatArray:
        """Values of points that are said to be reached in `known_s` seconds, (A,), with all effort it takes."""
        return self._measured(setting, rows, known_s, WHOLE)

    def settled(self, setting: Setting, rows: Rows) -> FloatArray:
        """Values of points that little effort settles, without any bound; infinite where it does not."""
        effort, nothing = Effort(lambda: np.inf, STATES), np.full(len(rows), np.inf)
        found = self.evaluator.exact(setting, rows, nothing, effort)
        sure = np.isfinite(found.upper_s)
        if self._values.needs_plan:  # slower schedules than the best ones might come with another plan
            sure &= found.lower_s >= found.upper_s
        values = np.full((len(rows), len(self._values.axes)), np.inf)
        if sure.any():
            values[sure] = self._measured(setting, rows[sure], found.upper_s[sure], effort)
        return values

    def _measured(self, setting: Setting, rows: Rows, known_s: FloatArray, effort: Effort) -> FloatArray:
        found = self._values.measures.exact(setting, rows, effort, known_s)
        seconds, energy_j = found.iteration_s, found.energy_per_sample_j
        columns = self._values.columns(setting, rows, seconds, energy_j, found.memory_bytes)
        floor = floor_throughput(self.request, self.request.task)
        slow = columns["throughput_samples_per_s"] < max(floor, np.nextafter(0.0, 1.0)) * (1 - CLOSE)
        return np.where(slow[:, None], np.inf, self._values.minimised(columns))


def claimed_values(request: ExploreRequest, rows: list[Mapping[str, Any]]) -> FloatArray:
    """Points as a run tells them, (A, axes), turned alike. Raises InputError where a row lacks a column."""
    axes = axes_of(request)
    told = [[(-1.0 if axis.maximise else 1.0) * axis.value(row) for axis in axes] for row in rows]
    return np.array(told, dtype=np.float64).reshape(len(rows), len(axes))


def objective(request: ExploreRequest, values: FloatArray) -> FloatArray:
    """The objective of points, (A,), as certificates tell it; 0 where they are infinite."""
    first = axes_of(request)[0]
    told = [maximised(first, -v if first.maximise else v) for v in values[:, 0]]
    return np.where(np.isfinite(values[:, 0]), told, 0.0)


def beaten(values: FloatArray, frontier: FloatArray) -> NDArray[np.bool_]:
    """Points (A, axes) that some point of the frontier is as good as on every axis."""
    near = values + CLOSE * np.abs(values)
    return np.array([bool((frontier <= one).all(axis=1).any()) for one in near], dtype=np.bool_)


def by_setting(chosen: list[Setting]) -> Iterator[tuple[Setting, Rows]]:
    """Every setting with the positions where it is chosen."""
    for setting in sorted(set(chosen), key=lambda one: one.order):
        yield setting, np.array([i for i, one in enumerate(chosen) if one == setting], dtype=np.intp)
