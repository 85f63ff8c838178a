"""Real models: parameters and multiply-accumulates against published figures and an independent count."""

import math
import pickle

import onnx
import pytest
from onnx_tiny import LIGHT, light

from phaze.workload.onnx import load_onnx
from phaze.workload.onnx.input_dimensions import input_sizes
from phaze.workload.onnx.onnx_graph import read_onnx
from phaze.workload.onnx.shape_inference import infer_extents
from phaze.workload.operators.operator_graph import OpKind

# Trained parameters as published: Caffe's bvlc_alexnet and bvlc_googlenet; torchvision's vgg19, resnet50 and
# squeezenet1_1; torchvision's densenet121 (7 978 856) plus a second scale and shift behind each of its
# batch norms of 41 824 channels in all (Caffe's BatchNorm + Scale).
PARAMETERS = {
    "bvlc_alexnet": 60_965_224,
    "densenet121": 7_978_856 + 2 * 41_824,
    "inception_v1": 6_998_552,
    "resnet50": 25_557_032,
    "squeezenet": 1_235_496,
    "vgg19": 143_667_240,
}
# Multiply-accumulates per image as published in torchvision's weight tables (vgg19, resnet50,
# squeezenet1_1, densenet121); the other files have no published twin at the same input size.
GIGA_MACS = {"vgg19": 19.63, "resnet50": 4.09, "squeezenet": 0.35, "densenet121": 2.83}

ALL = sorted(path.stem.removeprefix("light_") for path in LIGHT.glob("light_*.onnx"))


def statistics(graph):
    """Names of running statistics: parameters that are not trained."""
    return {
        name
        for op in graph.operators
        if op.attributes.get("statistics")
        for name in op.inputs[-op.attributes["statistics"] :]
    }


def model_parameters(graph):
    return sum(t.elements for t in graph.parameters() if t.name not in statistics(graph))


def macs(graph):
    """Multiply-accumulates of the operator graph, from shapes alone."""
    total = 0
    for op in graph.operators:
        shapes = [graph.tensors[name].shape for name in (*op.inputs, op.outputs[0])]
        if op.kind is OpKind.CONV:
            total += math.prod(shapes[-1]) * math.prod(shapes[1][1:])
        elif op.kind is OpKind.MATMUL:
            total += math.prod(shapes[-1]) * shapes[0][-2 if op.attributes.get("transpose_a") else -1]
    return total


def inferred(path):
    """Shapes of all tensors by onnx's inference over the whole file."""
    graph = onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True).graph
    values = (*graph.value_info, *graph.input, *graph.output)
    shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in values}
    return graph, shapes | {t.name: tuple(t.dims) for t in graph.initializer}


def macs_of_file(path):
    """Multiply-accumulates of the file itself at its own batch of 1."""
    graph, shapes = inferred(path)
    total = 0
    for node in graph.node:
        if node.op_type == "Conv":
            _, channels_per_group, *kernel = shapes[node.input[1]]
            total += math.prod(shapes[node.output[0]]) * channels_per_group * math.prod(kernel)
        elif node.op_type == "Gemm":
            rows, columns = shapes[node.output[0]]
            total += rows * columns * (math.prod(shapes[node.input[1]]) // columns)
    return total


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_trained_parameters_are_the_published_ones(name):
    assert model_parameters(load_onnx(light(name)).graph(1)) == PARAMETERS[name]


@pytest.mark.parametrize("name", sorted(GIGA_MACS))
def test_macs_are_the_published_ones(name):
    assert macs(load_onnx(light(name)).graph(1)) / 1e9 == pytest.approx(GIGA_MACS[name], abs=0.005)


@pytest.mark.parametrize("name", ALL)
def test_macs_equal_a_count_over_the_file_and_scale_with_the_batch(name):
    model = load_onnx(light(name))
    expected = macs_of_file(light(name))
    assert expected > 0
    assert macs(model.graph(1)) == expected
    assert macs(model.graph(8)) == 8 * expected


@pytest.mark.parametrize("name", ALL)
def test_parameters_are_all_constants_that_an_operator_reads_and_do_not_depend_on_the_batch(name):
    graph, shapes = inferred(light(name))
    constants = {t.name for t in graph.initializer}
    shape_data, weights = set(), set()
    for node in graph.node:
        if constants.issuperset(node.input):
            constants.update(node.output)
        else:
            operands = set(node.input) & constants
            (shape_data if node.op_type == "Reshape" else weights).update(operands)
    model = load_onnx(light(name))
    expected = sum(math.prod(shapes[name]) for name in weights)
    assert not shape_data & weights
    assert sum(t.elements for t in model.graph(1).parameters()) == expected
    assert sum(t.elements for t in model.graph(8).parameters()) == expected


@pytest.mark.parametrize("name", ALL)
def test_shapes_equal_those_of_whole_graph_inference(name):
    _, shapes = inferred(light(name))
    source = read_onnx(light(name))
    extents, _ = infer_extents(source, input_sizes(source, {}))
    assert {tensor: extent.at(1) for tensor, extent in extents.items()} == {
        tensor: shape for tensor, shape in shapes.items() if tensor in extents
    }


@pytest.mark.parametrize("name", ALL)
def test_operators_match_the_nodes_of_the_file(name):
    graph = load_onnx(light(name)).graph(2)
    nodes = onnx.load(light(name)).graph.node
    count = {kind: sum(op.kind is kind for op in graph.operators) for kind in OpKind}
    of = {kind: sum(node.op_type in kind for node in nodes) for kind in (("Conv",), ("Gemm",), ("Softmax",))}
    assert count[OpKind.CONV] == of["Conv",]
    assert count[OpKind.MATMUL] == of["Gemm",]
    assert count[OpKind.SOFTMAX] == of["Softmax",]
    assert count[OpKind.POOL] == sum(node.op_type.endswith("Pool") for node in nodes)
    assert count[OpKind.NORM] == sum(node.op_type in {"LRN", "BatchNormalization"} for node in nodes)
    assert [graph.tensors[t].shape for t in graph.outputs] == [(2, 1000)]
    assert [graph.tensors[t].shape for t in graph.inputs] == [(2, 3, 224, 224)]


@pytest.mark.parametrize("name", ALL)
def test_every_activation_grows_with_the_batch(name):
    model = load_onnx(light(name))
    one, five = model.graph(1), model.graph(5)
    assert [op.name for op in one.operators] == [op.name for op in five.operators]
    for op in one.operators:
        (out,) = op.outputs
        assert five.tensors[out].shape[0] == 5
        assert five.tensors[out].elements == 5 * one.tensors[out].elements


def test_same_graph_from_another_import_and_from_a_pickle():
    model = load_onnx(light("inception_v1"))
    again = load_onnx(light("inception_v1")).graph(4)
    assert model.graph(4) is model.graph(4)
    assert model.graph(4).operators == again.operators
    assert dict(model.graph(4).tensors) == dict(again.tensors)
    assert pickle.loads(pickle.dumps(model.source.nodes)) == model.source.nodes


def test_named_after_the_file_and_without_heads():
    model = load_onnx(str(light("squeezenet")))
    assert (model.name, model.heads) == ("light_squeezenet", None)
