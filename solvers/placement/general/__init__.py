"""Layer graphs on pipelines of several device types, with options per stage: exact placement."""

from phaze.solvers.placement.general.chain import from_chain
from phaze.solvers.placement.general.checker import general_plan_time
from phaze.solvers.placement.general.levels import TooLargeError
from phaze.solvers.placement.general.place import place_general
from phaze.solvers.placement.general.problem import GeneralProblem, with_phaze_conventions
from phaze.solvers.placement.general.read import FORMAT, read_general_problem
from phaze.solvers.placement.general.result import GeneralResult, GeneralStage

__all__ = [
    "FORMAT",
    "GeneralProblem",
    "GeneralResult",
    "GeneralStage",
    "TooLargeError",
    "from_chain",
    "general_plan_time",
    "place_general",
    "read_general_problem",
    "with_phaze_conventions",
]
