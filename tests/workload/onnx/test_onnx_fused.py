"""Attention, quantised operators, Einsum and what graph optimisers put in: kinds, shapes and work."""

import math

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper
from onnx_tiny import integers, node, number, save, tensor, weight

from phaze.errors import InputError
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.onnx import load_onnx
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.workload import Mode

HEADS, GROUPS, SIZE, ROWS = 6, 2, 4, 5
WIDTH = HEADS * SIZE


def graph_of(folder, nodes, inputs, constants=(), *, outputs=("y",), batch=3, **fields):
    path = folder / "tiny.onnx"
    save(folder, nodes, inputs, constants, outputs=outputs, **fields)
    return load_onnx(path).graph(batch)


def kinds(graph):
    return [op.kind for op in graph.operators if op.kind is not OpKind.VIEW]


def attention_of(graph):
    """Shapes of queries, keys and result of the only attention, and its attributes."""
    (op,) = [op for op in graph.operators if op.kind is OpKind.ATTENTION]
    shapes = [graph.tensors[name].shape for name in (*op.inputs, op.outputs[0])]
    return shapes, dict(op.attributes)


def microsoft(kind, inputs, outputs=("y",), **attributes):
    return node(kind, list(inputs), list(outputs), domain="com.microsoft", **attributes)


EXPECTED = {"heads": HEADS, "kv_heads": GROUPS, "head_size": SIZE, "causal": True}


def test_attention_of_heads(tmp_path):
    inputs = [tensor(name, 1, h, ROWS, SIZE) for name, h in zip("qkv", (HEADS, GROUPS, GROUPS), strict=True)]
    graph = graph_of(tmp_path, [node("Attention", ["q", "k", "v"], ["y"], is_causal=1)], inputs, opset=23)
    shapes, attributes = attention_of(graph)
    assert shapes == [(3, ROWS, WIDTH), *[(3, ROWS, GROUPS * SIZE)] * 2, (3, ROWS, WIDTH)]
    assert attributes == EXPECTED
    assert graph.tensors["y"].shape == (3, HEADS, ROWS, SIZE)


def test_attention_of_rows_with_earlier_tokens(tmp_path):
    inputs = [tensor("q", 1, 1, WIDTH), tensor("k", 1, 1, WIDTH), tensor("v", 1, 1, WIDTH)]
    inputs += [tensor(name, 1, HEADS, 9, SIZE) for name in ("pk", "pv")]
    made = node(
        "Attention",
        ["q", "k", "v", "", "pk", "pv"],
        ["y", "k2", "v2"],
        q_num_heads=HEADS,
        kv_num_heads=HEADS,
    )
    graph = graph_of(tmp_path, [made], inputs, opset=23, outputs=("y", "k2", "v2"))
    shapes, attributes = attention_of(graph)
    assert shapes == [(3, 1, WIDTH), *[(3, 10, WIDTH)] * 2, (3, 1, WIDTH)]
    assert attributes["causal"] is False
    assert [graph.tensors[name].shape for name in ("k2", "v2")] == [(3, HEADS, 10, SIZE)] * 2


def test_attention_with_values_of_another_width_is_its_products(tmp_path):
    sizes = {"q": (HEADS, SIZE), "k": (GROUPS, SIZE), "v": (GROUPS, 7)}
    inputs = [tensor(name, 1, heads, ROWS, size) for name, (heads, size) in sizes.items()]
    graph = graph_of(tmp_path, [node("Attention", ["q", "k", "v"], ["y"])], inputs, opset=23)
    assert kinds(graph) == [OpKind.MATMUL, OpKind.SOFTMAX, OpKind.MATMUL]
    assert graph.tensors["y"].shape == (3, HEADS, ROWS, 7)
    chain = GraphWorkload(load_onnx(tmp_path / "tiny.onnx"), Mode.PREFILL).chain(3, 1)
    assert chain.model_flops == 3 * 2 * HEADS * ROWS * ROWS * (SIZE + 7)


