"""Layers on pipeline stages: exact partition and placement."""

from phaze.solvers.placement.chain.chain_batch import BatchResult, PlacementBatch
from phaze.solvers.placement.chain.chain_bounds import lower_bound
from phaze.solvers.placement.chain.chain_checker import PlanError, plan_time
from phaze.solvers.placement.chain.chain_problem import (
    FORMAT,
    PlacementProblem,
    PlacementResult,
    PlacementStatus,
    Stage,
    read_problem,
)
from phaze.solvers.placement.chain.chain_search import place, place_batch
from phaze.solvers.placement.json_document import InstanceError

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
