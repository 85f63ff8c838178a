"""Pipelines of several designs, every one worked out by the estimator: what searches for them are held against."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np

from phaze.explore.evaluation.planned_iteration import estimator_of
from phaze.parallel.plan_batches.memory_fit import PlanFootprint
from phaze.parallel.training.mixed_estimate import MixedEstimator


def every_pipeline(evaluator, block, setting, most=None, any_cut=True):
    """Every strategy of a setting on all designs for its devices: seconds of an iteration, and the mean power.

    `most`: designs of a pipeline at most. `any_cut`: whether cuts that the plan space does not have count, too.
    """
    several = estimator_of(evaluator.task, block.table, setting.recipe)
    options, layouts = evaluator.options(setting), several.layouts
    for strategy in every_strategy(options, any_cut):
        for zero, order in product(*evaluator.task.plan_space.choices(strategy)):
            room = PlanFootprint.of(layouts, strategy, [zero])
            for rows in product(range(len(block)), repeat=strategy.pipeline_parallel):
                if most is not None and len(set(rows)) > most:
                    continue
                fitting = room.need_bytes[0] <= evaluator.capacity_bytes[list(rows)]
                twice = strategy.schedule.weight_copies > 1
                if not fitting.any(axis=0).all() or (twice and rows != rows[::-1]):
                    continue
                one = room.at(replace(strategy, zero=zero, order=order), fitting.argmax(axis=0))
                seconds = MixedEstimator.of(several, rows).iteration(one).iteration_s
                yield one, seconds, float(block.tdp_w[list(rows)].mean())


def every_strategy(options, any_cut=True):
    """Those of a plan space, and those of one chunk on each device with any cut."""
    for depth in options.depths:
        every = options.plans(depth)
        yield from every
        if not any_cut:
            continue
        blocks, known = len(options.blocks), {s.stages for s in every}
        for cuts in combinations(range(1, blocks), depth.stages - 1):
            stages = tuple(np.diff([0, *cuts, blocks]).tolist())
            if stages not in known and depth.stages > 1:
                one_chunk = dict.fromkeys(replace(s, stages=stages) for s in every if s.chunks == 1)
                yield from one_chunk