def test_grouped_attention_with_a_packed_operand_and_rotary_positions(tmp_path):
    packed = [tensor("x", 1, ROWS, (HEADS + 2 * GROUPS) * SIZE)]
    made = microsoft(
        "GroupQueryAttention",
        ["x", "", ""],
        ("y", "k2", "v2"),
        num_heads=HEADS,
        kv_num_heads=GROUPS,
        do_rotary=1,
    )
    graph = graph_of(tmp_path, [made], packed, outputs=("y", "k2"))
    assert kinds(graph) == [OpKind.ELEMENTWISE, OpKind.ELEMENTWISE, OpKind.ATTENTION]
    assert attention_of(graph)[1] == EXPECTED
    assert graph.tensors["y"].shape == (3, ROWS, WIDTH)
    assert graph.tensors["k2"].shape == (3, GROUPS, ROWS, SIZE)


def test_multi_head_attention_with_a_bias(tmp_path):
    inputs = [tensor(name, 1, ROWS, WIDTH) for name in "qkv"]
    made = microsoft("MultiHeadAttention", ["q", "k", "v", "b"], num_heads=HEADS)
    graph = graph_of(tmp_path, [made], inputs, [weight("b", 3 * WIDTH)])
    assert kinds(graph) == [OpKind.ELEMENTWISE] * 3 + [OpKind.ATTENTION]
    assert [t.name for t in graph.parameters()] == ["b"]
    packed = microsoft("MultiHeadAttention", ["q"], num_heads=HEADS)
    with pytest.raises(InputError, match="MultiHeadAttention node 'y' has impossible inputs: operand 1"):
        graph_of(tmp_path, [packed], inputs)


def test_attention_with_its_own_product(tmp_path):
    made = microsoft("Attention", ["x", "w", "b"], num_heads=HEADS)
    graph = graph_of(
        tmp_path,
        [made],
        [tensor("x", 1, ROWS, WIDTH)],
        [weight("w", WIDTH, 3 * WIDTH), weight("b", 3 * WIDTH)],
    )
    assert kinds(graph) == [OpKind.MATMUL, OpKind.ELEMENTWISE, OpKind.ATTENTION]
    chain = GraphWorkload(load_onnx(tmp_path / "tiny.onnx"), Mode.PREFILL).chain(3, 1)
    assert chain.model_flops == 3 * 2 * (ROWS * WIDTH * 3 * WIDTH + 2 * ROWS * ROWS * WIDTH)


def test_norms_with_a_residual_hand_out_the_sum(tmp_path):
    for kind, scales, function in (("Skip", ["g", "b"], "layer"), ("SkipSimplified", ["g"], "rms")):
        made = microsoft(f"{kind}LayerNormalization", ["x", "r", *scales, "c"], ("y", "", "", "total"))
        nodes = [made, node("Add", ["y", "total"], ["z"])]
        inputs = [tensor(name, 1, ROWS, WIDTH) for name in "xr"]
        constants = [weight(name, WIDTH) for name in (*scales, "c")]
        graph = graph_of(tmp_path, nodes, inputs, constants, outputs=("z",))
        assert kinds(graph) == [OpKind.ELEMENTWISE, OpKind.ELEMENTWISE, OpKind.NORM, OpKind.ELEMENTWISE]
        assert graph.operators[2].attributes["function"] == function
        assert graph.operators[2].inputs == ("total", *scales)


def test_embeddings_and_their_norm(tmp_path):
    ids = [tensor(name, 1, ROWS, kind=TensorProto.INT32) for name in ("ids", "segments")]
    tables = {"words": 50, "places": 9, "kinds": 2}
    constants = [weight(name, rows, WIDTH) for name, rows in tables.items()] + [
        weight(n, WIDTH) for n in "gb"
    ]
    made = microsoft("EmbedLayerNormalization", ["ids", "segments", *tables, "g", "b"])
    graph = graph_of(tmp_path, [made], ids, constants)
    assert kinds(graph) == [OpKind.EMBEDDING] * 3 + [OpKind.ELEMENTWISE] * 2 + [OpKind.NORM]
    assert sum(t.elements for t in graph.parameters()) == (50 + 9 + 2 + 2) * WIDTH


