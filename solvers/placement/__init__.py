"""Layers on pipeline stages: exact partition and placement."""

from phaze.solvers.placement.chain.batch import BatchResult, PlacementBatch
from phaze.solvers.placement.chain.bounds import lower_bound
from phaze.solvers.placement.chain.checker import PlanError, plan_time
from phaze.solvers.placement.chain.instance import FORMAT, PlacementProblem, read_problem
from phaze.solvers.placement.chain.place import place, place_batch
from phaze.solvers.placement.chain.result import PlacementResult, PlacementStatus, Stage
from phaze.solvers.placement.reading import InstanceError

__all__ = [
    "FORMAT",
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
