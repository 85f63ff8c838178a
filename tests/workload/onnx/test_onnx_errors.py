"""Malformed files: one clear sentence that names the file, never another exception."""

import os
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx_tiny import integers, light, node, save, tensor, weight

from phaze.errors import InputError
from phaze.workload.onnx import load_onnx

IMAGE = [tensor("x", 1, 3, 8, 8)]


def refused(path, match):
    with pytest.raises(InputError, match=match) as caught:
        load_onnx(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert caught.value.exit_code == 2


def test_missing_file_and_directory(tmp_path):
    refused(tmp_path / "none.onnx", "no such file")
    refused(tmp_path, "not a file")


def test_a_name_too_long_for_the_file_system(tmp_path):
    refused(tmp_path / ("x" * 5000), "cannot be read|no such file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    path = save(tmp_path, [node("Relu", ["x"], ["y"])], IMAGE)
    path.chmod(0)
    refused(path, "cannot be read")


@pytest.mark.parametrize("content", [b"", b"hello: [1, 2]\n", bytes(range(256)) * 9, b"\x00" * 1000])
def test_files_that_are_no_onnx(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    refused(path, "not a(n| readable) ONNX model|no operators")


def test_truncated_file(tmp_path):
    path = tmp_path / "half.onnx"
    whole = light("resnet50").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(path, "not a readable ONNX model")


def test_the_extension_does_not_matter(tmp_path):
    path = tmp_path / "alexnet.json"
    path.write_bytes(light("bvlc_alexnet").read_bytes())
    assert load_onnx(path).name == "alexnet"


def test_empty_graphs(tmp_path):
    refused(save(tmp_path, [], IMAGE, outputs=("x",)), "no operators")
    refused(save(tmp_path, [node("Relu", ["x"], ["y"])], IMAGE, outputs=()), "no outputs")
    refused(
        save(tmp_path, [node("Relu", ["w"], ["y"])], IMAGE, [weight("w", 3)]),
        "no output is computed from an input",
    )


def test_unsupported_operators_are_listed_all_at_once_with_counts(tmp_path):
    nodes = [
        node("NonZero", ["x"], ["a"]),
        node("NonZero", ["a"], ["b"]),
        node("Unknown", ["b"], ["d"], domain="com.microsoft"),
        node("Block", ["d"], ["e"], domain="com.example"),
        node("DeformConv", ["e", "e", "e"], ["y"]),
    ]
    block = helper.make_function(
        "com.example", "Block", ["i"], ["o"], [node("NonZero", ["i"], ["o"])], [helper.make_opsetid("", 17)]
    )
    path = save(tmp_path, nodes, IMAGE, functions=[block])
    refused(
        path,
        r"unsupported operators: DeformConv \(1\), NonZero \(3\), com\.microsoft\.Unknown \(1\)$",
    )


def test_a_branch_whose_condition_is_computed_from_the_input_is_control_flow(tmp_path):
    branch = helper.make_graph([node("Relu", ["x"], ["b"])], "branch", [], [tensor("b")])
    nodes = [
        node("Cast", ["x"], ["positive"], to=TensorProto.BOOL),
        node("If", ["positive"], ["c"], name="choice", then_branch=branch, else_branch=branch),
        node("Add", ["c", "x"], ["y"]),
    ]
    refused(
        save(tmp_path, nodes, IMAGE),
        r"unsupported operators: control flow If node 'choice', whose condition depends on the input$",
    )


def test_what_no_output_needs_is_not_held_against_a_file(tmp_path):
    path = save(tmp_path, [node("NonZero", ["x"], ["z"]), node("Relu", ["x"], ["y"])], IMAGE)
    assert len(load_onnx(path).graph(1).operators) == 1


def test_cyclic_graph(tmp_path):
    nodes = [
        node("Add", ["x", "b"], ["a"], name="first"),
        node("Relu", ["a"], ["b"]),
        node("Relu", ["b"], ["y"]),
    ]
    refused(save(tmp_path, nodes, IMAGE), "cycle that Add node 'first' waits for")


def test_unsorted_nodes_are_sorted(tmp_path):
    path = save(tmp_path, [node("Relu", ["a"], ["y"]), node("Tanh", ["x"], ["a"])], IMAGE)
    assert [op.name for op in load_onnx(path).graph(1).operators] == ["a", "y"]


def test_dangling_and_doubly_made_tensors(tmp_path):
    refused(
        save(tmp_path, [node("Add", ["x", "ghost"], ["y"], name="n")], IMAGE), "Add node 'n' reads 'ghost'"
    )
    twice = [node("Relu", ["x"], ["y"]), node("Tanh", ["x"], ["y"])]
    refused(save(tmp_path, twice, IMAGE), "'y' has two producers")


def test_shapes_that_do_not_fit(tmp_path):
    refused(
        save(tmp_path, [node("MatMul", ["x", "w"], ["y"])], [tensor("x", 1, 4)], [weight("w", 5, 6)]),
        "MatMul node",
    )
    conv = [node("Conv", ["x", "w"], ["y"], name="c")]
    refused(save(tmp_path, conv, IMAGE, [weight("w", 6, 4, 3, 3)]), "Conv node 'c' does not fit: 3 channels")
    refused(save(tmp_path, conv, IMAGE, [weight("w", 6, 3, 9, 9)]), r"would have shape \(1, 6, 0, 0\)")
    refused(save(tmp_path, [node("Relu", ["x"], ["y"])], [tensor("x", 1, 0)]), r"would have shape \(1, 0\)")
    target = [integers("t", 1, 7)]
    refused(
        save(tmp_path, [node("Reshape", ["x", "t"], ["y"])], IMAGE, target), r"does not fit: .* to \[1, 7\]"
    )


def test_unknown_rank_and_unknown_target(tmp_path):
    unknown = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    refused(save(tmp_path, [node("Relu", ["x"], ["y"])], [unknown]), "'x' is not a tensor of known rank")
    inputs = [tensor("x", 1, 4), tensor("t", 1, kind=TensorProto.INT64)]
    refused(save(tmp_path, [node("Reshape", ["x", "t"], ["y"])], inputs), "target of Reshape node")


def test_a_second_result_that_is_not_made(tmp_path):
    scores = node("Attention", ["x", "x", "x"], ["y", "", "", "scores"], name="a")
    path = save(tmp_path, [scores], IMAGE, outputs=("y", "scores"), opset=23)
    refused(path, "Attention node 'a' hands out its scores, which is not supported")


def test_a_deep_graph(tmp_path):
    names = ["x", *(f"t{i}" for i in range(5000))]
    nodes = [node("Relu", [a], [b]) for a, b in pairwise(names)]
    path = save(tmp_path, nodes, IMAGE, outputs=(names[-1],))
    assert len(load_onnx(path).graph(3).operators) == 5000


@settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_mutated_real_files_import_or_are_refused(tmp_path, data):
    content = bytearray(light("squeezenet").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "mutant.onnx"
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2, 1000]))])
    try:
        load_onnx(path).graph(2)
    except InputError as error:
        assert str(error).startswith(f"{path}: ")


