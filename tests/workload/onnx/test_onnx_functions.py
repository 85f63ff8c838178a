"""Functions of a file and of the standard, and branches: put in the place of what stands for them."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_tiny import integers, node, save, tensor, weight

from phaze.errors import InputError
from phaze.workload.onnx import load_onnx
from phaze.workload.onnx import onnx_nodes as limits
from phaze.workload.operators.operator_graph import OpKind

IMAGE = [tensor("x", "N", 3, 8)]
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]


def function(name, inputs, outputs, nodes, attributes=(), **fields):
    return helper.make_function(
        "com.example", name, inputs, outputs, nodes, OPSETS, list(attributes), **fields
    )


def call(kind, inputs, outputs, **attributes):
    return node(kind, inputs, outputs, domain="com.example", **attributes)


def taken(kind, attribute, inputs, outputs):
    """A node whose attribute is the caller's."""
    made = node(kind, inputs, outputs)
    made.attribute.add(name=attribute, ref_attr_name=attribute, type=2)
    return made


def steps(graph):
    return [op.attributes.get("function", op.kind.value) for op in graph.operators]


def test_functions_within_functions(tmp_path):
    inner = function(
        "Inner", ["a", "w"], ["b"], [node("MatMul", ["a", "w"], ["t"]), node("Relu", ["t"], ["b"])]
    )
    outer = function(
        "Outer", ["a", "w"], ["b"], [call("Inner", ["a", "w"], ["t"]), call("Inner", ["t", "w"], ["b"])]
    )
    nodes = [call("Outer", ["x", "w"], ["y"], name="one"), call("Outer", ["y", "w"], ["z"], name="two")]
    path = save(tmp_path, nodes, IMAGE, [weight("w", 8, 8)], functions=[inner, outer], outputs=("z",))
    graph = load_onnx(path).graph(2)
    assert steps(graph) == ["matmul", "relu"] * 4
    assert [t.name for t in graph.parameters()] == ["w"]
    assert graph.tensors["z"].shape == (2, 3, 8)


def test_attributes_of_the_call_and_their_defaults(tmp_path):
    default = helper.make_attribute("axis", 2)
    body = function(
        "Soft", ["a"], ["b"], [taken("Softmax", "axis", ["a"], ["b"])], attribute_protos=[default]
    )
    nodes = [call("Soft", ["x"], ["y"], axis=1), call("Soft", ["y"], ["z"])]
    graph = load_onnx(save(tmp_path, nodes, IMAGE, functions=[body], outputs=("z",))).graph(2)
    assert [op.attributes["axis"] for op in graph.operators] == [1, 2]


def test_operands_that_are_left_out_and_results_that_are_passed_on(tmp_path):
    body = function("Cut", ["a", "low", "high"], ["b", "c"], [node("Clip", ["a", "low", "high"], ["b"])])
    body.output[1] = "a"
    path = save(tmp_path, [call("Cut", ["x"], ["y", "z"])], IMAGE, functions=[body], outputs=("y", "z"))
    assert steps(load_onnx(path).graph(2)) == ["clip", "view"]


def test_constants_inside_functions(tmp_path):
    half = node("Constant", [], ["h"], value_float=0.5)
    table = node("Constant", [], ["w"], value=numpy_helper.from_array(np.zeros((8, 40), np.float32)))
    nodes = [half, table, node("Mul", ["a", "h"], ["s"]), node("MatMul", ["s", "w"], ["b"])]
    path = save(tmp_path, [call("F", ["x"], ["y"])], IMAGE, functions=[function("F", ["a"], ["b"], nodes)])
    graph = load_onnx(path).graph(2)
    assert steps(graph) == ["scale", "matmul"]
    assert [t.shape for t in graph.parameters()] == [(8, 40)]


def test_functions_without_end(tmp_path):
    itself = function("F", ["a"], ["b"], [call("F", ["a"], ["b"])])
    with pytest.raises(InputError, match=r"function com\.example\.F calls itself$"):
        load_onnx(save(tmp_path, [call("F", ["x"], ["y"])], IMAGE, functions=[itself]))


