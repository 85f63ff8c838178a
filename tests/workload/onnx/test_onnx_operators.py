"""Each converter: kinds, attributes, operands and shapes of tiny models."""

import math

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_tiny import integers, node, number, save, tensor, weight

from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.onnx import load_onnx
from phaze.workload.onnx.fused_shapes import RESULT_SHAPES
from phaze.workload.onnx.onnx_operators import CONVERTERS, ELEMENT_WISE, MOVES
from phaze.workload.operators.elementwise_cycles import FUNCTIONS
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.workload import Mode

IMAGE = [tensor("x", 1, 6, 10, 10)]


def graph_of(folder, nodes, inputs, constants=(), **fields):
    """Operator graph at a batch of 4."""
    return load_onnx(save(folder, nodes, inputs, constants, **fields)).graph(4)


def summary(graph):
    """(kind, function or None, inputs, output shape) of every operator."""
    return [
        (op.kind, op.attributes.get("function"), op.inputs, graph.tensors[op.outputs[0]].shape)
        for op in graph.operators
    ]


@pytest.mark.parametrize(
    ("attributes", "space", "pads"),
    [
        ({}, (8, 8), (0, 0, 0, 0)),
        ({"pads": [1, 1, 1, 1]}, (10, 10), (1, 1, 1, 1)),
        ({"pads": [0, 1, 2, 1], "strides": [2, 1]}, (5, 10), (0, 1, 2, 1)),
        ({"dilations": [2, 3]}, (6, 4), (0, 0, 0, 0)),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (5, 5), (0, 0, 1, 1)),
        ({"auto_pad": "SAME_LOWER", "strides": [2, 2]}, (5, 5), (1, 1, 0, 0)),
        ({"auto_pad": "VALID", "strides": [3, 3]}, (3, 3), (0, 0, 0, 0)),
    ],
)
def test_convolution(tmp_path, attributes, space, pads):
    nodes = [node("Conv", ["x", "w", "b"], ["y"], group=2, **attributes)]
    graph = graph_of(tmp_path, nodes, IMAGE, [weight("w", 8, 3, 3, 3), weight("b", 8)])
    product, bias = graph.operators
    assert (product.kind, product.inputs) == (OpKind.CONV, ("x", "w"))
    assert graph.tensors[product.outputs[0]].shape == (4, 8, *space)
    assert (bias.attributes["function"], bias.inputs) == ("add", (product.outputs[0], "b"))
    assert graph.tensors["b"].shape == (8, 1, 1)
    assert dict(product.attributes) == {
        "groups": 2,
        "kernel": (3, 3),
        "strides": tuple(attributes.get("strides", (1, 1))),
        "dilations": tuple(attributes.get("dilations", (1, 1))),
        "pads": pads,
    }


