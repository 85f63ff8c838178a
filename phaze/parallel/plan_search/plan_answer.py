"""What a search for plans answers: the fastest that fit, and what became of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from phaze.parallel.parallel_plan import ParallelPlan
from phaze.parallel.training.iteration import Iteration


@dataclass(frozen=True)
class EvaluatedPlan:
    """A plan and what it comes to."""

    plan: ParallelPlan
    iteration: Iteration


@dataclass
class PlanBreakdown:
    """Plans of a space by their fate, each counted once: out of memory, pruned, evaluated."""

    out_of_memory: int = 0
    pruned: int = 0
    evaluated: int = 0

    @property
    def total(self) -> int:
        """Plans of the space."""
        return self.out_of_memory + self.pruned + self.evaluated


@dataclass(frozen=True)
class PlanAnswer:
    """The fastest plans that fit, best first, and the account of all.

    `least_memory_bytes`: what the leanest plan that was looked at needs on a device; `least_host_bytes`: the same
    in the memory of a host, of those that only that is too small for.
    """

    best: tuple[EvaluatedPlan, ...]
    account: PlanBreakdown
    least_memory_bytes: float
    least_host_bytes: float = inf


Slowdown = Callable[[ParallelPlan], float]
"""What iterations of a plan are longer by, 1 or more, by its degrees alone: failures, for instance."""
