"""Operators on cores: bounds, list schedules, exact methods, checker."""

from .batch.graph import BatchGraph
from .batch.solve import BatchBounds, batch_bounds, batch_critical_path
from .list_scheduling import CriticalPath, critical_path
from .schedule_checker import ScheduleError, check_schedule
from .schedule_instance import InstanceError, read_instance
from .schedule_problem import (
    Method,
    Mode,
    Operator,
    ProblemError,
    ScheduleProblem,
    ScheduleResult,
    Status,
    moldable_modes,
)
from .schedule_solver import schedule

__all__ = [
    "BatchBounds",
    "BatchGraph",
    "CriticalPath",
    "InstanceError",
    "Method",
    "Mode",
    "Operator",
    "ProblemError",
    "ScheduleError",
    "ScheduleProblem",
    "ScheduleResult",
    "Status",
    "batch_bounds",
    "batch_critical_path",
    "check_schedule",
    "critical_path",
    "moldable_modes",
    "read_instance",
    "schedule",
]
