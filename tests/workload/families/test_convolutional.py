"""Convolutional networks from block lists: published figures, the same network from ONNX, and bad files."""

import math
from collections import Counter

import pytest
import yaml
from onnx_tiny import light

from phaze.errors import InputError
from phaze.workload.families.feature_maps import Window
from phaze.workload.families.model_family import Extent
from phaze.workload.onnx import load_onnx
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_file import parse_spec
from phaze.workload.workload_library import builtin_spec
from phaze.workload.workload_loader import load_workload

# Parameters and multiply-accumulates per image (10^9) of torchvision's weight tables; inception_v3 as it
# counts without the auxiliary classifier.
PUBLISHED = {
    "resnet18": (11_689_512, 1.81),
    "resnet34": (21_797_672, 3.66),
    "resnet50": (25_557_032, 4.09),
    "resnet101": (44_549_160, 7.80),
    "resnet152": (60_192_808, 11.51),
    "resnext101-32x8d": (88_791_336, 16.41),
    "resnext101-64x4d": (83_455_272, 15.46),
    "vgg16": (138_357_544, 15.47),
    "vgg19": (143_667_240, 19.63),
    "inception-v3": (23_834_568, 5.71),
    "mobilenet-v2": (3_504_872, 0.30),
    "mobilenet-v3-large": (5_483_032, 0.22),
    "squeezenet": (1_235_496, 0.35),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_macs_are_the_published_ones(name):
    parameters, giga_macs = PUBLISHED[name]
    workload = load_workload(name, Mode.PREFILL)
    assert workload.parameter_count == parameters
    assert workload.chain(1, 1).model_flops / 2e9 == pytest.approx(giga_macs, abs=0.005)


def forward(name, batch=1):
    return builtin_spec(name).dimensions.graph(name, Extent(batch), Attention.FLASH)


def kinds(graph):
    return Counter((op.kind, op.attributes.get("function")) for op in graph.operators)


def windows(graph):
    """Shapes in and out of every convolution, with its strides and pads."""
    return Counter(
        (
            graph.tensors[op.inputs[0]].shape,
            graph.tensors[op.inputs[1]].shape,
            graph.tensors[op.outputs[0]].shape,
            op.attributes["strides"],
            op.attributes["pads"],
        )
        for op in graph.operators
        if op.kind is OpKind.CONV
    )


@pytest.mark.parametrize("name", ["resnet50", "vgg19", "squeezenet"])
def test_the_family_makes_what_the_onnx_file_says(name):
    """Operators by kind, every convolution's shapes, parameter bytes; the file ends in a softmax."""
    ours, theirs = forward(name), load_onnx(light(name)).graph(1)
    assert windows(ours) == windows(theirs)
    functions = kinds(theirs) - Counter({(OpKind.SOFTMAX, None): 1})
    views = {key for key in (*functions, *kinds(ours)) if key[0] is OpKind.VIEW}
    for key in functions.keys() | kinds(ours).keys():
        assert key in views or kinds(ours)[key] == functions[key], key
    assert sum(t.size_bytes for t in ours.parameters()) == sum(t.size_bytes for t in theirs.parameters())


@pytest.mark.parametrize("name", ["resnet50", "vgg19", "squeezenet"])
def test_training_flops_equal_those_of_the_onnx_file(name):
    theirs = load_workload(str(light(name))).chain(2, 1)
    assert load_workload(name).chain(2, 1).model_flops == theirs.model_flops


@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.PREFILL])
@pytest.mark.parametrize("name", ["mobilenet-v3-large", "inception-v3"])
def test_flops_grow_with_the_batch_and_parameters_do_not(name, mode):
    workload = load_workload(name, mode)
    one, three = workload.chain(1, 1), workload.chain(3, 1)
    assert three.model_flops == 3 * one.model_flops
    assert three.parameters == one.parameters == workload.parameter_count


def test_repeated_blocks_are_one_layer_many_times():
    chain = load_workload("resnet152").chain(2, 1)
    counts = Counter(chain.index)
    assert sorted(counts.values())[-2:] == [7, 35]  # 8 and 36 blocks, the first of each with its stride
    assert {chain.layers[i].kind for i, times in counts.items() if times > 1} == {"bottleneck"}


@pytest.mark.parametrize("size", range(1, 12))
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(1, 1, 0), (3, 2, 1), (2, 2, 0), (5, 3, 2)])
def test_a_window_goes_over_a_map_as_often_as_it_fits(size, kernel, stride, padding):
    window = Window((kernel, kernel), (stride, stride), (padding, padding))
    starts = [s for s in range(0, size + 2 * padding, stride) if s + kernel <= size + 2 * padding]
    if starts:
        assert window.over("conv", (size, size)) == (len(starts), len(starts))
    else:
        with pytest.raises(ValueError, match="does not fit"):
            window.over("conv", (size, size))


def network(*blocks, **dimensions):
    return yaml.safe_dump(
        {
            "schema_version": 1,
            "name": "mine",
            "family": "convolutional",
            "source": {"all": "a test"},
            "dimensions": {"image": 8, "blocks": list(blocks), **dimensions},
        }
    )


CONV = {"block": "conv", "channels": 4}


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([CONV | {"kernel": 11, "padding": 0}], r"conv1: a window of 11 x 11 does not fit a map of 8 x 8"),
        ([CONV, CONV | {"groups": 3}], r"conv2: 3 groups do not divide 4 channels in and 4 out"),
        ([{"block": "linear", "features": 3}, CONV], r"conv1: needs maps, but a linear block came before"),
        (
            [{"block": "branches", "branches": [[CONV], [CONV | {"stride": 2}]]}],
            r"branches1.join: branches end in maps of different sizes",
        ),
        ([CONV | {"chanels": 3}], r"dimensions.blocks.0.conv.chanels: no such field"),
        ([CONV | {"kernel": 0}], r"dimensions.blocks.0.conv.kernel"),
        ([{"block": "convolution"}], r"dimensions.blocks.0"),
        ([], r"dimensions.blocks"),
        ([CONV | {"kernel": True}], r"dimensions.blocks.0.conv.kernel"),
        ([CONV | {"kernel": [3, 3, 3]}], r"dimensions.blocks.0.conv.kernel"),
    ],
)
def test_a_network_that_does_not_fit_together_is_refused(blocks, message):
    with pytest.raises(InputError, match=message):
        parse_spec(network(*blocks), "mine.yaml")


def test_branches_within_branches_join_along_the_channels():
    inner = {"block": "branches", "branches": [[CONV], [], [CONV]]}
    text = network({"block": "branches", "branches": [[inner], [CONV]]}, channels=5)
    graph = parse_spec(text, "mine.yaml").dimensions.graph("mine", Extent(2), Attention.FLASH)
    assert graph.tensors[graph.outputs[0]].shape == (2, 4 + 5 + 4 + 4, 8, 8)
    names = [op.name for op in graph.operators]
    assert len(set(names)) == len(names)


def test_a_depthwise_convolution_multiplies_each_channel_by_itself():
    graph = forward("mobilenet-v3-large")
    depthwise = next(op for op in graph.operators if op.name == "inverted1.depthwise")
    assert graph.tensors[depthwise.inputs[1]].shape == (16, 1, 3, 3)
    assert math.prod(graph.tensors[depthwise.outputs[0]].shape) == 16 * 112 * 112
