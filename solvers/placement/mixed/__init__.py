"""A chain of layers on a pipeline whose stages may be of different device types: exact cuts and types together."""

from phaze.solvers.placement.mixed.mixed_chain_search import line_bounds, place_mixed
from phaze.solvers.placement.mixed.mixed_problem import (
    Goal,
    Line,
    MixedChain,
    MixedResult,
    MixedStage,
    mixed_plan_value,
)

__all__ = [
    "Goal",
    "Line",
    "MixedChain",
    "MixedResult",
    "MixedStage",
    "line_bounds",
    "mixed_plan_value",
    "place_mixed",
]