@pytest.mark.parametrize(
    ("kind", "biased", "functions"),
    [
        ("FastGelu", False, ["gelu_tanh"]),
        ("FastGelu", True, ["add", "gelu_tanh"]),
        ("BiasGelu", True, ["add", "gelu"]),
        ("QuickGelu", False, ["silu"]),
        ("Gelu", False, ["gelu"]),
    ],
)
def test_activations_with_a_bias(tmp_path, kind, biased, functions):
    made = microsoft(kind, ["x", "b"] if biased else ["x"])
    graph = graph_of(tmp_path, [made], [tensor("x", 1, ROWS, WIDTH)], [weight("b", WIDTH)])
    assert [op.attributes["function"] for op in graph.operators] == functions


def test_products_of_optimisers(tmp_path):
    made = microsoft("FusedMatMul", ["x", "w"], transB=1, alpha=0.5)
    graph = graph_of(tmp_path, [made], [tensor("x", 1, ROWS, WIDTH)], [weight("w", 7, WIDTH)])
    assert graph.tensors["y"].shape == (3, ROWS, 7)
    packed = numpy_helper.from_array(np.zeros((7, 1, 16), np.uint8), "w")
    made = microsoft("MatMulNBits", ["x", "w", "s"], K=WIDTH, N=7, bits=4, block_size=32)
    graph = graph_of(tmp_path, [made], [tensor("x", 1, ROWS, WIDTH)], [packed, weight("s", 7)])
    assert [(t.name, t.shape, t.element_bytes) for t in graph.parameters()] == [("w", (7, WIDTH), 1)]
    wrong = microsoft("FusedMatMul", ["x", "w"], name="f")
    with pytest.raises(
        InputError, match=r"FusedMatMul node 'f' has impossible inputs: \(1, 5, 24\) times \(7, 24\)"
    ):
        graph_of(tmp_path, [wrong], [tensor("x", 1, ROWS, WIDTH)], [weight("w", 7, WIDTH)])


def scales(*names):
    zero = numpy_helper.from_array(np.asarray(0, np.int8), "zero")
    return [*(number(name, 0.5) for name in names), zero]


def int8(name, *dims):
    return numpy_helper.from_array(np.zeros(dims, np.int8), name)


def test_a_stored_integer_weight_made_real_is_a_parameter_of_its_stored_size(tmp_path):
    nodes = [node("DequantizeLinear", ["w", "s", "zero"], ["d"]), node("MatMul", ["x", "d"], ["y"])]
    graph = graph_of(tmp_path, nodes, [tensor("x", 1, 8)], [int8("w", 8, 4), *scales("s")])
    assert [(t.name, t.shape, t.element_bytes) for t in graph.parameters()] == [("w", (8, 4), 1)]
    assert kinds(graph) == [OpKind.MATMUL]


def test_activations_in_8_bits(tmp_path):
    nodes = [
        node("QuantizeLinear", ["x", "s", "zero"], ["q"]),
        node("QLinearMatMul", ["q", "s", "zero", "w", "s", "zero", "s", "zero"], ["p"]),
        node("DequantizeLinear", ["p", "s", "zero"], ["y"]),
    ]
    graph = graph_of(tmp_path, nodes, [tensor("x", 1, 8)], [int8("w", 8, 4), *scales("s")])
    assert [graph.tensors[name].element_bytes for name in ("q", "p.product", "p", "y")] == [1, 4, 1, 2]
    assert kinds(graph) == [OpKind.ELEMENTWISE, OpKind.MATMUL, OpKind.ELEMENTWISE, OpKind.ELEMENTWISE]


def test_convolutions_in_integers(tmp_path):
    operands = ["x", "s", "zero", "w", "s", "zero", "s", "zero", "b"]
    image = [tensor("x", 1, 3, 9, 9, kind=TensorProto.INT8)]
    constants = [int8("w", 6, 3, 3, 3), *scales("s"), numpy_helper.from_array(np.zeros(6, np.int32), "b")]
    graph = graph_of(tmp_path, [node("QLinearConv", operands, ["y"])], image, constants)
    assert kinds(graph) == [OpKind.CONV, OpKind.ELEMENTWISE, OpKind.ELEMENTWISE]
    assert graph.tensors["y"].shape == (3, 6, 7, 7)
    assert {t.name: t.element_bytes for t in graph.parameters()} == {"w": 1, "b": 4}
    whole = graph_of(tmp_path, [node("ConvInteger", ["x", "w"], ["y"])], image, constants)
    assert kinds(whole) == [OpKind.CONV]


