"""The best design for each workload alone: what a common design is held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze.explore.candidates import Candidates
from phaze.explore.document import ResultDocument
from phaze.explore.exploration import Exploration
from phaze.explore.means import ALONE, Means
from phaze.explore.portfolio.report import OwnOptimum
from phaze.explore.progress import Clock, Part, Progress
from phaze.explore.request import ExploreRequest, Objective, Task

SEEDS = 8  # designs of each frontier that are evaluated for the other workloads


@dataclass(frozen=True)
class Own:
    """One workload's own optimum, the number of that design, and numbers of designs along its frontier."""

    optimum: OwnOptimum
    number: int
    seeds: tuple[int, ...]


def own_optima(
    request: ExploreRequest, progress: Progress, clock: Clock, means: Means = ALONE
) -> tuple[Own, ...]:
    """The certified search of every workload alone, in the same space and budgets.

    Each may take an even share of the time that is left, one more share being kept for the common design.
    Raises InfeasibleError, naming the workload, where it fits no architecture.
    """
    shares = range(len(request.tasks) + 1, 1, -1)
    return tuple(
        _own(request, task, progress, Part(clock.left() / share, whole=clock), means)
        for task, share in zip(request.tasks, shares, strict=True)
    )


def _own(request: ExploreRequest, task: Task, progress: Progress, clock: Clock, means: Means) -> Own:
    alone = replace(
        request,
        task=task,
        others=(),
        weights=(),
        objective=Objective.THROUGHPUT,
        min_throughput=None,
        max_latency_s=None,
    )
    answer = Exploration(alone, progress, clock, means).answer()
    document, candidates = answer.document, Candidates(request.space, request.budgets)
    steps = [candidates.number(point.architecture) for point in document.frontier]
    best = candidates.number(document.best.architecture)
    return Own(_optimum(document, task), best, tuple(dict.fromkeys([best, *_spread(steps)])))


def _optimum(document: ResultDocument, task: Task) -> OwnOptimum:
    best, certificate = document.best, document.certificate
    return OwnOptimum(
        id=best.id,
        throughput_samples_per_s=best.workloads[task.workload.name].throughput_samples_per_s,
        upper_bound_samples_per_s=certificate.upper_bound,
        gap=certificate.gap,
        area_mm2=best.area_mm2,
        tdp_w=best.tdp_w,
    )


def _spread(numbers: Sequence[int]) -> list[int]:
    """At most `SEEDS` of them at even steps, both ends among them."""
    if len(numbers) <= SEEDS:
        return list(numbers)
    return [numbers[i] for i in np.linspace(0, len(numbers) - 1, SEEDS).round().astype(int)]
