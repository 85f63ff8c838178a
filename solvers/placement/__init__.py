"""Layers on pipeline stages: exact partition and placement."""

from phaze.solvers.placement.checker import PlanError, plan_time
from phaze.solvers.placement.instance import PlacementProblem, read_problem
from phaze.solvers.placement.place import place
from phaze.solvers.placement.reading import InstanceError
from phaze.solvers.placement.result import PlacementResult, PlacementStatus, Stage

__all__ = [
    "InstanceError",
    "PlacementProblem",
    "PlacementResult",
    "PlacementStatus",
    "PlanError",
    "Stage",
    "place",
    "plan_time",
    "read_problem",
]
