"""Points of a frontier on any axes: those found, those still undecided, and both as vectors to be minimised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Floats, Rows
from phaze.errors import InputError
from phaze.explore.evaluation.energy_and_memory import Measures
from phaze.explore.evaluation.evaluator import FoundPlan
from phaze.explore.evaluation.flops_utilisation import flops_utilisation
from phaze.explore.evaluation.sample_costs import SampleCosts
from phaze.explore.evaluation.training_config import TrainingConfig
from phaze.explore.request.design_metrics import PRICED, Metric, Needs
from phaze.tolerances import BOUND_ROUNDING


@dataclass(frozen=True)
class ParetoPoint:
    """A point of the frontier: row of the table, config, its columns by name, its plan where one was needed."""

    row: int
    config: TrainingConfig
    columns: Mapping[str, float]
    plan: FoundPlan | None


@dataclass(frozen=True)
class ParetoFrontier:
    """The frontier of what was evaluated, by the first axis, best first.

    `complete`: proven to be the frontier of all points. Otherwise `open_values` (n, axes), each axis turned so
    that less is better, is what no missing point is better than. `counts`: points by their fate: `memory` (do
    not fit), `floor` (below the least throughput), `bound`, `schedule` (dominated after schedule bounds),
    `evaluated`, `open`.
    """

    points: tuple[ParetoPoint, ...]
    open_values: Floats
    counts: Mapping[str, int]

    @property
    def complete(self) -> bool:
        """Whether no point can be missing."""
        return not len(self.open_values)


@dataclass(frozen=True)
class OpenPoints:
    """Undecided points: config and row of each, whether schedule bounds were used, optimistic values.

    `known_s`: the iteration time where the bounds on it meet, infinite elsewhere.
    """

    config: Rows
    row: Rows
    tightened: NDArray[np.bool_]
    known_s: Floats
    values: Floats

    def take(self, where: NDArray[np.bool_] | Rows) -> OpenPoints:
        """Some of them."""
        return OpenPoints(*(getattr(self, f.name)[where] for f in fields(self)))

    def join(self, others: Sequence[OpenPoints]) -> OpenPoints:
        """These and others."""
        parts = (self, *others)
        return OpenPoints(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(self)))

    def __len__(self) -> int:
        """How many."""
        return len(self.row)


@dataclass(frozen=True)
class PointValues:
    """The axes of a frontier over the points of one evaluator.

    `architectures`: columns known without evaluating, (A,) each. Raises InputError where there is no axis.
    """

    measures: Measures
    architectures: Mapping[str, Floats]
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

    def longest_s(self, config: TrainingConfig, rows: Rows, lead: Floats) -> Floats:
        """Iteration times above which no point has a lead as good as this, turned so that less is better, (A,) each.

        Infinite where the lead does not follow from the time: it is neither throughput nor linear in time, as energy
        is, a power that flows whatever runs for that time, and what the work takes.
        """
        unlimited, name = np.full(len(rows), np.inf), self.axes[self.lead].name
        if name == "throughput":
            batch = self.measures.evaluator.task.cluster.global_batch
            np.divide(batch, -lead, out=unlimited, where=np.isfinite(lead))
            return unlimited * (1 + BOUND_ROUNDING)
        if not self.axes[self.lead].linear:
            return unlimited
        work, more = (self._least_linear(config, rows, seconds) for seconds in (0.0, 1.0))
        longest: Floats = np.maximum((lead - work) / (more - work), 0.0) * (1 + BOUND_ROUNDING)
        return longest

    def _least_linear(self, config: TrainingConfig, rows: Rows, seconds: float) -> Floats:
        """The lead, one that is linear in time, of plans with the least work and an iteration of some seconds, (A,)."""
        energy = self.measures.least_energy_j(config, rows, np.full(len(rows), seconds))
        columns = {"energy_per_sample_j": energy, **self._costs(rows, seconds, energy)}
        return np.asarray(self.axes[self.lead].of(columns))

    def _costs(self, rows: Rows, seconds: Floats | float, energy: Floats) -> dict[str, Any]:
        """Columns of money and carbon from iteration times in s and joules per sample, where an axis asks for them."""
        asked = {axis.column for axis in self.axes if axis.name in PRICED}
        if not asked:
            return {}
        batch = self.measures.evaluator.task.cluster.global_batch
        return self._sample_costs.columns(rows, np.asarray(seconds) / batch, energy, asked)

    @cached_property
    def _sample_costs(self) -> SampleCosts:
        evaluator, known = self.measures.evaluator, self.architectures
        return SampleCosts.of(evaluator.task, evaluator.table, known["area_mm2"], known["tdp_w"])

    def columns(
        self, config: TrainingConfig, rows: Rows, seconds: Floats, energy: Floats, memory: Floats
    ) -> dict[str, Any]:
        """Design columns of points of a config from iteration times, joules per sample and peak bytes, (A,) each."""
        evaluator = self.measures.evaluator
        cluster = evaluator.task.cluster
        peak = evaluator.peak_flops_per_s(config)[rows]
        return {
            **{name: column[rows] for name, column in self.architectures.items()},
            "throughput_samples_per_s": cluster.global_batch / seconds,
            "mfu": flops_utilisation(evaluator.model_flops, seconds, cluster.devices, peak),
            "energy_per_sample_j": energy,
            "memory_bytes": memory,
            **self._costs(rows, seconds, energy),
        }

    def minimised(self, columns: Mapping[str, Any]) -> Floats:
        """The axes of points, (A, axes), each turned so that less is better."""
        return np.stack([(-1.0 if axis.maximise else 1.0) * axis.of(columns) for axis in self.axes], axis=1)

    def optimistic(self, config: TrainingConfig, rows: Rows, least_s: Floats) -> Floats:
        """Lower bounds on the minimised axes of points, (A, axes), from finite ones on iteration times in s, (A,)."""
        energy = memory = np.zeros(len(rows))
        if self.needs_plan:
            energy = self.measures.least_energy_j(config, rows, least_s)
        if any(axis.name == "memory" for axis in self.axes):
            memory = np.full(len(rows), self.measures.evaluator.least_bytes(config) * (1 - BOUND_ROUNDING))
        return self.minimised(self.columns(config, rows, least_s * (1 - BOUND_ROUNDING), energy, memory))

    def others(self, values: Floats) -> Floats:
        """All axes but the lead, (A, axes - 1)."""
        return np.delete(values, self.lead, axis=1)
