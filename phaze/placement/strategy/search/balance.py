"""Stages of a pipeline cut where the slowest of them is fastest: embedding and head weigh in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from phaze.placement.strategy.estimate import Estimator
from phaze.placement.strategy.strategy import Strategy
from phaze.solvers.placement.partition import PartitionProblem, StageLimits, batch_cuts


def balanced(estimator: Estimator, strategy: Strategy) -> tuple[int, ...]:
    """Repeated groups of every stage so that the longest stage is as short as can be, without recompute.

    For one chunk per device; memory does not count.
    """
    loads = estimator.loads(_each_group(estimator, strategy))
    group_s = loads.forward.pass_s + loads.turned_s
    count = len(group_s)
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
    (cut,) = batch_cuts(problem, strategy.pipeline_parallel, np.zeros(count), one, np.zeros(1))
    return tuple(np.diff([*cut.starts, count]).tolist())


def _each_group(estimator: Estimator, strategy: Strategy) -> Strategy:
    """The strategy with a stage for every repeated group."""
    groups = int(estimator.division(strategy).blocks.sum())
    return replace(strategy, pipeline_parallel=groups, chunks=1, stages=())
