"""Every model that the onnx wheel ships becomes a chain of layers, or one sentence that says why not."""

from pathlib import Path

import onnx
import pytest
from onnx.backend.test.case.node import collect_testcases

from phaze.errors import InputError
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.onnx import load_onnx
from phaze.workload.workload import Mode

DATA = Path(onnx.__file__).parent / "backend/test/data"


def chains(path):
    """Chains of a model in both modes, as far as there are any; None stands for a refusal."""
    try:
        model = load_onnx(path)
    except InputError as error:
        assert str(error).startswith(f"{path}: ")
        assert "\n" not in str(error)
        return [None]
    return [chain_or_refusal(GraphWorkload(model, mode)) for mode in Mode]


def chain_or_refusal(workload):
    try:
        chain = workload.chain(3, 1)
    except InputError as error:
        assert workload.name in str(error)
        assert "\n" not in str(error)
        return None
    assert all(layer.forward.works for layer in chain.layers)
    for layer in chain.layers:
        for made in filter(None, (layer.forward, layer.backward)):
            assert all(before < after for before, after in made.edges)
    if workload.mode is Mode.TRAINING:
        assert any(layer.backward.works for layer in chain.layers)
        assert chain.parameters == workload.parameter_count > 0
    return chain


@pytest.mark.parametrize("folder", ["light", "simple", "pytorch-converted", "pytorch-operator"])
def test_models_of_the_wheel(folder):
    paths = sorted((DATA / folder).rglob("*.onnx"))
    found = [chain for path in paths for chain in chains(path)]
    assert any(found)
    assert folder != "light" or all(found)  # real networks, all of them usable


@pytest.mark.soak
def test_every_operator_test_of_onnx(tmp_path):
    path, usable = tmp_path / "case.onnx", 0
    for case in collect_testcases(None):
        onnx.save(case.model, path)
        usable += any(chains(path))
    assert usable > 600
