"""Stages of a pipeline cut where the slowest of them is fastest: embedding and head weigh in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from phaze.placement.strategy.estimate import Estimator
from phaze.placement.strategy.strategy import Strategy
from phaze.solvers.placement.partition import PartitionProblem, StageLimits, batch_cuts

Floats = NDArray[np.float64]


def group_seconds(estimator: Estimator, shape: Strategy) -> Floats:
    """Seconds of every repeated group, (B,), without recompute; the ends of the model count with the nearest."""
    groups = int(estimator.division(shape).blocks.sum())
    loads = estimator.loads(replace(shape, pipeline_parallel=groups, chunks=1, stages=()))
    return loads.forward.pass_s + loads.turned_s


def balanced(group_s: Floats, stages: int) -> tuple[int, ...]:
    """How many of some groups, (B,) seconds, each of so many stages has where the longest is as short as can be.

    For one chunk per device; memory does not count.
    """
    count = len(group_s)
    if count % stages == 0:
        even_s = group_s.reshape(stages, -1).sum(axis=1).max()
        if even_s <= (count // stages + 1) * group_s.min():  # any other cut has a stage of so many groups
            return (count // stages,) * stages
    row = group_s[None, :]
    problem = PartitionProblem(
        row,
        row,
        np.zeros((1, count + 1)),
        StageLimits(np.full((count, count), count), None),
        np.arange(count),
        exactly=True,
    )
    one = np.ones(1)
    (cut,) = batch_cuts(problem, stages, np.zeros(count), one, np.zeros(1))
    return tuple(np.diff([*cut.starts, count]).tolist())
