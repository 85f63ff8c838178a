"""A plan of a document worked out again: when every pass runs, and what every device holds."""

from __future__ import annotations

from collections.abc import Sequence

from phaze.errors import InputError
from phaze.explore.documents.plan_document import PlanDocument
from phaze.explore.documents.plan_record import StrategyRecord
from phaze.explore.evaluation.planned_iteration import estimator_of, strategy_of
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture import Architecture, to_table
from phaze.parallel.timeline.replayed_plan import ReplayedPlan
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.parallel.training.mixed_estimate import MixedEstimator
from phaze.tolerances import RETOLD
from phaze.workload.operators.low_precision import Recipe


def replay_plan(document: PlanDocument, task: Task, architecture: Architecture) -> ReplayedPlan:
    """The best plan of a document, played. Raises InputError where it comes to another time than the document says."""
    return replay_record(task, architecture, document.best.strategy, document.best.iteration_time_s)


def replay_record(
    task: Task,
    architecture: Architecture,
    record: StrategyRecord,
    told_s: float,
    recipe: Recipe | None = None,
) -> ReplayedPlan:
    """A plan on an architecture, played. Raises InputError where it comes to another time than `told_s`."""
    costs = estimator_of(task, to_table([architecture]), recipe)
    return _played(costs, record, told_s, f"{task.workload.name} on {architecture.name}")


def replay_mixed(
    task: Task,
    architectures: Sequence[Architecture],
    record: StrategyRecord,
    told_s: float,
    recipe: Recipe | None = None,
) -> ReplayedPlan:
    """A plan whose devices are of an architecture each, replayed. Raises InputError as `replay_record`."""
    distinct = list({one.name: one for one in architectures}.values())
    rows = [[one.name for one in distinct].index(one.name) for one in architectures]
    costs = MixedEstimator.of(estimator_of(task, to_table(distinct), recipe), rows)
    return _played(costs, record, told_s, f"{task.workload.name} on {len(distinct)} designs")


def _played(costs: Estimator, record: StrategyRecord, told_s: float, what: str) -> ReplayedPlan:
    strategy = strategy_of(record)
    iteration = costs.iteration(strategy)
    if abs(iteration.iteration_s / told_s - 1.0) > RETOLD:
        raise InputError(
            f"{what} comes to {iteration.iteration_s:.6g} s with this plan, "
            f"not to {told_s:.6g} s: the model, the workload or the chip is another one than in the document"
        )
    return ReplayedPlan.of(costs, strategy, iteration)
