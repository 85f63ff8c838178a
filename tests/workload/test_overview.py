"""Figures of a workload per kind: they add up, and agree with the chain."""

import pytest

from phaze.workload.workload import Mode
from phaze.workload.workload_loader import load_workload
from phaze.workload.workload_overview import overview

MODELS = ["resnet18", "mobilenet-v3-large", "dlrm", "bert-large"]


@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.PREFILL])
@pytest.mark.parametrize("name", MODELS)
def test_operator_kinds_and_layer_kinds_add_up_to_the_whole(name, mode):
    workload = load_workload(name, mode)
    figures = overview(workload, 2)
    chain = workload.chain(2, 1)
    layers = [group.totals for group in figures.layer_kinds.values()]
    assert sum(group.layers for group in figures.layer_kinds.values()) == figures.layers == len(chain.index)
    assert sum(group.unlike for group in figures.layer_kinds.values()) == len(chain.layers)
    assert sum(t.operators for t in layers) == figures.whole.operators
    assert sum(t.flops for t in layers) == pytest.approx(figures.whole.flops, rel=1e-12)
    assert sum(t.bytes for t in layers) == pytest.approx(figures.whole.bytes, rel=1e-12)
    assert figures.whole.parameters == workload.parameter_count
    assert sum(t.parameters for t in layers) == chain.parameters


@pytest.mark.parametrize("name", ["resnet18", "mobilenet-v3-large", "dlrm"])
def test_flops_are_the_models_own(name):
    """Where nothing is recomputed, FLOPs as executed are the model's FLOPs."""
    workload = load_workload(name)
    assert overview(workload, 3).whole.flops == workload.chain(3, 1).model_flops


def test_parameters_stand_with_the_operators_that_read_them():
    kinds = overview(load_workload("dlrm")).operator_kinds
    assert kinds["embedding"].parameters == 187_767_399 * 128
    assert kinds["matmul"].arithmetic_intensity == pytest.approx(
        kinds["matmul"].flops / kinds["matmul"].bytes
    )


def test_largest_kinds_come_first():
    figures = overview(load_workload("resnet18"))
    assert next(iter(figures.operator_kinds)) == "conv"
    assert next(iter(figures.layer_kinds)) == "basic"
