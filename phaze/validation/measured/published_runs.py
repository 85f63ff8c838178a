"""Training runs of published systems: what a row states of model, degrees and batch, and what the model says of its
iterations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import isnan

import numpy as np

from phaze.cost.fidelity import JUDGED, Fidelity
from phaze.cost.kernels.fitted_constants import GENERIC
from phaze.cost.kernels.link_constants import with_laws
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.derived_figures import hbm_capacity_bytes, product_flops_per_s
from phaze.parallel.cluster import Cluster
from phaze.parallel.framework import Framework
from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.training.iteration import Iteration
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.validation.measured.measured_cases import Judged
from phaze.validation.measured.measured_systems import network_of
from phaze.validation.measured.measurement_columns import Columns
from phaze.validation.measured.published_models import gpt
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.workload import Workload

RunGroup = tuple[Workload, str, Cluster, Framework]


@dataclass(frozen=True)
class PublishedRun:
    """One measured run: a strategy of a workload on a cluster of one chip, and what was measured of it.

    `figure` takes the measured quantity (seconds, bytes) from an iteration. `others`: what the run may have been as
    well, where its source leaves something out; of all the fastest that the chip has memory for counts.
    """

    chip: Architecture
    workload: Workload
    cluster: Cluster
    framework: Framework
    strategy: ParallelPlan
    measured: float
    figure: Callable[[Iteration], float] = lambda iteration: iteration.iteration_s
    others: tuple[ParallelPlan, ...] = ()


@dataclass
class PublishedRuns:
    """Collects the runs of a set and counts those left out."""

    _runs: list[PublishedRun] = field(default_factory=list)
    _excluded: Counter[str] = field(default_factory=Counter)

    def keep(self, run: PublishedRun) -> None:
        """Take a run in."""
        self._runs.append(run)

    def drop(self, reason: str) -> None:
        """Leave a row out."""
        self._excluded[reason] += 1

    @property
    def excluded(self) -> dict[str, int]:
        """Runs left out, by reason."""
        return dict(self._excluded)

    def judge(self) -> Judged:
        """Predict all runs taken in; roofline: the model's FLOPs at the peak of all devices for their format."""
        predicted = {rung: np.full(len(self._runs), np.nan) for rung in JUDGED}
        known: dict[Fidelity, dict[RunGroup, Estimator]] = {rung: {} for rung in JUDGED}
        for i, run in enumerate(self._runs):
            for rung in (Fidelity.ANALYTIC, Fidelity.CALIBRATED):
                found = best_iteration(run, estimator(run, rung, known[rung]))
                predicted[rung][i] = run.figure(found)
            rate = product_flops_per_s(to_table([run.chip]), run.workload.operands)
            peak = float(rate[0]) * run.cluster.devices
            predicted[Fidelity.ROOFLINE][i] = found.model_flops / peak
        measured = np.array([run.measured for run in self._runs])
        assumed = sum(bool(run.others) for run in self._runs)
        return Judged(measured, predicted, dict(self._excluded), assumed=assumed, runs=tuple(self._runs))


def best_iteration(run: PublishedRun, costs: Estimator) -> Iteration:
    """The fastest of what a run may have been that fits, or where none does what needs least memory."""
    found = [costs.iteration(strategy) for strategy in (run.strategy, *run.others)]
    memory = float(hbm_capacity_bytes(costs.table)[0])
    least = min(iteration.memory_bytes for iteration in found)
    fitting = [iteration for iteration in found if iteration.memory_bytes <= max(memory, least)]
    return min(fitting, key=lambda iteration: iteration.iteration_s)


def estimator(run: PublishedRun, rung: Fidelity, known: dict[RunGroup, Estimator] | None = None) -> Estimator:
    """Estimator of a run; runs of one model on one cluster share their layers' costs through `known`."""
    known = {} if known is None else known
    key = (run.workload, run.chip.name, run.cluster, run.framework)
    if key not in known:
        family = str(run.chip.value("family")) if rung is Fidelity.CALIBRATED else GENERIC
        cluster = replace(run.cluster, network=with_laws(run.cluster.network, family))
        known[key] = Estimator(run.workload, to_table([run.chip]), cluster, run.framework, rung)
    return known[key]


MEGATRON: Mapping[str, str] = {
    "layers": "layers",
    "hidden": "hidden",
    "heads": "heads",
    "vocabulary": "vocab",
    "tokens": "seq_len",
    "tensor": "tp",
    "stages": "pp",
    "devices": "n_gpus",
    "batch": "global_batch",
}
"""Columns of the tables about Megatron-LM, by what they hold."""


@dataclass(frozen=True, slots=True)
class StatedRun:
    """Dimensions of a GPT, tensor- and pipeline-parallel degrees, devices and global batch."""

    layers: int
    hidden: int
    heads: int
    vocabulary: int
    tokens: int
    tensor: int
    stages: int
    devices: int
    batch: int

    @classmethod
    def of(cls, columns: Columns, row: int, names: Mapping[str, str] = MEGATRON) -> StatedRun:
        """The numbers of one row, found in the columns of these names."""
        return cls(**{field: int(columns.numbers(name)[row]) for field, name in names.items()})

    @property
    def replicas(self) -> int:
        """Data-parallel degree."""
        return self.devices // (self.tensor * self.stages)

    @property
    def share(self) -> int:
        """Samples of an iteration on one replica."""
        return self.batch // self.replicas

    def workload(
        self, framework: Framework, precision: str = "fp16", layers: int | None = None, *, tied: bool = True
    ) -> Workload:
        """The model as a framework runs it, or one of so many layers."""
        sizes = (layers or self.layers, self.hidden, self.heads, self.vocabulary, self.tokens)
        return gpt(*sizes, framework.attention, framework.fusion, precision, tied=tied)

    def cluster(self, network: str) -> Cluster:
        """All its devices on a network by name."""
        return Cluster(self.devices, self.batch, network_of(network))

    def strategy(self, microbatch: int, chunks: int = 1, *, sequence: bool = False) -> ParallelPlan:
        """The degrees with a microbatch and so many parts of the model on each device."""
        return ParallelPlan(
            microbatch=microbatch,
            data_parallel=self.replicas,
            pipeline_parallel=self.stages,
            sharding=Sharding(self.tensor, sequence=sequence),
            schedule=Schedule.INTERLEAVED if chunks > 1 else Schedule.ONE_F_ONE_B,
            chunks=chunks,
        )

    def choices(self, microbatches: tuple[int, ...]) -> list[tuple[int, int]]:
        """Microbatch and chunks per device that the batch and the layers allow, where a row states neither."""
        fitting = (b for b in microbatches if self.share % b == 0)
        return [(b, chunks) for b in fitting for chunks in self._interleavings(self.share // b)]

    def _interleavings(self, microbatches: int) -> list[int]:
        """Even parts of whole layers; more than one on a device needs rounds of as many microbatches as stages."""
        if self.stages == 1 or microbatches % self.stages:
            return [1]
        each = self.layers // self.stages
        return [chunks for chunks in range(1, each + 1) if self.layers % (self.stages * chunks) == 0]


def count_or(number: float, otherwise: int) -> int:
    """A number of a table, or another where the cell is empty."""
    return otherwise if isnan(number) else int(number)
