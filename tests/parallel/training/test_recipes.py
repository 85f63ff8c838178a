"""Linear layers in few bits: what waits for backward, copies of weights, and time against published runs."""

from __future__ import annotations

import pytest
from strategy_cases import estimator, small_gpt

from phaze.cost.fidelity import Fidelity
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.cluster_network import load_network
from phaze.parallel.cluster import Cluster, Recompute
from phaze.parallel.framework import load_framework
from phaze.parallel.parallel_plan import ParallelPlan, Zero
from phaze.parallel.pipelines.pipeline_schedule import Schedule
from phaze.parallel.plan_search.best_first_search import best_plans
from phaze.parallel.plan_space import PlanSpace
from phaze.parallel.training.iteration_estimate import Estimator
from phaze.workload.operators.low_precision import Recipe
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_loader import load_workload

HIDDEN, TOKENS, LAYERS = 512, 256, 4
MATRICES = 12 * HIDDEN**2 * LAYERS
"""Parameters of the linear layers of all blocks, without biases."""


def memory(recipe, strategy):
    return estimator(chip="h100", workload=small_gpt(LAYERS, Attention.FLASH, recipe=recipe)).memory(
        strategy
    )[0]


@pytest.mark.parametrize("recipe", [Recipe.FP8, Recipe.MXFP8, Recipe.NVFP4])
@pytest.mark.parametrize("sharding", [Sharding(), Sharding(2, sequence=True)], ids=["one", "two"])
def test_inputs_wait_in_few_bits(recipe, sharding):
    """Both norms' results and the activation's (6 h); that of attention is kept for itself, and a scaled copy of it."""
    s = ParallelPlan(2, data_parallel=4, sharding=sharding)
    plain, few = memory(None, s), memory(recipe, s)
    alone, beside = 6 * (2 - recipe.element_bytes), recipe.element_bytes
    saved = 2 * TOKENS * HIDDEN * LAYERS * (alone - beside) / sharding.tensor
    assert plain.activations_bytes - few.activations_bytes == pytest.approx(saved)


@pytest.mark.parametrize("recipe", [Recipe.FP8, Recipe.MXFP8, Recipe.NVFP4])
def test_scaled_weights_stay_in_two_copies_unless_they_are_gathered_anew(recipe):
    for zero in Zero:
        plain, few = (memory(r, ParallelPlan(2, data_parallel=4, zero=zero)) for r in (None, recipe))
        copies = 0.0 if zero is Zero.WEIGHTS else 2 * recipe.element_bytes * MATRICES
        assert few.weights_bytes - plain.weights_bytes == pytest.approx(copies)
        assert few.gradients_bytes == plain.gradients_bytes
        assert few.optimizer_bytes == plain.optimizer_bytes


@pytest.mark.parametrize("recipe", [Recipe.FP8_EARLY, Recipe.FP8_ROWS])
def test_torchao_keeps_what_it_read(recipe):
    s = ParallelPlan(2, data_parallel=4)
    assert memory(recipe, s) == memory(None, s)


@pytest.mark.parametrize("recompute", Recompute)
@pytest.mark.parametrize("recipe", [one for one in Recipe if one.trains])
def test_few_bits_never_need_more_room_for_activations(recipe, recompute):
    s = ParallelPlan(2, data_parallel=2, pipeline_parallel=2, recompute=recompute)
    assert memory(recipe, s).activations_bytes <= memory(None, s).activations_bytes


def seconds(model, chip, devices, batch, network, framework, strategy, recipe):
    """Of one iteration, on the calibrated rung."""
    software = load_framework(framework)
    workload = load_workload(model, Mode.TRAINING, software.attention, fusion=software.fusion, recipe=recipe)
    cluster = Cluster(devices, batch, load_network(network))
    table = to_table([load_architecture(chip)])
    return Estimator(workload, table, cluster, software, Fidelity.CALIBRATED).iteration(strategy).iteration_s


def test_fp8_over_bf16_is_as_published():
    """TorchTitan (arXiv 2410.06511, table 1), compiled: 8,532 and 6,667 tokens/s and GPU."""
    s = ParallelPlan(2, data_parallel=8, zero=Zero.WEIGHTS, recompute=Recompute.SELECTIVE)
    case = ("llama3-8b", "h100-96gb", 8, 16, "hgx-h100", "torchtitan-2024", s)
    assert seconds(*case, None) / seconds(*case, Recipe.FP8_EARLY) == pytest.approx(8532 / 6667, rel=0.1)


def test_nvfp4_over_mxfp8_is_as_published():
    """Megatron-Bridge 26.04.01, Llama 3 70B on 64 GB200, the same plan: 4,864 and 3,712 tokens/s and GPU."""
    s = ParallelPlan(
        1,
        data_parallel=8,
        pipeline_parallel=4,
        sharding=Sharding(2, sequence=True),
        schedule=Schedule.INTERLEAVED,
        chunks=5,
        zero=Zero.OPTIMIZER,
    )
    case = ("llama3-70b", "gb200", 64, 256, "nvl72", "megatron-bridge-2025", s)
    assert seconds(*case, Recipe.MXFP8) / seconds(*case, Recipe.NVFP4) == pytest.approx(4864 / 3712, rel=0.12)


def test_a_search_with_a_recipe_is_faster_on_a_chip_that_has_the_format():
    space = PlanSpace(microbatches=(1, 2), tensor=(1,), chunks=(1,))
    seconds = {
        (chip, recipe): best_plans(
            estimator(4, 8, chip, workload=small_gpt(LAYERS, Attention.FLASH, recipe=recipe)), space, 1e12
        )
        .best[0]
        .iteration.iteration_s
        for chip in ("a100", "h100")
        for recipe in (None, Recipe.FP8)
    }
    assert seconds["h100", Recipe.FP8] < seconds["h100", None]
    assert seconds["a100", Recipe.FP8] > seconds["a100", None]
