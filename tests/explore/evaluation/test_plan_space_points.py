"""Points with a plan space, against the search for the best plan of one architecture."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.request.explore_request import Task
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.hardware.derived_figures import hbm_capacity_bytes
from phaze.parallel.framework import load_framework
from phaze.parallel.plan_choices import load_plans
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.scheduling.passes import SolveLimits
from phaze.workload.workload_loader import load_workload


@pytest.mark.parametrize(
    ("software", "plans"),
    [("ideal", "full"), ("mlperf-2024", "full"), ("ideal", "megatron"), ("exposed", "phaze")],
)
def test_the_best_of_all_shapes_is_the_best_plan(software, plans):
    """The same plans of the space, in the memory that the framework leaves, with weights gathered in its bits."""
    framework, table = load_framework(software), to_table([load_architecture("a100")])
    task = Task(
        load_workload("gpt3-medium", attention=framework.attention, fusion=framework.fusion),
        16,
        load_network("default"),
        global_batch=64,
        held={"microbatches": (4,)},
        framework=framework,
        plans=load_plans(plans),
    )
    evaluator, rows = Evaluator(task, table), np.arange(1)
    none, effort = np.full(1, inf), SolveLimits(lambda: inf)
    every = [evaluator.plans(setting, rows, none, effort)[0] for setting in evaluator.configs]
    least = min(one.iteration_s for one in every if one is not None)
    estimator = Estimator(task.workload, table, task.cluster, framework)
    capacity = framework.usable_bytes(float(hbm_capacity_bytes(table)[0]))
    best = best_plans(estimator, task.plan_space, capacity).best[0]
    assert least == pytest.approx(best.iteration.iteration_s, rel=1e-9)
