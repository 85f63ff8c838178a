"""Layer graphs on pipelines of several device types, with options per stage: exact placement.

The exact solver behind `dse solve placement` for instances of format `dse-placement/2`. It answers
the published question in full, and for chains it is a second opinion on `chain`. The plan model of the product takes
from it how graphs are cut (`GraphCuts`).
"""

from phaze.solvers.placement.general.general_checker import general_plan_time
from phaze.solvers.placement.general.general_problem import (
    FORMAT,
    GeneralProblem,
    GeneralResult,
    GeneralStage,
    from_chain,
    read_general_problem,
    with_phaze_conventions,
)
from phaze.solvers.placement.general.general_search import place_general
from phaze.solvers.placement.general.graph_cuts import GraphCuts
from phaze.solvers.placement.general.layer_levels import TooLargeError

__all__ = [
    "FORMAT",
    "GeneralProblem",
    "GeneralResult",
    "GeneralStage",
    "GraphCuts",
    "TooLargeError",
    "from_chain",
    "general_plan_time",
    "place_general",
    "read_general_problem",
    "with_phaze_conventions",
]
