"""A plan of a document worked out again: when every pass runs, and what every device holds."""

from __future__ import annotations

from dataclasses import dataclass

from phaze.errors import InputError
from phaze.explore.api import measured_links
from phaze.explore.plan_record import StrategyRecord
from phaze.explore.planned import estimator_of, strategy_of
from phaze.explore.planning.document import PlanDocument
from phaze.explore.request import Task
from phaze.hardware.architecture import Architecture, to_table
from phaze.hardware.derived import hbm_capacity_bytes
from phaze.placement.pipelines.timeline import Timeline
from phaze.placement.strategy.iteration import Iteration
from phaze.workload.low_precision import Recipe

_SAME = 1e-6  # relative; what a document and its plan worked out again may differ by


@dataclass(frozen=True)
class PlayedPlan:
    """`timeline`: passes of one pipeline; `iteration`: its time, the memory of every device; capacity of one, bytes."""

    timeline: Timeline
    iteration: Iteration
    capacity_bytes: float


def play(document: PlanDocument, task: Task, architecture: Architecture) -> PlayedPlan:
    """The best plan of a document, played. Raises InputError where it comes to another time than the document says."""
    task = measured_links(task, architecture)
    return play_record(task, architecture, document.best.strategy, document.best.iteration_time_s)


def play_record(
    task: Task,
    architecture: Architecture,
    record: StrategyRecord,
    told_s: float,
    recipe: Recipe | None = None,
) -> PlayedPlan:
    """A plan on an architecture, played. Raises InputError where it comes to another time than `told_s`."""
    table = to_table([architecture])
    estimator, strategy = estimator_of(task, table, recipe), strategy_of(record)
    iteration = estimator.iteration(strategy)
    if abs(iteration.iteration_s / told_s - 1.0) > _SAME:
        raise InputError(
            f"{task.workload.name} on {architecture.name} comes to {iteration.iteration_s:.6g} s with this plan, "
            f"not to {told_s:.6g} s: the model, the workload or the chip is another one than in the document"
        )
    return PlayedPlan(estimator.timeline(strategy), iteration, float(hbm_capacity_bytes(table)[0]))
