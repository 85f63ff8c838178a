"""ONNX networks as workloads: chains of layers in training and prefill."""

from itertools import pairwise

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper
from onnx_tiny import integers, light, node, save, tensor, weight
from test_onnx_models import inferred, macs_of_file, model_parameters

from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.onnx import load_onnx
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.workload import Mode

NETWORKS = ["bvlc_alexnet", "inception_v1", "resnet50", "squeezenet", "vgg19", "zfnet512"]


def chain_of(path, mode, microbatch):
    return GraphWorkload(load_onnx(path), mode).chain(microbatch, 1)


def products(layer):
    """Number of matrix products in a layer's forward pass."""
    return sum(len(work.gemms) for work in layer.forward.works)


def first_convolution_macs(path):
    """Multiply-accumulates per image of the convolution that reads the image."""
    graph, shapes = inferred(path)
    constants = {t.name for t in graph.initializer}
    (image,) = [i.name for i in graph.input if i.name not in constants]
    (first,) = [n for n in graph.node if image in n.input]
    return int(np.prod(shapes[first.output[0]]) * np.prod(shapes[first.input[1]][1:]))


@pytest.mark.parametrize("name", NETWORKS)
def test_model_flops_are_those_of_the_file(name):
    """Backward costs twice the forward, but nobody wants the gradient of the image."""
    macs = macs_of_file(light(name))
    prefill, training = (chain_of(light(name), mode, 4) for mode in (Mode.PREFILL, Mode.TRAINING))
    assert prefill.model_flops == 4 * 2 * macs
    assert training.model_flops == 4 * 2 * (3 * macs - first_convolution_macs(light(name)))
    assert all(layer.backward is None for layer in prefill.layers)
    assert all(layer.backward is not None for layer in training.layers)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("name", NETWORKS)
def test_layers_pass_one_tensor_on(name, mode):
    chain = chain_of(light(name), mode, 2)
    layers = [chain.layers[i] for i in chain.index]
    assert len(chain.names) == len(set(chain.names)) == len(layers)
    for before, after in pairwise(layers):
        assert before.output_bytes == after.input_bytes > 0
    assert chain.parameters == model_parameters(load_onnx(light(name)).graph(2))


@pytest.mark.parametrize(
    ("name", "per_module", "modules"), [("resnet50", {3, 4}, 16), ("inception_v1", {6}, 9)]
)
def test_blocks_and_modules_become_layers(name, per_module, modules):
    """ResNet-50 has 16 residual blocks of 3 convolutions (4 where it projects), Inception 9 modules of 6."""
    chain = chain_of(light(name), Mode.TRAINING, 2)
    counts = [products(chain.layers[i]) for i in chain.index]
    assert sum(count in per_module for count in counts) == modules
    assert max(counts) == max(per_module)


def test_vgg_is_cut_at_every_product():
    chain = chain_of(light("vgg19"), Mode.TRAINING, 2)
    counts = [products(chain.layers[i]) for i in chain.index]
    assert max(counts) == 1
    assert sum(counts) == 19
    assert len(chain.layers) < len(chain.index)  # equal convolutions are one layer


def encoder(folder, hidden=16, heads=2, blocks=3):
    """A transformer encoder as exporters write it: reshapes by constants, decomposed attention."""
    nodes = [node("Gather", ["table", "ids"], ["h0"])]
    constants = [
        weight("table", 40, hidden),
        integers("split", 1, 12, heads, hidden // heads),
        integers("merge", 1, 12, hidden),
        numpy_helper.from_array(np.asarray((hidden // heads) ** 0.5, np.float32), "root"),
    ]
    for i in range(blocks):
        for part in "qkv":
            nodes += [
                node("MatMul", [f"h{i}", f"w{part}{i}"], [f"{part}m{i}"]),
                node("Reshape", [f"{part}m{i}", "split"], [f"{part}r{i}"]),
                node(
                    "Transpose",
                    [f"{part}r{i}"],
                    [f"{part}{i}"],
                    perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3],
                ),
            ]
            constants.append(weight(f"w{part}{i}", hidden, hidden))
        nodes += [
            node("MatMul", [f"q{i}", f"k{i}"], [f"s{i}"]),
            node("Div", [f"s{i}", "root"], [f"d{i}"]),
            node("Softmax", [f"d{i}"], [f"p{i}"], axis=-1),
            node("MatMul", [f"p{i}", f"v{i}"], [f"o{i}"]),
            node("Transpose", [f"o{i}"], [f"t{i}"], perm=[0, 2, 1, 3]),
            node("Reshape", [f"t{i}", "merge"], [f"a{i}"]),
            node("Add", [f"a{i}", f"h{i}"], [f"r{i}"]),
            node("LayerNormalization", [f"r{i}", f"g{i}", f"b{i}"], [f"h{i + 1}"]),
        ]
        constants += [weight(f"g{i}", hidden), weight(f"b{i}", hidden)]
    ids = tensor("ids", 1, 12, kind=TensorProto.INT64)
    return save(folder, nodes, [ids], constants, outputs=(f"h{blocks}",))


def test_a_transformer_with_its_batch_in_the_reshapes(tmp_path):
    path = encoder(tmp_path)
    graph = load_onnx(path).graph(5)
    assert sum(op.kind is OpKind.ATTENTION for op in graph.operators) == 3
    assert {graph.tensors[op.outputs[0]].shape[0] for op in graph.operators} == {5}
    assert not {op.kind for op in graph.operators} - {
        *(OpKind.EMBEDDING, OpKind.MATMUL, OpKind.VIEW, OpKind.ELEMENTWISE, OpKind.ATTENTION, OpKind.NORM)
    }
    per_sample = 3 * (3 * 12 * 16 * 16 + 2 * 2 * 12 * 12 * 8)
    assert chain_of(path, Mode.PREFILL, 5).model_flops == 5 * 2 * per_sample
    assert chain_of(path, Mode.TRAINING, 5).model_flops == 5 * 2 * 3 * per_sample
    assert chain_of(path, Mode.TRAINING, 5).parameters == 40 * 16 + 3 * (3 * 16 * 16 + 2 * 16)
