"""A strategy for each layer: the problem, its answer, and the independent evaluation of a choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from phaze.solvers.arrays import Floats


class ChoiceError(ValueError):
    """The choice breaks a rule of the problem."""


class ChoiceStatus(StrEnum):
    """What is known of the answer."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"  # no better one is known, and the lower bound says how much better one could be
    INFEASIBLE = "infeasible"


@dataclass(frozen=True)
class LayerProblem:
    """L layers in a row, S strategies, and memory that all layers share.

    `time_s` (L, S): seconds of a layer under a strategy, infinite where it cannot have it; `memory_bytes` (L, S): what
    it holds then; `change_s` (L, S, S): seconds between the layer before under a and layer i under b, at [i, a, b],
    not read for the first; `limit_bytes`: what all layers together may hold.
    """

    time_s: Floats
    memory_bytes: Floats
    change_s: Floats
    limit_bytes: float

    def __post_init__(self) -> None:
        """Check shapes and numbers. ValueError where they do not fit together."""
        layers, strategies = self.time_s.shape
        if self.memory_bytes.shape != (layers, strategies):
            raise ValueError("times and memory have one shape")
        if self.change_s.shape != (layers, strategies, strategies) or not layers or not strategies:
            raise ValueError(f"changes have the shape {(layers, strategies, strategies)}")
        if not (np.isfinite(self.memory_bytes).all() and np.isfinite(self.change_s).all()):
            raise ValueError("memory and changes are finite")
        if min(self.time_s.min(), self.memory_bytes.min(), self.change_s.min()) < 0:
            raise ValueError("times, memory and changes are not negative")

    @property
    def least_bytes(self) -> float:
        """Least memory that any choice takes; infinite where a layer can have no strategy."""
        able = np.where(np.isfinite(self.time_s), self.memory_bytes, np.inf)
        return float(able.min(axis=1).cumsum()[-1])


@dataclass(frozen=True)
class LayerResult:
    """The choice: a strategy, by number, for each layer; no choice takes less than `lower_bound_s`.

    `labels`: pairs of bytes and seconds that were kept on the way.
    """

    status: ChoiceStatus
    time_s: float
    lower_bound_s: float
    memory_bytes: float
    runtime_s: float
    strategies: tuple[int, ...] = ()
    labels: int = 0

    @property
    def gap(self) -> float:
        """(time - bound) / time; 0 for the optimum and where there is no choice."""
        open_ = self.status is ChoiceStatus.FEASIBLE and self.time_s > 0
        return (self.time_s - self.lower_bound_s) / self.time_s if open_ else 0.0


def check_choice(problem: LayerProblem, strategies: Sequence[int]) -> tuple[float, float]:
    """Seconds and bytes of a choice, added up layer by layer. Raises ChoiceError that names the rule it breaks."""
    layers, count = problem.time_s.shape
    if len(strategies) != layers:
        raise ChoiceError(f"{layers} layers need a strategy each, not {len(strategies)}")
    time_s = memory_bytes = 0.0
    for i, s in enumerate(strategies):
        if not 0 <= s < count or not np.isfinite(problem.time_s[i, s]):
            raise ChoiceError(f"layer {i} cannot have strategy {s}")
        if i:
            time_s += float(problem.change_s[i, strategies[i - 1], s])
        time_s += float(problem.time_s[i, s])
        memory_bytes += float(problem.memory_bytes[i, s])
    if memory_bytes > problem.limit_bytes:
        raise ChoiceError(f"the layers hold {memory_bytes:g} bytes of {problem.limit_bytes:g}")
    return time_s, memory_bytes
