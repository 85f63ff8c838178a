"""The evaluator that a task asks for."""

from __future__ import annotations

from typing import Any

from phaze.explore.evaluator import Evaluator
from phaze.explore.plan_evaluator import PlanEvaluator
from phaze.explore.request import Task
from phaze.hardware.table import ArchitectureTable
from phaze.recall import Recall


def evaluator_of(
    task: Task,
    table: ArchitectureTable,
    *,
    recall: Recall | None = None,
    shared: dict[Any, Any] | None = None,
) -> Evaluator:
    """Of one task on a table of architectures.

    `shared`: what evaluators of the task keep that no architecture changes.
    """
    kind = PlanEvaluator if task.full else Evaluator
    return kind(task, table, recall=recall, shared={} if shared is None else shared)
