"""Arrays of bf16 alone and of bf16 and fp8 in one space: what linear layers in few bits do, and that proofs hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from brute_force import brute_force, check

from phaze.cost.cost_model import CostModel
from phaze.errors import InputError
from phaze.explore.answers.main_job import evaluate, explore
from phaze.explore.documents.result_manifest import scope
from phaze.explore.evaluation.energy_and_memory import Measures
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.flops_utilisation import fastest_flops_per_s, takes_recipe
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Objective, StrategyChoice, Task
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.derived_figures import narrow_speed
from phaze.hardware.silicon.die_area import area_parts_mm2
from phaze.hardware.silicon.package_power import power_parts_w
from phaze.hardware.spaces.space_file import load_space, parse_space
from phaze.hardware.spaces.space_fix import fix
from phaze.inputs.recipe_inputs import arrays_of, with_recipe
from phaze.scheduling.passes import SolveLimits
from phaze.workload.operators.low_precision import Recipe

SPACE = """
schema_version: 1
name: formats
axes:
  - {fields: [precision], values: [bf16, bf16+fp8]}
  - {fields: [tensor_cores], values: [1, 6]}
  - {fields: [tensor_core_rows], values: [64, 256]}
  - fields: [hbm_generation, hbm_stacks]
    values: [[HBM2e, 4], [HBM3, 6]]
