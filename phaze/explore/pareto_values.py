"""Points as vectors to be minimised: exact once evaluated, optimistic before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.errors import InputError
from phaze.explore.formats import utilisation
from phaze.explore.measures import ROUNDING, Measures
from phaze.explore.metrics import Metric, Needs
from phaze.explore.setting import Setting

FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class PointValues:
    """The axes of a frontier over the points of one evaluator.

    `architectures`: columns known without evaluating, (A,) each. Raises InputError where there is no axis.
    """

    measures: Measures
    architectures: Mapping[str, FloatArray]
    axes: Sequence[Metric]

    def __post_init__(self) -> None:
        """Check the axes."""
        if not self.axes or len({a.name for a in self.axes}) < len(self.axes):
            raise InputError("a frontier needs one axis or more, each once")

    @cached_property
    def needs_plan(self) -> bool:
        """Whether some axis depends on more than the iteration time."""
        return any(axis.needs is Needs.PLAN for axis in self.axes)

    @cached_property
    def lead(self) -> int:
        """The axis an archive keeps as its throughput: throughput itself if it is one, or the first."""
        names = [axis.name for axis in self.axes]
        return names.index("throughput") if "throughput" in names else 0

    def longest_s(self, setting: Setting, rows: Rows, lead: FloatArray) -> FloatArray:
        """Iteration times above which no point has a lead as good as this, turned so that less is better, (A,) each.

        Infinite where the lead does not follow from the time: it is neither throughput nor energy, which is a power
        that flows whatever runs for that time, and what the work takes.
        """
        unlimited, name = np.full(len(rows), np.inf), self.axes[self.lead].name
        if name == "throughput":
            batch = self.measures.evaluator.task.cluster.global_batch
            np.divide(batch, -lead, out=unlimited, where=np.isfinite(lead))
            return unlimited * (1 + ROUNDING)
        if name != "energy_per_sample":
            return unlimited
        work_j, more_j = (
            self.measures.least_energy_j(setting, rows, np.full(len(rows), seconds)) for seconds in (0.0, 1.0)
        )
        longest: FloatArray = np.maximum((lead - work_j) / (more_j - work_j), 0.0) * (1 + ROUNDING)
        return longest

    def columns(
        self, setting: Setting, rows: Rows, seconds: FloatArray, energy: FloatArray, memory: FloatArray
    ) -> dict[str, Any]:
        """Design columns of points of a setting from iteration times, joules per sample and peak bytes, (A,) each."""
        evaluator = self.measures.evaluator
        cluster = evaluator.task.cluster
        peak = evaluator.peak_flops_per_s(setting)[rows]
        return {
            **{name: column[rows] for name, column in self.architectures.items()},
            "throughput_samples_per_s": cluster.global_batch / seconds,
            "mfu": utilisation(evaluator.model_flops, seconds, cluster.devices, peak),
            "energy_per_sample_j": energy,
            "memory_bytes": memory,
        }

    def minimised(self, columns: Mapping[str, Any]) -> FloatArray:
        """The axes of points, (A, axes), each turned so that less is better."""
        return np.stack([(-1.0 if axis.maximise else 1.0) * axis.of(columns) for axis in self.axes], axis=1)

    def optimistic(self, setting: Setting, rows: Rows, least_s: FloatArray) -> FloatArray:
        """What no point is better than, (A, axes), from finite lower bounds on iteration times, (A,) seconds."""
        energy = memory = np.zeros(len(rows))
        if self.needs_plan:
            energy = self.measures.least_energy_j(setting, rows, least_s)
        if any(axis.name == "memory" for axis in self.axes):
            memory = np.full(len(rows), self.measures.evaluator.least_bytes(setting) * (1 - ROUNDING))
        return self.minimised(self.columns(setting, rows, least_s * (1 - ROUNDING), energy, memory))

    def others(self, values: FloatArray) -> FloatArray:
        """All axes but the lead, (A, axes - 1)."""
        return np.delete(values, self.lead, axis=1)