def test_functions_that_multiply(tmp_path, monkeypatch):
    """Twenty functions of two calls each would be a million operators."""
    monkeypatch.setattr(limits, "MOST_NODES", 1000)
    tower = [function("F0", ["a"], ["b"], [node("Relu", ["a"], ["b"])])]
    for i in range(1, 20):
        twice = [call(f"F{i - 1}", ["a"], ["t"]), call(f"F{i - 1}", ["t"], ["b"])]
        tower.append(function(f"F{i}", ["a"], ["b"], twice))
    with pytest.raises(InputError, match="functions and branches make more than 1000 operators"):
        load_onnx(save(tmp_path, [call("F19", ["x"], ["y"])], IMAGE, functions=tower))


def choice(condition, then, otherwise, name="choice"):
    graphs = {
        "then_branch": helper.make_graph(then[0], "then", [], [tensor(then[1])], then[2]),
        "else_branch": helper.make_graph(otherwise[0], "else", [], [tensor(otherwise[1])], otherwise[2]),
    }
    return node("If", [condition], ["c"], name=name, **graphs)


@pytest.mark.parametrize("taken_branch", [True, False])
def test_a_branch_with_a_constant_condition(tmp_path, taken_branch):
    """What only the other branch needs is not there."""
    product = ([node("MatMul", ["x", "w"], ["t"]), node("Relu", ["t"], ["b"])], "b", [weight("w", 8, 5)])
    nodes = [choice("flag", product, ([node("Tanh", ["x"], ["b"])], "b", [])), node("Neg", ["c"], ["y"])]
    flag = numpy_helper.from_array(np.asarray(taken_branch), "flag")
    graph = load_onnx(save(tmp_path, nodes, IMAGE, [flag])).graph(2)
    assert steps(graph) == (["matmul", "relu", "neg"] if taken_branch else ["tanh", "neg"])
    assert graph.tensors["y"].shape == (2, 3, 5 if taken_branch else 8)
    assert len(graph.parameters()) == taken_branch


@pytest.mark.parametrize(("rows", "function"), [(3, "relu"), (4, "tanh")])
def test_a_condition_computed_from_shapes(tmp_path, rows, function):
    """As torch exports a squeeze: If(Shape[1] == 3), a branch that hands on a tensor from outside included."""
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["n"]),
        node("Equal", ["n", "three"], ["is"]),
        choice("is", ([], "r", []), ([node("Tanh", ["x"], ["b"])], "b", [])),
        node("Identity", ["c"], ["y"]),
    ]
    constants = [integers("one", 1), integers("three", 3)]
    graph = load_onnx(save(tmp_path, nodes, [tensor("x", "N", rows, 8)], constants)).graph(2)
    assert [step for step in steps(graph) if step != "view"] == [function]


def test_an_operator_without_a_converter_is_what_the_standard_says_it_is(tmp_path):
    nodes = [node("SwiGLU", ["x", "x"], ["y"])]
    graph = load_onnx(save(tmp_path, nodes, IMAGE, opset=28)).graph(2)
    assert graph.tensors["y"].shape == (2, 3, 8)
    assert {op.kind for op in graph.operators} <= {OpKind.ELEMENTWISE, OpKind.VIEW}
    young = [node("SwiGLU", ["x", "x"], ["y"])]
    with pytest.raises(InputError, match=r"unsupported operators: SwiGLU \(1\)$"):
        load_onnx(save(tmp_path, young, IMAGE, opset=17))


def test_a_loop_inside_a_function_is_its_rounds(tmp_path):
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Relu", ["v"], ["w"])],
        "body",
        [tensor("i", kind=TensorProto.INT64), tensor("go", kind=TensorProto.BOOL), tensor("v", 1)],
        [tensor("on", kind=TensorProto.BOOL), tensor("w", 1)],
    )
    again = node("Loop", ["n", "", "a"], ["b"], name="again", body=body)
    nodes = [node("Constant", [], ["n"], value_int=3), again]
    path = save(
        tmp_path, [call("F", ["x"], ["y"], name="f")], IMAGE, functions=[function("F", ["a"], ["b"], nodes)]
    )
    assert [step for step in steps(load_onnx(path).graph(2)) if step != "view"] == ["relu"] * 3
