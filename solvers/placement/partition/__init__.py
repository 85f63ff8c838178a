"""Exact cuts of a chain into stages, for many architectures at once; see `stage_partition` for shapes and meanings."""

from phaze.solvers.placement.partition.partition_bounds import lower_bounds
from phaze.solvers.placement.partition.partition_problem import (
    PartitionProblem,
    StageLimits,
    fewest_stages,
    stage_limits,
)
from phaze.solvers.placement.partition.stage_partition import (
    Partition,
    Weighted,
    batch_cuts,
    best_cuts,
    bottlenecks,
    weighted_bottlenecks,
)
from phaze.solvers.placement.partition.stage_partition_dp import balanced_cuts

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
