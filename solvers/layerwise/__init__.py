"""A strategy for each layer of a stage under a memory limit, with changes between layers paid, exactly."""

from phaze.solvers.layerwise.alike_layers import CountChoice, LayerKind, choose_counts, least_seconds
from phaze.solvers.layerwise.layer_candidates import Axis, LayerStrategy, candidate_strategies
from phaze.solvers.layerwise.layer_choice import (
    ChoiceError,
    ChoiceStatus,
    LayerProblem,
    LayerResult,
    check_choice,
)
from phaze.solvers.layerwise.layer_choice_search import choose_layers

__all__ = [
    "Axis",
    "ChoiceError",
    "ChoiceStatus",
    "CountChoice",
    "LayerKind",
    "LayerProblem",
    "LayerResult",
    "LayerStrategy",
    "candidate_strategies",
    "check_choice",
    "choose_counts",
    "choose_layers",
    "least_seconds",
]