@pytest.mark.parametrize("dims", [(1, 6, 10), (1, 6, 10, 10), (1, 6, 4, 10, 10)])
def test_convolution_and_pool_in_one_to_three_dimensions(tmp_path, dims):
    kernel = (2,) * (len(dims) - 2)
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("MaxPool", ["c"], ["y"], kernel_shape=kernel, strides=kernel),
    ]
    graph = graph_of(tmp_path, nodes, [tensor("x", *dims)], [weight("w", 8, 6, *kernel)])
    assert graph.tensors["c"].shape == (4, 8, *(d - 1 for d in dims[2:]))
    assert graph.tensors["y"].shape == (4, 8, *((d - 1) // 2 for d in dims[2:]))
    assert graph.operators[1].attributes["kernel"] == kernel


@pytest.mark.parametrize(("operator", "function"), [("AveragePool", "average"), ("MaxPool", "max")])
def test_pool(tmp_path, operator, function):
    local = node(operator, ["x"], ["p"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    graph = graph_of(
        tmp_path, [local, node(f"Global{operator}", ["p"], ["g"]), node("Relu", ["g"], ["y"])], IMAGE
    )
    assert summary(graph)[0] == (OpKind.POOL, function, ("x",), (4, 6, 5, 5))
    assert summary(graph)[1] == (OpKind.POOL, function, ("p",), (4, 6, 1, 1))
    assert graph.operators[1].attributes["kernel"] == (5, 5)


def test_trailing_ones_of_an_output_are_dropped_so_that_classes_come_last(tmp_path):
    graph = graph_of(tmp_path, [node("GlobalAveragePool", ["x"], ["y"])], IMAGE)
    assert [graph.tensors[name].shape for name in graph.outputs] == [(4, 6)]


@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm(tmp_path, transposed):
    dims = (9, 5) if transposed else (5, 9)
    nodes = [node("Gemm", ["x", "w", "b"], ["y"], transB=transposed)]
    graph = graph_of(tmp_path, nodes, [tensor("x", 1, 5)], [weight("w", *dims), weight("b", 9)])
    assert summary(graph) == [
        (OpKind.MATMUL, None, ("x", "w"), (4, 9)),
        (OpKind.ELEMENTWISE, "add", ("y.product", "b"), (4, 9)),
    ]
    assert graph.tensors["w"].shape == dims
    assert graph.operators[0].attributes.get("transpose_b", False) == bool(transposed)


def test_a_bias_of_one_number_is_a_parameter_and_a_number_of_a_formula_is_none(tmp_path):
    nodes = [
        node("MatMul", ["x", "w"], ["p"]),
        node("Add", ["p", "b"], ["q"]),
        node("Add", ["q", "c"], ["y"]),
    ]
    graph = graph_of(tmp_path, nodes, [tensor("x", 1, 5)], [weight("w", 5, 1), weight("b", 1), weight("c")])
    assert [op.attributes.get("function") for op in graph.operators] == [None, "add", "scale"]
    assert [t.name for t in graph.parameters()] == ["b", "w"]
    gemm = [node("Gemm", ["x", "w", "b"], ["y"])]
    graph = graph_of(tmp_path, gemm, [tensor("x", 1, 5)], [weight("w", 5, 1), weight("b", 1)])
    assert [t.name for t in graph.parameters()] == ["b", "w"]


def test_rows_of_a_table_in_another_order_of_axes_stay_the_table(tmp_path):
    nodes = [
        node("Gather", ["table", "places"], ["rows"]),
        node("Transpose", ["rows"], ["bias"], perm=[2, 0, 1]),
        node("Add", ["x", "bias"], ["y"]),
    ]
    places = helper.make_tensor("places", TensorProto.INT64, (3, 3), [0] * 9)
    graph = graph_of(tmp_path, nodes, [tensor("x", 1, 2, 3, 3)], [weight("table", 7, 2), places])
    assert [(t.name, t.shape) for t in graph.parameters()] == [("table", (7, 2))]


def test_matmul_with_parameter_activation_and_vector(tmp_path):
    nodes = [
        node("MatMul", ["x", "w"], ["q"]),
        node("Transpose", ["q"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["q", "t"], ["s"]),
        node("MatMul", ["s", "v"], ["y"]),
    ]
    graph = graph_of(tmp_path, nodes, [tensor("x", 1, 7, 5)], [weight("w", 5, 3), weight("v", 7)])
    assert summary(graph) == [
        (OpKind.MATMUL, None, ("x", "w"), (4, 7, 3)),
        (OpKind.VIEW, None, ("q",), (4, 3, 7)),
        (OpKind.MATMUL, None, ("q", "t"), (4, 7, 7)),
        (OpKind.VIEW, None, ("v",), (7, 1)),
        (OpKind.MATMUL, None, ("s", "y.column"), (4, 7, 1)),
        (OpKind.VIEW, None, ("y.product",), (4, 7)),
    ]


def test_tied_weights_stay_one_parameter(tmp_path):
    nodes = [
        node("Gather", ["table", "ids"], ["e"]),
        node("Transpose", ["table"], ["back"], perm=[1, 0]),
        node("MatMul", ["e", "back"], ["y"]),
    ]
    ids = tensor("ids", 1, 7, kind=TensorProto.INT64)
    graph = graph_of(tmp_path, nodes, [ids], [weight("table", 50, 8)])
    assert [t.name for t in graph.parameters()] == ["table"]
    assert [op.kind for op in graph.operators] == [OpKind.EMBEDDING, OpKind.MATMUL]
    assert graph.operators[1].attributes["transpose_b"] is True
    assert graph.tensors["ids"].element_bytes == 8
    assert graph.tensors["e"].element_bytes == 2


def test_one_parameter_in_two_layouts_is_counted_once(tmp_path):
    nodes = [
        node("Mul", ["x", "w"], ["a"]),
        node("Reshape", ["w", "column"], ["v"]),
        node("Add", ["a", "v"], ["b"]),
        node("Sub", ["b", "v"], ["y"]),
    ]
    graph = graph_of(tmp_path, nodes, [tensor("x", 1, 8, 8)], [weight("w", 8), integers("column", 8, 1)])
    assert sum(t.elements for t in graph.parameters()) == 8
    assert [op.kind for op in graph.operators].count(OpKind.VIEW) == 1


@pytest.mark.parametrize("folded", ["Unsqueeze", "Identity", "Cast", "Mul"])
def test_a_tensor_computed_from_constants_only_is_a_parameter(tmp_path, folded):
    made = {
        "Unsqueeze": node("Unsqueeze", ["w", "axes"], ["v"]),
        "Identity": node("Identity", ["w"], ["v"]),
        "Cast": node("Cast", ["w"], ["v"], to=TensorProto.FLOAT),
        "Mul": node("Mul", ["w", "w"], ["v"]),
    }[folded]
    graph = graph_of(
        tmp_path,
        [made, node("Mul", ["x", "v"], ["y"])],
        [tensor("x", 1, 8)],
        [weight("w", 8), integers("axes", 0)],
    )
    assert [op.kind for op in graph.operators] == [OpKind.ELEMENTWISE]
    assert sum(t.elements for t in graph.parameters()) == 8


def test_numbers_masks_and_shape_data_are_no_parameters(tmp_path):
    nodes = [
        node("Mul", ["x", "half"], ["a"]),
        node("Constant", [], ["c"], value_float=3.0),
        node("Add", ["a", "c"], ["b"]),
        node("Where", ["mask", "b", "half"], ["d"]),
        node("Clip", ["d", "half", "c"], ["y"]),
    ]
    mask = numpy_helper.from_array(np.ones((8,), bool), "mask")
    graph = graph_of(tmp_path, nodes, [tensor("x", 1, 8)], [number("half", 0.5), mask])
    assert graph.parameters() == ()
    assert [function for _, function, _, _ in summary(graph)] == ["scale", "scale", "where", "clip"]


def test_large_constant_nodes_are_parameters(tmp_path):
    value = numpy_helper.from_array(np.zeros((300, 20), np.float32))
    nodes = [node("Constant", [], ["w"], value=value), node("MatMul", ["x", "w"], ["y"])]
    graph = graph_of(tmp_path, nodes, [tensor("x", 1, 300)])
    assert [t.shape for t in graph.parameters()] == [(300, 20)]


@pytest.mark.parametrize(
    ("exponent", "functions"),
    [(2.0, ["mul"]), ([2.0], ["mul"]), (3.0, ["mul", "mul"]), (0.5, ["sqrt"]), (1.7, ["pow"])],
)
def test_powers(tmp_path, exponent, functions):
    graph = graph_of(tmp_path, [node("Pow", ["x", "e"], ["y"])], IMAGE, [number("e", exponent)])
    assert graph.parameters() == ()
    assert [function for _, function, _, _ in summary(graph)] == functions


@pytest.mark.parametrize(
    ("operator", "function", "count"),
    [("Sum", "add", 2), ("Max", "max", 2), ("Min", "min", 2), ("Mean", "add", 3)],
)
def test_n_ary_operators_are_chains(tmp_path, operator, function, count):
    inputs = [tensor(name, 1, 4) for name in "abc"]
    graph = graph_of(tmp_path, [node(operator, ["a", "b", "c"], ["y"])], inputs)
    functions = [name for _, name, _, _ in summary(graph)]
    assert functions == [function] * 2 + ["scale"] * (count - 2)
    assert graph.operators[-1].outputs == ("y",)


def test_batch_norm_has_two_running_statistics(tmp_path):
    names = ["scale", "shift", "mean", "variance"]
    nodes = [node("BatchNormalization", ["x", *names], ["y"])]
    graph = graph_of(tmp_path, nodes, IMAGE, [weight(name, 6) for name in names])
    assert graph.operators[0].inputs == ("x", *names)
    assert dict(graph.operators[0].attributes) == {"function": "batch", "statistics": 2}


@pytest.mark.parametrize(
    ("operator", "attributes", "parameters", "function"),
    [
        ("LayerNormalization", {}, [10, 10], "layer"),
        ("RMSNormalization", {}, [10], "rms"),
        ("InstanceNormalization", {}, [6, 6], "instance"),
        ("GroupNormalization", {"num_groups": 2}, [6, 6], "group"),
        ("LRN", {"size": 5}, [], "lrn"),
    ],
)
def test_norms(tmp_path, operator, attributes, parameters, function):
    names = [f"p{i}" for i in range(len(parameters))]
    constants = [weight(name, size) for name, size in zip(names, parameters, strict=True)]
    nodes = [node(operator, ["x", *names], ["y"], **attributes)]
    graph = graph_of(tmp_path, nodes, IMAGE, constants, opset=23)
    assert summary(graph) == [(OpKind.NORM, function, ("x", *names), (4, 6, 10, 10))]
    assert graph.operators[0].attributes.get("size") == attributes.get("size")


def test_softmax_over_one_axis_and_until_opset_12_over_all_that_follow(tmp_path):
    new = graph_of(tmp_path, [node("Softmax", ["x"], ["y"], axis=1)], IMAGE)
    assert [(op.kind, op.attributes["axis"]) for op in new.operators] == [(OpKind.SOFTMAX, 1)]
    old = graph_of(tmp_path, [node("Softmax", ["x"], ["y"])], IMAGE, opset=11)
    assert summary(old)[1] == (OpKind.SOFTMAX, None, ("y.flat",), (4, 600))
    assert old.tensors["y"].shape == (4, 6, 10, 10)


def test_embedding_and_data_movement_by_gather(tmp_path):
    nodes = [node("Gather", ["x", "first"], ["y"], axis=1)]
    graph = graph_of(
        tmp_path, nodes, [tensor("x", 1, 7, 5)], [numpy_helper.from_array(np.asarray(0), "first")]
    )
    assert summary(graph) == [(OpKind.VIEW, None, ("x",), (4, 5))]


def test_split_is_one_view_and_concat_reads_all(tmp_path):
    nodes = [
        node("Split", ["x", "sizes"], ["a", "b", "unread"], axis=1),
        node("Concat", ["b", "a"], ["y"], axis=1),
    ]
    graph = graph_of(tmp_path, nodes, IMAGE, [integers("sizes", 1, 2, 3)])
    split, concat = graph.operators
    assert (split.kind, split.outputs) == (OpKind.VIEW, ("a", "b"))
    assert graph.tensors["b"].shape == (4, 2, 10, 10)
    assert (concat.inputs, graph.tensors["y"].shape) == (("b", "a"), (4, 3, 10, 10))


@pytest.mark.parametrize(
    ("operator", "function"), [("ReduceMean", "mean"), ("ReduceMax", "max"), ("ArgMax", "argmax")]
)
def test_reductions(tmp_path, operator, function):
    axes = {"axis": 3} if operator == "ArgMax" else {"axes": [3]}
    graph = graph_of(tmp_path, [node(operator, ["x"], ["y"], keepdims=0, **axes)], IMAGE)
    assert summary(graph) == [(OpKind.REDUCE, function, ("x",), (4, 6, 10))]


@pytest.mark.parametrize(("mode", "kernel"), [("nearest", None), ("linear", (2, 1)), ("cubic", (4, 1))])
def test_resizing_reads_neighbours_along_the_axes_it_changes(tmp_path, mode, kernel):
    nodes = [node("Resize", ["x", "", "scales"], ["y"], mode=mode)]
    graph = graph_of(tmp_path, nodes, IMAGE, [number("scales", [1, 1, 2, 1])])
    (resize,) = graph.operators
    assert (resize.inputs, graph.tensors["y"].shape) == (("x",), (4, 6, 20, 10))
    assert resize.kind is (OpKind.VIEW if kernel is None else OpKind.POOL)
    assert resize.attributes.get("kernel") == kernel


@pytest.mark.parametrize("groups", [1, 3])
def test_transposed_convolution_multiplies_every_input_pixel_with_every_filter(tmp_path, groups):
    nodes = [node("ConvTranspose", ["x", "w", "b"], ["y"], group=groups, strides=[2, 2])]
    graph = graph_of(tmp_path, nodes, IMAGE, [weight("w", 6, 4, 3, 3), weight("b", 4 * groups)])
    assert [op.kind for op in graph.operators] == [
        OpKind.VIEW,
        OpKind.MATMUL,
        OpKind.REDUCE,
        OpKind.ELEMENTWISE,
    ]
    product = graph.operators[1]
    left, right = (graph.tensors[name].shape for name in product.inputs)
    macs = math.prod(graph.tensors[product.outputs[0]].shape) * left[-1]
    assert left[-1] == right[-2]
    assert macs == 4 * (10 * 10) * 6 * 4 * (3 * 3)
    assert graph.tensors["y"].shape == (4, 4 * groups, 21, 21)
    assert sum(t.elements for t in graph.parameters()) == 6 * 4 * 9 + 4 * groups
    layer = GraphWorkload(load_onnx(tmp_path / "tiny.onnx"), Mode.PREFILL).chain(4, 1)
    assert layer.model_flops == 2 * macs


@pytest.mark.parametrize(
    ("operator", "steps"),
    [
        ("ReduceL1", ["abs", "sum"]),
        ("ReduceL2", ["mul", "sum", "sqrt"]),
        ("ReduceSumSquare", ["mul", "sum"]),
        ("ReduceLogSum", ["sum", "log"]),
        ("ReduceLogSumExp", ["exp", "sum", "log"]),
    ],
)
def test_composed_reductions(tmp_path, operator, steps):
    graph = graph_of(tmp_path, [node(operator, ["x"], ["y"], axes=[2])], IMAGE)
    assert [function for _, function, _, _ in summary(graph)] == steps
    assert graph.tensors["y"].shape == (4, 6, 1, 10)


def test_mish_is_three_element_wise_operators(tmp_path):
    graph = graph_of(tmp_path, [node("Mish", ["x"], ["y"])], IMAGE, opset=18)
    assert [function for _, function, _, _ in summary(graph)] == ["softplus", "tanh", "mul"]
    assert graph.operators[-1].inputs == ("x", "y.tanh")


def test_a_class_token_repeated_for_every_sample_is_a_parameter(tmp_path):
    nodes = [
        node("Shape", ["x"], ["s"], end=1),
        node("Concat", ["s", "rest"], ["target"], axis=0),
        node("Expand", ["token", "target"], ["tokens"]),
        node("Concat", ["tokens", "x"], ["all"], axis=1),
        node("Relu", ["all"], ["y"]),
    ]
    graph = graph_of(
        tmp_path, nodes, [tensor("x", "N", 9, 8)], [weight("token", 1, 1, 8), integers("rest", 1, 8)]
    )
    assert [(t.name, t.shape) for t in graph.parameters()] == [("token", (1, 1, 8))]
    assert graph.tensors["tokens"].shape == (4, 1, 8)
    assert graph.tensors["y"].shape == (4, 10, 8)
    chain = GraphWorkload(load_onnx(tmp_path / "tiny.onnx"), Mode.TRAINING).chain(4, 1)
    assert chain.parameters == 8


def test_a_mask_computed_from_the_sequence_length(tmp_path):
    """Shape -> Range -> comparison, as exporters build causal masks: no operator, no parameter."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["n"]),
        node("Range", ["zero", "n", "unit"], ["places"]),
        node("Unsqueeze", ["places", "axis"], ["column"]),
        node("Greater", ["places", "column"], ["mask"]),
        node("Where", ["mask", "low", "x"], ["y"]),
    ]
    scalars = [
        numpy_helper.from_array(np.asarray(v, np.int64), k)
        for k, v in {"one": 1, "zero": 0, "unit": 1}.items()
    ]
    inputs = [tensor("x", "batch", 6, 6)]
    graph = graph_of(tmp_path, nodes, inputs, [*scalars, integers("axis", 1), number("low", -1e9)])
    assert summary(graph) == [(OpKind.ELEMENTWISE, "where", ("x",), (4, 6, 6))]
    assert graph.parameters() == ()


@pytest.mark.parametrize("operator", sorted(ELEMENT_WISE))
def test_element_wise_functions_have_a_known_cost(tmp_path, operator):
    first, rest = (["m"], ["x", "x"]) if operator == "Where" else (["x"], [])
    rest = ["slope"] if operator == "PRelu" else rest
    inputs = [*IMAGE, tensor("m", 1, 1, 1, 1, kind=TensorProto.BOOL)] if operator == "Where" else IMAGE
    opset = 24 if operator == "Swish" else 17
    graph = graph_of(
        tmp_path, [node(operator, [*first, *rest], ["y"])], inputs, [weight("slope", 6, 1, 1)], opset=opset
    )
    ((kind, function, _, shape),) = summary(graph)
    assert (kind, shape) == (OpKind.ELEMENTWISE, (4, 6, 10, 10))
    assert function in FUNCTIONS


def test_every_converter_is_for_an_operator_that_onnx_defines():
    defined = {schema.name for schema in helper.defs.get_all_schemas() if schema.domain == ""}
    assert set(CONVERTERS) - defined == set(RESULT_SHAPES)
    assert not MOVES & set(ELEMENT_WISE)
