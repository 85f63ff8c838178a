"""Layers on pipeline stages: exact partition and placement."""

from phaze.solvers.placement.batch import BatchResult, PlacementBatch
from phaze.solvers.placement.bounds import lower_bound
from phaze.solvers.placement.checker import PlanError, plan_time
from phaze.solvers.placement.instance import PlacementProblem, read_problem
from phaze.solvers.placement.place import place, place_batch
from phaze.solvers.placement.reading import InstanceError
from phaze.solvers.placement.result import PlacementResult, PlacementStatus, Stage

__all__ = [
    "BatchResult",
    "InstanceError",
    "PlacementBatch",
    "PlacementProblem",
    "PlacementResult",
    "PlacementStatus",
    "PlanError",
    "Stage",
    "lower_bound",
    "place",
    "place_batch",
    "plan_time",
    "read_problem",
]
