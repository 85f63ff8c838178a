"""Loops of a constant count: the body once for each round; others are refused in one sentence."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_tiny import integers, node, save, tensor, weight

from phaze.errors import InputError
from phaze.workload.onnx import load_onnx

IMAGE = [tensor("x", "N", 3, 8)]
TRUE = numpy_helper.from_array(np.asarray(True), "true")


def steps(graph):
    return [op.attributes.get("function", op.kind.value) for op in graph.operators]


def loop(results, count="n", condition="", goes_on="go", stacked=(), more=(), stored=()):
    """A loop that multiplies by a weight of the graph around it, and one of its own."""
    nodes = [
        *more,
        node("Identity", [goes_on], ["on"]),
        node("MatMul", ["v", "w"], ["a"]),
        node("Relu", ["a"], ["b"]),
    ]
    inputs = [tensor("i", kind=TensorProto.INT64), tensor("go", kind=TensorProto.BOOL), tensor("v", 1)]
    outputs = [tensor("on", kind=TensorProto.BOOL), tensor("b", 1), *(tensor(name, 1) for name in stacked)]
    body = helper.make_graph(nodes, "body", inputs, outputs, list(stored))
    return node("Loop", [count, condition, "x"], results, name="again", body=body)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_loop_is_all_its_rounds(tmp_path, count):
    path = save(tmp_path, [loop(["y"])], IMAGE, [integers("n", count), weight("w", 8, 8)])
    model = load_onnx(path)
    graph = model.graph(2)
    assert [s for s in steps(graph) if s != "view"] == ["matmul", "relu"] * count
    assert graph.tensors["y"].shape == (2, 3, 8)
    assert [t.name for t in graph.parameters()] == ["w"]
    flat = [node("MatMul", ["x" if k == 0 else f"b{k}", "w"], [f"a{k}"]) for k in range(count)]
    written = [part for k, one in enumerate(flat) for part in (one, node("Relu", [f"a{k}"], [f"b{k + 1}"]))]
    written.append(node("Identity", [f"b{count}"], ["y"]))
    same = load_onnx(save(tmp_path, written, IMAGE, [weight("w", 8, 8)])).graph(2)
    assert [op.kind for op in same.operators if op.kind != "view"] == [
        op.kind for op in graph.operators if op.kind != "view"
    ]


def test_no_round_hands_on_what_came_in(tmp_path):
    nodes = [loop(["z"]), node("Tanh", ["z"], ["y"])]
    graph = load_onnx(save(tmp_path, nodes, IMAGE, [integers("n", 0), weight("w", 8, 8)])).graph(2)
    assert [s for s in steps(graph) if s != "view"] == ["tanh"]


def test_a_condition_that_is_always_true_is_none(tmp_path):
    stored = [numpy_helper.from_array(np.asarray(True), "always")]
    made = loop(["y"], condition="true", goes_on="always", stored=stored)
    graph = load_onnx(save(tmp_path, [made], IMAGE, [integers("n", 3), weight("w", 8, 8), TRUE])).graph(2)
    assert steps(graph).count("matmul") == 3


@pytest.mark.parametrize("opset", [11, 17])
def test_what_rounds_give_is_stacked(tmp_path, opset):
    """Each round reads another row by its number, and its result becomes a row."""
    more = [node("Gather", ["table", "i"], ["row"]), node("Add", ["x", "row"], ["each"])]
    nodes = [
        loop(["z", "rows"], stacked=["each"], more=more),
        node("Transpose", ["rows"], ["turned"], perm=[1, 0, 2, 3]),
    ]
    stored = [integers("n", 4), weight("w", 8, 8), weight("table", 4, 8)]
    path = save(tmp_path, nodes, IMAGE, stored, outputs=("z", "turned"), opset=opset)
    graph = load_onnx(path).graph(2)
    assert graph.tensors["turned"].shape == (2, 4, 3, 8)
    assert steps(graph).count("add") == 4


def test_loops_within_loops(tmp_path):
    inner = loop(["c"])
    inner.input[2] = "outer"
    inner.name = "inner"
    inputs = [tensor("j", kind=TensorProto.INT64), tensor("more", kind=TensorProto.BOOL), tensor("outer", 1)]
    body = helper.make_graph(
        [node("Identity", ["more"], ["still"]), inner],
        "outer",
        inputs,
        [tensor("still", kind=TensorProto.BOOL), tensor("c", 1)],
    )
    made = node("Loop", ["m", "", "x"], ["y"], name="outer", body=body)
    stored = [integers("m", 2), integers("n", 3), weight("w", 8, 8)]
    graph = load_onnx(save(tmp_path, [made], IMAGE, stored)).graph(2)
    assert steps(graph).count("matmul") == 6


def test_loops_without_a_constant_count_are_refused(tmp_path):
    stored = [weight("w", 8, 8), integers("zero", 0)]
    shape = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"])]
    fault = r"unsupported operators: control flow Loop node 'again', whose count is not a constant$"
    for nodes in ([*shape, loop(["y"])], [loop(["y"], count="")]):
        with pytest.raises(InputError, match=fault):
            load_onnx(save(tmp_path, nodes, IMAGE, stored))


def test_loops_that_end_by_what_they_compute_are_refused(tmp_path):
    more = [
        node("ReduceMax", ["v"], ["most"], keepdims=0),
        node("Cast", ["most"], ["any"], to=TensorProto.BOOL),
    ]
    path = save(
        tmp_path, [loop(["y"], goes_on="any", more=more)], IMAGE, [integers("n", 3), weight("w", 8, 8)]
    )
    with pytest.raises(InputError, match=r"Loop node 'again', whose end depends on what it computes$"):
        load_onnx(path)


def test_loops_without_end_are_refused(tmp_path):
    path = save(tmp_path, [loop(["y"])], IMAGE, [integers("n", 10**12), weight("w", 8, 8)])
    with pytest.raises(InputError, match=r"loops make more than 20000 operators$"):
        load_onnx(path)


def scan(results, nodes, **attributes):
    """A scan that hands a sum to the next round and gives a row of its own."""
    inputs = [tensor("before", 1, 4), tensor("slice", 1, 4)]
    body = helper.make_graph(nodes, "body", inputs, [tensor("after", 1, 4), tensor("made", 1, 4)])
    return node("Scan", ["start", "x"], results, name="through", body=body, num_scan_inputs=1, **attributes)


CELL = [
    node("MatMul", ["slice", "w"], ["fed"]),
    node("Add", ["fed", "before"], ["sum"]),
    node("Tanh", ["sum"], ["after"]),
    node("Relu", ["after"], ["made"]),
]
SEQUENCE = [tensor("start", "N", 4), tensor("x", "N", 5, 4)]


@pytest.mark.parametrize(("opset", "backwards"), [(11, False), (17, False), (17, True)])
def test_a_scan_is_all_its_slices(tmp_path, opset, backwards):
    told = {"scan_input_axes": [1], "scan_output_axes": [1]}
    if backwards:
        told |= {"scan_input_directions": [1], "scan_output_directions": [1]}
    made = scan(["last", "y"], CELL, **told)
    path = save(tmp_path, [made], SEQUENCE, [weight("w", 4, 4)], opset=opset, outputs=("last", "y"))
    graph = load_onnx(path).graph(3)
    assert [s for s in steps(graph) if s != "view"] == ["matmul", "add", "tanh", "relu"] * 5
    assert graph.tensors["y"].shape == (3, 5, 4)
    assert graph.tensors["last"].shape == (3, 4)
    assert [t.name for t in graph.parameters()] == ["w"]
    first = next(op for op in graph.operators if op.attributes.get("function") == "tanh")
    assert "start" in next(op for op in graph.operators if op.outputs[0] == first.inputs[0]).inputs


def test_a_scan_through_samples_is_refused(tmp_path):
    path = save(
        tmp_path,
        [scan(["last", "y"], CELL)],
        [tensor("start", 1, 4), tensor("x", "N", 1, 4)],
        [weight("w", 4, 4)],
    )
    with pytest.raises(InputError, match="does not keep the batch"):
        load_onnx(path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"opset": 8}, "as opset 8 has it"),
        ({"num": 0}, "whose body does not fit it"),
        ({"long": True}, "loops make more than 20000 operators"),
    ],
)
def test_a_scan_that_cannot_be_written_out_is_refused(tmp_path, change, told):
    made = scan(["last", "y"], CELL, scan_input_axes=[1])
    if "num" in change:
        made.attribute.remove(next(a for a in made.attribute if a.name == "num_scan_inputs"))
        made.attribute.append(helper.make_attribute("num_scan_inputs", 0))
    inputs = [tensor("start", "N", 4), tensor("x", "N", 6000 if "long" in change else 5, 4)]
    path = save(tmp_path, [made], inputs, [weight("w", 4, 4)], opset=change.get("opset", 17))
    with pytest.raises(InputError, match=told):
        load_onnx(path)
