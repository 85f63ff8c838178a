"""The certified search on the calibrated rung: spaces of one measured family, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from brute_force import brute_force, check

import phaze
from phaze.cost.fidelity import Fidelity
from phaze.errors import InputError
from phaze.explore.answers.main_job import evaluate, explore
from phaze.explore.plans.plan_search import find_best_plan
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Task
from phaze.hardware.architecture import load_architecture
from phaze.hardware.spaces.space_file import load_space, parse_space
from phaze.parallel.framework import load_framework
from phaze.workload.workload_loader import load_workload

GPUS = """
schema_version: 1
name: gpus
base: h100
axes:
  - {fields: [hbm_stacks], values: [3, 5]}
  - {fields: [clock_hz], values: [1.1GHz, 1.4GHz]}
  - {fields: [vector_cores], values: [80, 132]}
"""
TPUS = """
schema_version: 1
name: tpus
base: tpuv4
axes:
  - {fields: [tensor_cores], values: [4, 8, 16]}
  - {fields: [global_buffer_bytes], values: [64MiB, 128MiB]}
"""


@pytest.fixture(scope="module")
def task(network):
    held = {"microbatches": (2, 4)}
    return Task(load_workload("gpt3-small"), 4, network, 64, rung=Fidelity.CALIBRATED, held=held)


@pytest.mark.parametrize("space", [GPUS, TPUS], ids=["gpus", "tpus"])
@pytest.mark.parametrize("software", ["ideal", "megatron-core-2024"])
def test_optimum_and_frontier_equal_brute_force(task, space, software):
    asked, found = replace(task, framework=load_framework(software)), parse_space(space, "few.yaml")
    check(explore(ExploreRequest(asked, found, Budgets(power_w=600.0))), brute_force(asked, found, 600.0))


def test_the_links_are_those_of_the_family(task):
    """The same to the last digit from every verb, and slower than links that carry all that they could."""
    chip = load_architecture("h100")
    across = replace(task, held={"tensor": (4,), "data": (1,), "pipeline": (1,), "microbatches": (2,)})
    measured = evaluate(across, chip).workloads["gpt3-small"]
    assert find_best_plan(across, chip).best.iteration_time_s == measured.iteration_time_s
    space = parse_space(GPUS.replace("[3, 5]", "[5]").replace("[80, 132]", "[132]"), "few.yaml")
    answer = explore(ExploreRequest(across, space, Budgets())).document
    alone = evaluate(across, space.architecture(1)).workloads["gpt3-small"]
    assert answer.best.workloads["gpt3-small"].iteration_time_s == alone.iteration_time_s
    analytic = evaluate(replace(across, rung=Fidelity.ANALYTIC), chip).workloads["gpt3-small"]
    assert measured.breakdown.collective_s > analytic.breakdown.collective_s


def test_what_no_measurement_covers_is_refused(task):
    for rung, words in (
        (Fidelity.CALIBRATED, "space default: .* measured family"),
        (Fidelity.ROOFLINE, "roofline"),
    ):
        with pytest.raises(InputError, match=words):
            explore(ExploreRequest(replace(task, rung=rung), load_space("default"), Budgets()))


def test_a_sweep_refuses_it_too():
    with pytest.raises(InputError, match="measured family"):
        phaze.sweep("gpt3-small", devices=4, trials=2, rung="calibrated")
