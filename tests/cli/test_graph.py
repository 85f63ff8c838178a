"""`dse graph` and `dse workloads show` on the command line."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def onnx_file(tmp_path):
    from onnx import TensorProto, helper

    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 3, 8, 8))
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 6, 6))
    weight = helper.make_tensor("weight", TensorProto.FLOAT, (4, 3, 3, 3), [0.0] * 108)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["image", "weight"], ["y"])], "g", [image], [result], [weight]
    )
    path = tmp_path / "tiny.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    )
    return path


def test_show_prints_figures_and_the_file_on_request(dse):
    code, out, _ = dse("workloads", "show", "resnet18")
    assert code == 0
    assert "11,689,512" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "source:" in dse("workloads", "show", "resnet18", "--yaml")[1]


@pytest.mark.parametrize("mode", ["training", "prefill"])
def test_show_as_json(dse, mode):
    document = json.loads(
        dse("workloads", "show", "resnet18", "--mode", mode, "--microbatch", 2, "--json")[1]
    )
    assert document["parameters"] == 11_689_512
    assert (document["mode"], document["microbatch_size"]) == (mode, 2)
    assert sum(kind["flops"] for kind in document["operator_kinds"].values()) == document["flops"]
    assert sum(kind["flops"] for kind in document["layer_kinds"].values()) == document["flops"]


def test_onnx_files_are_shown_and_drawn(dse, onnx_file):
    document = json.loads(dse("workloads", "show", onnx_file, "--mode", "prefill", "--json")[1])
    assert (document["parameters"], document["flops"]) == (108, 2 * 4 * 36 * 27)
    assert json.loads(dse("graph", onnx_file, "--format", "json")[1])["workload"] == "tiny"


@pytest.mark.parametrize(
    ("format_", "start"), [("text", "resnet18, training"), ("dot", "digraph"), ("mermaid", "flowchart TD")]
)
def test_a_model_in_every_format(dse, format_, start):
    code, out, err = dse("graph", "resnet18", "--format", format_)
    assert (code, err) == (0, "")
    assert out.startswith(start)


def test_a_drawing_goes_into_a_file(dse, tmp_path):
    path = tmp_path / "layer.json"
    assert dse("graph", "bert-large", "--layer", 3, "--format", "json", "--out", path) == (0, "", "")
    assert json.loads(path.read_text(encoding="utf-8"))["layer"] == "block0.attention"


def test_collectives_appear_with_tensor_parallelism(dse):
    options = ("--layer", "block0.mlp", "--format", "json")
    kinds = [
        {node["kind"] for node in json.loads(dse("graph", "bert-large", *options, *more)[1])["nodes"]}
        for more in ((), ("--tensor-parallel", 4))
    ]
    assert kinds[1] - kinds[0] == {"all_reduce"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("resnet18", "--layer", "basik1"), "--layer 'basik1': resnet18 has layers 1 to 14; nearest: basic1"),
        (("resnet18", "--tensor-parallel", 2), "--tensor-parallel 2 does not divide this workload"),
        (("resnet18", "--format", "png"), "--format 'png' is not known"),
        (("resnet1"), "unknown workload"),
        (("resnet18", "--out", "/nowhere/x.dot"), "cannot write"),
    ],
)
def test_wrong_requests_are_one_sentence(dse, arguments, message):
    code, out, err = dse("graph", *([arguments] if isinstance(arguments, str) else arguments))
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
