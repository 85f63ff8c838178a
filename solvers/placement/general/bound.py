"""Lower bounds on the largest work of a stage, from the layers alone: no stage is evaluated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from phaze.solvers.arrays import Floats
from phaze.solvers.placement.general.pipeline import kinds
from phaze.solvers.placement.general.problem import GeneralProblem, Model, Reduced

# A sum of many terms may be rounded up: a bound must not.
_ROUNDING = 1 - 1e-12


@dataclass(frozen=True)
class WorkBound:
    """What every plan on some models must do, for each kind of work but the reduction, (kinds - 1,) each.

    `slowest_s`: the slowest layer; `total_s`: all layers; `device_total_s`: all layers, times their devices.
    The reduction is that of the largest layer and of all layers, or of the smallest one that may come first.
    """

    slowest_s: Floats
    total_s: Floats
    device_total_s: Floats
    largest_reduced_bytes: float
    total_reduced_bytes: float

    def largest(self, stages: int, devices: int, half_reduction_s: float) -> Floats:
        """Least possible largest work in at most so many stages on so many devices in all, (kinds,)."""
        work = np.maximum(self.slowest_s, np.maximum(self.total_s / stages, self.device_total_s / devices))
        reduced = max(self.largest_reduced_bytes, self.total_reduced_bytes / stages) * half_reduction_s
        bound: Floats = np.append(work, reduced) * _ROUNDING
        return bound


def work_bound(problem: GeneralProblem, models: Iterable[Model]) -> WorkBound:
    """The bound for plans whose stages choose from some models."""
    models = list(models)
    least = np.min([_layer_work(problem, model) for model in models], axis=0)
    device_work = [_layer_work(problem, model) * _layer_devices(model) for model in models]
    parameters = np.min([model.parameter_bytes for model in models], axis=0)
    halves = min((2, 2, 1, 0)[zero] for zero in problem.zero)
    every = problem.conventions.reduced is Reduced.EVERY
    fed = {v for _, v in problem.edges}
    first = min(float(p) for v, p in enumerate(parameters) if v not in fed)
    return WorkBound(
        slowest_s=least.max(axis=1),
        total_s=least.sum(axis=1),
        device_total_s=np.min(device_work, axis=0).sum(axis=1),
        largest_reduced_bytes=halves * (float(parameters.max()) if every else first),
        total_reduced_bytes=halves * (float(parameters.sum()) if every else 0.0),
    )


def _layer_devices(model: Model) -> Floats:
    return np.where(model.is_tensor_parallel, float(model.tensor_parallel), 1.0)


def _layer_work(problem: GeneralProblem, model: Model) -> Floats:
    """Seconds of each kind of work of each layer, without transfers, recomputation and gathers, (kinds - 1, L)."""
    late = problem.schedule.zero_bubble
    weight_gradient = np.array(model.weight_gradient_s)
    seconds = {
        "forward": np.array(model.forward_s),
        "backward": np.array(model.input_gradient_s) + (0.0 if late else weight_gradient),
        "late": weight_gradient,
    }
    return np.stack([sum(seconds[name] for name in names) for names in kinds(problem.schedule)[:-1]])
