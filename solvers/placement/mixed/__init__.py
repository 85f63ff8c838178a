"""A chain of layers on a pipeline whose stages may be of different device types: exact cuts and types together."""

from phaze.solvers.placement.mixed.checker import mixed_plan_value
from phaze.solvers.placement.mixed.place import line_bounds, place_mixed
from phaze.solvers.placement.mixed.problem import Goal, Line, MixedChain, MixedStage
from phaze.solvers.placement.mixed.result import MixedResult

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
