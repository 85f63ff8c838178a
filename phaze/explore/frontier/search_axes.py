"""Axes of a search: which figure leads, more of it being better, and which others are minimised beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from phaze.arrays import Floats
from phaze.errors import InputError
from phaze.explore.frontier.pareto_archive import Archive, ParetoArchive, Staircase
from phaze.explore.request.design_metrics import Metric, Needs


@dataclass(frozen=True)
class SearchAxes:
    """The axes of a frontier, the objective first. Raises InputError where there is none, or one twice."""

    metrics: tuple[Metric, ...]

    def __post_init__(self) -> None:
        """Check the axes."""
        if not self.metrics or len({axis.name for axis in self.metrics}) < len(self.metrics):
            raise InputError("a frontier needs one axis or more, each once")

    @cached_property
    def lead(self) -> int:
        """The axis that leads: the first one that an iteration time bounds, else the first of all.

        Only of such an axis it follows how fast a point has to be.
        """
        timed = [k for k, axis in enumerate(self.metrics) if _follows_time(axis)]
        return timed[0] if timed else 0

    @property
    def leader(self) -> Metric:
        """The metric that leads."""
        return self.metrics[self.lead]

    @cached_property
    def others(self) -> tuple[Metric, ...]:
        """The other ones, in their order."""
        return (*self.metrics[: self.lead], *self.metrics[self.lead + 1 :])

    @cached_property
    def needs_plan(self) -> bool:
        """Whether some axis depends on more than the iteration time."""
        return any(axis.needs is Needs.PLAN for axis in self.metrics)

    @cached_property
    def fixed(self) -> bool:
        """Whether throughput, or a score, leads, and nothing else has to be evaluated."""
        known = all(axis.needs is Needs.ARCHITECTURE for axis in self.others)
        return known and self.leader.name in ("throughput", "score")

    def archive(self) -> Archive:
        """An archive of such points."""
        return Staircase() if len(self.others) == 1 else ParetoArchive(len(self.others))

    def values(self, columns: Mapping[str, Any], count: int) -> tuple[Floats, Floats]:
        """The others, (A, k), turned so that less is better, and what leads, (A,), as certificates tell it.

        `columns`: of so many points.
        """
        turned = [(-1.0 if axis.maximise else 1.0) * axis.of(columns) for axis in self.others]
        others = np.stack(turned, axis=1) if turned else np.zeros((count, 0))
        return others, np.asarray(
            maximised(self.leader, np.asarray(self.leader.of(columns), dtype=np.float64))
        )

    def figures(self, others: Floats, lead: Floats) -> dict[str, Any]:
        """Columns of the axes by name, from `values`."""
        told = {self.leader.column: maximised(self.leader, lead)}
        for k, axis in enumerate(self.others):
            told[axis.column] = (-1.0 if axis.maximise else 1.0) * others[:, k]
        return told


def _follows_time(axis: Metric) -> bool:
    return axis.needs is Needs.THROUGHPUT or axis.linear


def maximised(axis: Metric, value: Any) -> Any:  # noqa: ANN401 - a number or an array of them
    """An objective as certificates tell it: a minimised one enters as its reciprocal (and that back)."""
    if axis.maximise:
        return value
    with np.errstate(divide="ignore"):
        return np.divide(1.0, value)
