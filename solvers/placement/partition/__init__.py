"""Exact cuts of a chain into stages, for many architectures at once; see `solve` for shapes and meanings."""

from phaze.solvers.placement.partition.solve import (
    Partition,
    PartitionProblem,
    StageLimits,
    Weighted,
    best_cuts,
    bottlenecks,
    fewest_stages,
    lower_bounds,
    stage_limits,
    weighted_bottlenecks,
)

__all__ = [
    "Partition",
    "PartitionProblem",
    "StageLimits",
    "Weighted",
    "best_cuts",
    "bottlenecks",
    "fewest_stages",
    "lower_bounds",
    "stage_limits",
    "weighted_bottlenecks",
]
