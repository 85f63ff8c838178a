"""Exact cuts of a chain into stages, for many architectures at once; see `solve` for shapes and meanings."""

from phaze.solvers.placement.partition.balance import balanced_cuts
from phaze.solvers.placement.partition.bound import lower_bounds
from phaze.solvers.placement.partition.problem import (
    PartitionProblem,
    StageLimits,
    fewest_stages,
    stage_limits,
)
from phaze.solvers.placement.partition.solve import (
    Partition,
    batch_cuts,
    best_cuts,
    bottlenecks,
    weighted_bottlenecks,
)
from phaze.solvers.placement.partition.weighted import Weighted

__all__ = [
    "Partition",
    "PartitionProblem",
    "StageLimits",
    "Weighted",
    "balanced_cuts",
    "batch_cuts",
    "best_cuts",
    "bottlenecks",
    "fewest_stages",
    "lower_bounds",
    "stage_limits",
    "weighted_bottlenecks",
]