def test_tensors_that_cannot_be_and_tensors_that_are_huge(tmp_path):
    relu = [node("Relu", ["x"], ["y"])]
    refused(save(tmp_path, relu, [tensor("x", 1, -5)]), r"would have shape \(1, -5\)")
    product, weights = [node("MatMul", ["x", "w"], ["y"])], weight("w", 0, 0)
    del weights.dims[:]
    weights.dims.extend([10**6, -3])
    refused(
        save(tmp_path, product, [tensor("x", 1, 10**6)], [weights]), r"'w' \(initializer\) would have shape"
    )
    weights.dims[1] = 10**6
    graph = load_onnx(save(tmp_path, product, [tensor("x", 1, 10**6)], [weights])).graph(2)
    assert graph.tensors["w"].elements == 10**12
    graph = load_onnx(save(tmp_path, relu, [tensor("x", 1, 10**6, 10**6)])).graph(2)
    assert graph.tensors["y"].elements == 2 * 10**12


def test_tensors_beyond_counting_name_their_file(tmp_path):
    relu = [node("Relu", ["x"], ["y"])]
    refused(save(tmp_path, relu, [tensor("x", 1, 2**31, 2**31)]), "2\\^60 are possible")
    path = save(tmp_path, relu, [tensor("x", 1, 2**30, 2**30)])
    with pytest.raises(InputError, match=f"^{path}: .*2\\^60 are possible"):
        load_onnx(path).graph(2)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.integers(0, 10**6), st.sampled_from(["squeezenet", "shufflenet"]))
def test_pieces_of_nonsense_in_real_files(tmp_path, nonsense, place, name):
    content = light(name).read_bytes()
    place %= len(content)
    path = tmp_path / "mutant.onnx"
    path.write_bytes(content[:place] + nonsense + content[place + len(nonsense) :])
    try:
        load_onnx(path).graph(2)
    except InputError as error:
        assert str(error).startswith(f"{path}: ")
