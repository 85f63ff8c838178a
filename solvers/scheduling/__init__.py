"""Operators on cores: bounds, list schedules, exact methods, checker."""

from .batch.graph import BatchGraph
from .batch.solve import BatchBounds, batch_bounds, batch_critical_path
from .checker import ScheduleError, check_schedule
from .critical_path import CriticalPath, critical_path
from .instance import read_instance
from .instance_fields import InstanceError
from .moldable import moldable_modes
from .operators import Mode, Operator
from .problem import ProblemError, ScheduleProblem
from .result import Method, ScheduleResult, Status
from .solve import schedule

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
