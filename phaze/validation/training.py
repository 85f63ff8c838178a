"""Training runs of published systems, and what the model says of their iterations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from phaze.cost.kernels.fitted import GENERIC
from phaze.cost.kernels.links import with_laws
from phaze.cost.rung import Rung
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.derived import hbm_capacity_bytes, product_flops_per_s
from phaze.placement.cluster import Cluster
from phaze.placement.strategy.estimate import Estimator
from phaze.placement.strategy.framework import Framework
from phaze.placement.strategy.iteration import Iteration
from phaze.placement.strategy.strategy import Strategy
from phaze.validation.cases import Judged
from phaze.workload.workload import Workload

Key = tuple[Workload, str, Cluster, Framework]


@dataclass(frozen=True)
class Run:
    """One measured run: a strategy of a workload on a cluster of one chip, and what was measured of it.

    `figure` takes the measured quantity (seconds, bytes) from an iteration. `others`: what the run may have been as
    well, where its source leaves something out; of all the fastest that the chip has memory for counts.
    """

    chip: Architecture
    workload: Workload
    cluster: Cluster
    framework: Framework
    strategy: Strategy
    measured: float
    figure: Callable[[Iteration], float] = lambda iteration: iteration.iteration_s
    others: tuple[Strategy, ...] = ()


@dataclass
class Runs:
    """Collects the runs of a set and counts those left out."""

    _runs: list[Run] = field(default_factory=list)
    _excluded: Counter[str] = field(default_factory=Counter)

    def keep(self, run: Run) -> None:
        """Take a run in."""
        self._runs.append(run)

    def drop(self, reason: str) -> None:
        """Leave a row out."""
        self._excluded[reason] += 1

    def judge(self) -> Judged:
        """Predict all runs taken in; roofline: the model's FLOPs at the peak of all devices for their format."""
        predicted = {rung: np.full(len(self._runs), np.nan) for rung in Rung}
        known: dict[Rung, dict[Key, Estimator]] = {rung: {} for rung in Rung}
        for i, run in enumerate(self._runs):
            for rung in (Rung.ANALYTIC, Rung.CALIBRATED):
                found = _best(run, estimator(run, rung, known[rung]))
                predicted[rung][i] = run.figure(found)
            rate = product_flops_per_s(to_table([run.chip]), run.workload.operands)
            peak = float(rate[0]) * run.cluster.devices
            predicted[Rung.ROOFLINE][i] = found.model_flops / peak
        measured = np.array([run.measured for run in self._runs])
        assumed = sum(bool(run.others) for run in self._runs)
        return Judged(measured, predicted, dict(self._excluded), assumed=assumed)


def _best(run: Run, costs: Estimator) -> Iteration:
    """The fastest of what a run may have been that fits, or where none does what needs least memory."""
    found = [costs.iteration(strategy) for strategy in (run.strategy, *run.others)]
    memory = float(hbm_capacity_bytes(costs.table)[0])
    least = min(iteration.memory_bytes for iteration in found)
    fitting = [iteration for iteration in found if iteration.memory_bytes <= max(memory, least)]
    return min(fitting, key=lambda iteration: iteration.iteration_s)


def estimator(run: Run, rung: Rung, known: dict[Key, Estimator] | None = None) -> Estimator:
    """What costs a run; runs of one model on one cluster share what their layers cost where they share `known`."""
    known = {} if known is None else known
    key = (run.workload, run.chip.name, run.cluster, run.framework)
    if key not in known:
        family = str(run.chip.value("family")) if rung is Rung.CALIBRATED else GENERIC
        cluster = replace(run.cluster, network=with_laws(run.cluster.network, family))
        known[key] = Estimator(run.workload, to_table([run.chip]), cluster, run.framework, rung)
    return known[key]