def test_quantisation_by_the_range_of_an_activation(tmp_path):
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "zero"]),
        node("MatMulInteger", ["q", "w", "zero"], ["p"]),
        node("Cast", ["p"], ["r"], to=TensorProto.FLOAT),
        node("Mul", ["r", "s"], ["y"]),
    ]
    graph = graph_of(tmp_path, nodes, [tensor("x", "N", 8)], [int8("w", 8, 4)])
    assert [op.kind for op in graph.operators[:2]] == [OpKind.REDUCE] * 2
    assert graph.tensors["s"].shape == ()
    assert [graph.tensors[name].element_bytes for name in ("q", "w", "p")] == [1, 1, 4]


@pytest.mark.parametrize(
    ("equation", "dims", "macs"),
    [
        ("bij,bjk->bik", ((1, 4, 5), (1, 5, 6)), 4 * 5 * 6),
        ("bhid,bhjd->bhij", ((1, 2, 4, 5), (1, 2, 7, 5)), 2 * 4 * 5 * 7),
        ("...ij,...jk", ((1, 4, 5), (1, 5, 6)), 4 * 5 * 6),
        ("bij,bkj,bkl->bil", ((1, 4, 5), (1, 6, 5), (1, 6, 7)), 4 * 5 * 6 + 4 * 6 * 7),
        ("bi,bj->bij", ((1, 4), (1, 5)), 0),
        ("bij,bij->bi", ((1, 4, 5), (1, 4, 5)), 4 * 5),
        ("bij->bji", ((1, 4, 5),), 0),
        ("bij->bi", ((1, 4, 5),), 0),
        ("bij,bi->bij", ((1, 4, 5), (1, 4)), 0),
        ("bijk,bil->bil", ((1, 4, 5, 6), (1, 4, 2)), 0),
    ],
)
def test_einsum(tmp_path, equation, dims, macs):
    names = [f"x{i}" for i in range(len(dims))]
    inputs = [tensor(name, *shape) for name, shape in zip(names, dims, strict=True)]
    graph = graph_of(tmp_path, [node("Einsum", names, ["y"], equation=equation)], inputs)
    sizes = np.einsum(equation, *(np.zeros((3, *shape[1:])) for shape in dims)).shape
    assert graph.tensors["y"].shape == sizes
    work = 0
    for op in graph.operators:
        if op.kind is OpKind.MATMUL:
            work += math.prod(graph.tensors[op.outputs[0]].shape) * graph.tensors[op.inputs[0]].shape[-1]
    assert work == 3 * macs


def test_einsum_with_a_weight_is_a_product_with_a_parameter(tmp_path):
    made = [node("Einsum", ["x", "w"], ["y"], equation="bsd,dhk->bshk")]
    graph = graph_of(tmp_path, made, [tensor("x", 1, 5, 8)], [weight("w", 8, 2, 4)])
    assert [t.name for t in graph.parameters()] == ["w"]
    assert kinds(graph) == [OpKind.MATMUL]
    with pytest.raises(InputError, match="Einsum node 'y' does not keep the batch"):
        graph_of(tmp_path, [node("Einsum", ["x"], ["y"], equation="bij->ij")], [tensor("x", 1, 4, 5)])


def test_the_largest_of_a_row(tmp_path):
    nodes = [node("TopK", ["x", "k"], ["values", "places"]), node("Relu", ["values"], ["y"])]
    graph = graph_of(tmp_path, nodes, [tensor("x", 1, 8)], [integers("k", 2)], outputs=("y", "places"))
    assert kinds(graph) == [OpKind.REDUCE, OpKind.ELEMENTWISE]
    assert graph.tensors["places"].shape == graph.tensors["y"].shape == (3, 2)


def test_further_results_come_with_the_first(tmp_path):
    pool = node("MaxPool", ["x"], ["y", "where"], kernel_shape=[2, 2])
    graph = graph_of(tmp_path, [pool], [tensor("x", 1, 3, 8, 8)], outputs=("y", "where"))
    assert [op.kind for op in graph.operators] == [OpKind.POOL, OpKind.VIEW]
    assert graph.tensors["where"].element_bytes == 8