"""
CHIP = {"tensor_cores": 6, "vector_cores": 3, "vector_core_alus": 1024}
EFFORT = SolveLimits(lambda: np.inf, np.inf)


@pytest.fixture(scope="module")
def space():
    """Eight chips, each with arrays of either kind."""
    return parse_space(SPACE, "formats.yaml")


@pytest.fixture(scope="module")
def task(tiny, network):
    return Task(tiny, 16, network, recipe=Recipe.FP8)


@pytest.fixture(scope="module")
def evaluator(task, space):
    return Evaluator(task, space.table())


@pytest.fixture(scope="module")
def answer(task, space, resources):
    """The best within 200 W."""
    return explore(ExploreRequest(task, space, Budgets(power_w=200.0)), resources=resources)


def chip(precision, **changes):
    return load_architecture("tpuv4").replace("chip", precision=precision, **{**CHIP, **changes})


def both(task, space, power_w):
    """The better of two tasks, of which neither knows of a choice, per architecture that has the formats."""
    plain = {row[2]: row for row in brute_force(replace(task, recipe=None), space, power_w)}
    narrow = replace(task, workload=task.workload.in_recipe(task.recipe), recipe=None)
    able = {name: row for row in brute_force(narrow, space, power_w) if "fp8" in (name := row[2])}
    return [max((row, able.get(name, row)), key=lambda r: r[1]) for name, row in plain.items()]


def test_optimum_and_frontier_equal_brute_force(task, space, answer):
    check(answer, both(task, space, 200.0))
    assert {"bf16", "bf16+fp8"} == {point.architecture["precision"] for point in answer.document.frontier}


@pytest.mark.soak
def test_arrays_of_four_bits_are_proven_as_well(task, resources):
    """Four chips: those of bf16 alone run as they are."""
    four = SPACE.replace("bf16+fp8]", "bf16+fp8+fp4]").replace("[64, 256]", "[64]").replace(", [HBM3, 6]", "")
    space, narrow = parse_space(four, "formats.yaml"), replace(task, recipe=Recipe.NVFP4)
    answer = explore(ExploreRequest(narrow, space, Budgets(power_w=300.0)), resources=resources)
    check(answer, both(narrow, space, 300.0))
    assert answer.document.best.architecture["precision"] == "bf16+fp8+fp4"


def test_four_products_of_four_bits_take_the_place_of_one_in_bf16():
    table = to_table([chip(p) for p in ("bf16", "bf16+fp8", "bf16+fp8+fp4")])
    speeds = [narrow_speed(table, operands).tolist() for operands in ("fp8", "fp4")]
    assert speeds == [[1, 2, 2], [1, 2, 4]]
    units = area_parts_mm2(table)["mac"]
    assert (units / units[0]).round(3).tolist() == [1, round(850 / 700, 3), round(918 / 700, 3)]
    busy = power_parts_w(table)["mac"]
    # 0.60, two of 0.315 and four of 0.69 x 0.315 pJ
    assert (busy / busy[0]).tolist() == pytest.approx([1, 2 * 0.315 / 0.6, 4 * 0.69 * 0.315 / 0.6])


def test_other_axes_are_proven_as_well(task, space, resources):
    request = ExploreRequest(task, space, Budgets(power_w=300.0), Objective.ENERGY_PER_SAMPLE)
    certificate = explore(request, resources=resources).document.certificate
    asked = replace(request, task=replace(task, recipe=None))
    plain = explore(asked, resources=resources).document.certificate
    assert certificate.optimal
    assert certificate.space_size == 2 * plain.space_size
    assert certificate.pruned_by["format"] > 0
    assert certificate.objective_value > plain.objective_value  # reciprocal of J


def test_bounds_hold_at_every_point(evaluator, task):
    rows, measures, batch = np.arange(len(evaluator.table)), Measures(evaluator), task.cluster.global_batch
    roof = (
        batch * fastest_flops_per_s(evaluator.table, task, task.recipe) * task.devices / evaluator.model_flops
    )
    for setting in evaluator.configs:
        able = evaluator.takes(setting)
        quick = evaluator.iteration_bound(setting, rows)
        assert np.isinf(quick[~able]).all()
        found = measures.exact(setting, rows[able], EFFORT)
        fits = np.isfinite(found.iteration_s)
        assert (quick[able][fits] <= found.iteration_s[fits] * (1 + 1e-9)).all()
        work = evaluator.work_bound(setting, rows)
        assert (work[able][fits] <= found.iteration_s[fits] * (1 + 1e-9)).all()
        assert (batch / found.iteration_s[fits] <= roof[able][fits] * (1 + 1e-9)).all()
        least = measures.least_energy_j(setting, rows[able][fits], quick[able][fits])
        assert (least <= found.energy_per_sample_j[fits]).all()


def test_linear_layers_are_faster_by_at_most_two_and_nothing_else_is(tiny, network):
    model = CostModel(to_table([chip("bf16+fp8")]), network)
    for layer, narrow in zip(
        tiny.chain(2, 1).layers, tiny.in_recipe(Recipe.FP8).chain(2, 1).layers, strict=True
    ):
        for one, other in ((layer.forward, narrow.forward), (layer.backward, narrow.backward)):
            wide, few = (model.costs(p).tables for p in (one, other))
            for o, work in enumerate(other.works):
                faster = wide.tensor.parallel[0, o] / max(few.tensor.parallel[0, o], 1)
                if any(g.operands is not None for g in work.gemms):
                    assert 1 <= faster <= 2
                elif work.gemms:
                    assert faster == 1


def test_a_narrowed_product_reads_half_the_bytes(tiny):
    chain, narrow = (w.chain(2, 1) for w in (tiny, tiny.in_recipe(Recipe.FP8)))
    for layer, other in zip(chain.layers, narrow.layers, strict=True):
        for one, few in zip(layer.forward.works, other.forward.works, strict=True):
            for g, h in zip(one.gemms, few.gemms, strict=True):
                halved = h.operands is not None
                assert (h.a_bytes, h.b_bytes) == (
                    (g.a_bytes / 2, g.b_bytes / 2) if halved else (g.a_bytes, g.b_bytes)
                )
                assert h.c_bytes == g.c_bytes


def test_a_chip_of_two_formats_is_larger_and_never_slower(task):
    plain, two = (evaluate(task, chip(p, tensor_cores=1, tensor_core_rows=64)) for p in ("bf16", "bf16+fp8"))
    assert 1.05 < two.area_parts_mm2["mac"] / plain.area_parts_mm2["mac"] < 1.4
    assert two.tdp_w > plain.tdp_w
    slow, fast = (d.workloads["tiny"] for d in (plain, two))
    assert slow.placement.recipe is None
    assert fast.placement.recipe is Recipe.FP8
    assert 1 < fast.throughput_samples_per_s / slow.throughput_samples_per_s < 2
    assert fast.energy_per_iteration_j < slow.energy_per_iteration_j
    # Twice the peak and less than twice the throughput: utilisation falls.
    gained = fast.throughput_samples_per_s / slow.throughput_samples_per_s
    assert fast.mfu == pytest.approx(slow.mfu * gained / 2)


def test_a_strategy_reaches_no_more_than_the_proof(task, space, answer, resources):
    best = answer.document.certificate
    request = ExploreRequest(task, space, Budgets(power_w=200.0), strategy=StrategyChoice("phaze", 4))
    value = explore(request, resources=resources).document.certificate.objective_value
    assert value <= best.objective_value * (1 + 1e-9)


def test_what_is_asked_and_what_the_arrays_take(task, space):
    plain = replace(task, recipe=None)
    arrays = arrays_of(space)
    assert with_recipe(plain, None, arrays).recipe is Recipe.FP8
    assert with_recipe(plain, "none", arrays).recipe is None
    assert with_recipe(plain, "mxfp8", arrays).recipe is Recipe.MXFP8
    assert with_recipe(plain, None, arrays_of(fix(space, ["precision=bf16"]))).recipe is None
    assert with_recipe(plain, None, arrays_of(load_space("default"))).recipe is None
    assert with_recipe(plain, None, arrays_of(load_space("precision"))).recipe is Recipe.FP8
    h100 = to_table([load_architecture("h100")])
    assert with_recipe(plain, None, h100).recipe is None
    assert with_recipe(plain, "fp8", h100).recipe is Recipe.FP8
    for word, message in (("fp8", "none here are"), ("fp6", "--recipe 'fp6'")):
        with pytest.raises(InputError, match=message):
            with_recipe(plain, word, to_table([load_architecture("tpuv4")]))


def test_a_certificate_says_what_it_does_not_know(task):
    assert "precision bf16" in scope(replace(task, recipe=None))
    told = scope(task)
    assert any("fp8" in line for line in told)
    assert any("accuracy is not modelled" in line for line in told)


def test_formats_that_an_array_takes():
    table = to_table([chip("bf16"), chip("bf16+fp8"), chip("bf16", fp8_rate=2), chip("fp8")])
    assert takes_recipe(table, Recipe.FP8).tolist() == [False, True, True, False]
    assert takes_recipe(table, None).all()
