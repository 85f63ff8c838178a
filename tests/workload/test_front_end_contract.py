"""Every front end of ours keeps the contract of front ends."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from onnx_tiny import node, save, tensor, weight

from phaze.testing.front_end_contract import FrontEndContract
from phaze.testing.small_problem import DECODER
from phaze.workload.workload_loader import FRONT_ENDS, LoadOptions

RECORDED = Path(__file__).parents[1] / "data/exported/decoder.json"
GPT2 = {
    "activation_function": "gelu_new",
    "model_type": "gpt2",
    "n_embd": 64,
    "n_head": 4,
    "n_layer": 2,
    "n_positions": 128,
    "vocab_size": 1000,
}


def yaml_file(folder, suffix):
    path = folder / f"tiny{suffix}"
    path.write_text(DECODER)
    return str(path)


def onnx_file(folder, _):
    products = [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["y"])]
    return str(save(folder, products, [tensor("x", "N", 8)], [weight("w", 8, 4)]))


def pt2_file(folder, _):
    path = folder / "decoder.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("decoder/models/model.json", RECORDED.read_text(encoding="utf-8"))
    return str(path)


def config(folder, _):
    (folder / "config.json").write_text(json.dumps(GPT2))
    return f"hf:{folder}"


MODELS = {".yaml": yaml_file, ".yml": yaml_file, ".onnx": onnx_file, ".pt2": pt2_file, "hf:": config}
BOUND = {".pt2": {"tokens[1]": 16}}


@pytest.mark.parametrize("name", FRONT_ENDS.built_in)
class TestFrontEnds(FrontEndContract):
    @pytest.fixture
    def front_end(self, name):
        return FRONT_ENDS.find(name)

    @pytest.fixture
    def source(self, name, tmp_path):
        return MODELS[name](tmp_path, name)

    @pytest.fixture
    def options(self, name):
        return LoadOptions(bind=BOUND.get(name, {}))
