"""Each rule of aten operators: kinds, attributes, operands and shapes of programs described by hand."""

import pytest
from exported_tiny import B, Recorder, summary

from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.operators.elementwise_cycles import FUNCTIONS
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.torch_export.aten_operators import RULES
from phaze.workload.torch_export.exported_program import Node, Ref
from phaze.workload.training.backward_pass import model_parameters
from phaze.workload.workload import Mode

MATMUL, ADD, VIEW = OpKind.MATMUL, OpKind.ELEMENTWISE, OpKind.VIEW


@pytest.fixture
def r():
    return Recorder()


def one(r, target, result, *, shape=(B, 6, 8), **arguments):
    """Operators of one call on an activation `x`."""
    x = r.input("x", *shape)
    first = next(iter(arguments), None)
    given = {"self": x, **arguments} if first not in {"input", "query", "weight"} else arguments
    return r.graph(r.call(target, result, **given))


def test_linear_is_a_product_with_the_stored_weight_and_an_addition(r):
    x, w, b = r.input("x", B, 6, 8), r.weight("up.weight", 5, 8), r.weight("up.bias", 5)
    graph = r.graph(r.call("linear", (B, 6, 5), input=x, weight=w, bias=b, module="up"))
    assert summary(graph) == [
        (MATMUL, None, ("x", "up.weight"), (4, 6, 5)),
        (ADD, "add", ("up", "up.bias"), (4, 6, 5)),
    ]
    assert [op.name for op in graph.operators] == ["up", "up.add_bias"]
    assert graph.operators[0].attributes["transpose_b"] is True


@pytest.mark.parametrize(
    ("target", "arguments"),
    [
        ("mm", ("self", "mat2", "")),
        ("matmul", ("self", "other", "")),
        ("addmm", ("mat1", "mat2", "self")),
    ],
)
def test_a_transposed_weight_stays_one_parameter(r, target, arguments):
    x, w = r.input("x", B, 8), r.weight("w", 5, 8)
    turned = r.call("aten.t.default", (8, 5), self=w)
    given = {arguments[0]: x, arguments[1]: turned}
    given |= {arguments[2]: r.weight("b", 5)} if arguments[2] else {}
    graph = r.graph(r.call(target, (B, 5), **given))
    assert summary(graph)[0] == (MATMUL, None, ("x", "w"), (4, 5))
    assert graph.operators[0].attributes["transpose_b"] is True
    assert [op.kind for op in graph.operators[1:]] == ([ADD] if arguments[2] else [])


def test_vectors_become_matrices(r):
    x, v = r.input("x", B, 6, 8), r.weight("v", 8)
    graph = r.graph(r.call("matmul", (B, 6), self=x, other=v))
    assert summary(graph) == [
        (VIEW, None, ("v",), (8, 1)),
        (MATMUL, None, ("x", "matmul.column"), (4, 6, 1)),
        (VIEW, None, ("matmul",), (4, 6)),
    ]


@pytest.mark.parametrize(
    ("equation", "shapes", "result", "kinds", "macs"),
    [
        ("bsh,th->bst", [(B, 6, 8), (5, 8)], (B, 6, 5), [VIEW, MATMUL, VIEW], 6 * 8 * 5),
        (
            "bhqd,bhkd->bhqk",
            [(B, 2, 6, 8), (B, 2, 5, 8)],
            (B, 2, 6, 5),
            [VIEW, VIEW, MATMUL, VIEW],
            2 * 6 * 8 * 5,
        ),
        ("bs,bs->bs", [(B, 6), (B, 6)], (B, 6), [ADD], 0),
        ("bsh->bhs", [(B, 6, 8)], (B, 8, 6), [VIEW], 0),
        ("bsh->bs", [(B, 6, 8)], (B, 6), [OpKind.REDUCE], 0),
    ],
)
def test_contractions(r, equation, shapes, result, kinds, macs):
    tensors = [
        r.input(f"x{i}", *shape) if shape[0] == B else r.weight("w", *shape) for i, shape in enumerate(shapes)
    ]
    graph = r.graph(r.call("einsum", result, equation=equation, tensors=tuple(tensors)))
    assert [op.kind for op in graph.operators] == kinds
    for op in graph.operators:
        if op.kind is MATMUL:
            rows = graph.tensors[op.outputs[0]].elements
            assert rows * graph.tensors[op.inputs[0]].shape[-1] == 4 * macs


@pytest.mark.parametrize(
    ("padding", "pads"), [((1, 2), (1, 2, 1, 2)), ("same", (1, 1, 1, 1)), ("valid", (0,) * 4)]
)
def test_convolution(r, padding, pads):
    x, w, b = r.input("x", B, 6, 9, 9), r.weight("w", 8, 3, 3, 3), r.weight("b", 8)
    made = r.call("conv2d", (B, 8, 9, 9), input=x, weight=w, bias=b, stride=(1,), padding=padding, groups=2)
    product, column, bias = r.graph(made).operators
    assert dict(product.attributes) == {
        "groups": 2,
        "kernel": (3, 3),
        "strides": (1, 1),
        "dilations": (1, 1),
        "pads": pads,
    }
    assert (column.inputs, bias.inputs) == (("b",), (product.outputs[0], column.outputs[0]))


def test_transposed_convolution_multiplies_every_pixel_with_every_filter(r):
    x, w = r.input("x", B, 6, 5, 5), r.weight("w", 6, 4, 3, 3)
    made = r.call("convolution", (B, 8, 11, 11), input=x, weight=w, transposed=True, groups=2, stride=(2, 2))
    graph = r.graph(made)
    product = next(op for op in graph.operators if op.kind is MATMUL)
    assert graph.tensors[product.outputs[0]].shape == (4, 2, 25, 36)
    assert [op.kind for op in graph.operators] == [VIEW, VIEW, MATMUL, OpKind.REDUCE]


def test_pools(r):
    x = r.input("x", B, 6, 8, 8)
    local = r.call("max_pool2d", (B, 6, 4, 4), self=x, kernel_size=(2, 2))
    whole = r.call("adaptive_avg_pool2d", (B, 6, 1, 1), self=local, output_size=(1, 1))
    first, second = r.graph(whole).operators
    assert dict(first.attributes) == {
        "function": "max",
        "kernel": (2, 2),
        "strides": (2, 2),
        "pads": (0, 0, 0, 0),
    }
    assert (second.attributes["function"], second.attributes["kernel"]) == ("average", (4, 4))


@pytest.mark.parametrize("target", [n for n in RULES if n.endswith("attention") or "attention_for" in n])
def test_attention_of_any_kernel_is_one_operator_around_views(r, target):
    shape = (B, 4, 6, 16)
    q, k, v = r.input("q", *shape), r.input("k", B, 2, 6, 16), r.input("v", B, 2, 6, 16)
    graph = r.graph(r.call(target, shape, query=q, key=k, value=v, dropout_p=0.1, is_causal=True))
    attention = next(op for op in graph.operators if op.kind is OpKind.ATTENTION)
    assert [graph.tensors[t].shape for t in attention.inputs] == [(4, 6, 64), (4, 6, 32), (4, 6, 32)]
    assert dict(attention.attributes) == {
        "heads": 4,
        "kv_heads": 2,
        "head_size": 16,
        "causal": True,
        "dropout": True,
    }
    assert graph.tensors[graph.outputs[0]].shape == (4, 4, 6, 16)


def test_a_padding_mask_is_read_by_the_kernel_and_a_trained_bias_needs_the_scores(r):
    q, mask, bias = r.input("q", B, 4, 6, 16), r.input("mask", B, 1, 6, 6), r.weight("bias", 1, 4, 6, 6)
    masked = r.call("scaled_dot_product_attention", (B, 4, 6, 16), query=q, key=q, value=q, attn_mask=mask)
    biased = r.call(
        "scaled_dot_product_attention", (B, 4, 6, 16), query=masked, key=q, value=q, attn_mask=bias
    )
    kinds = [op.kind for op in r.graph(biased).operators if op.kind is not VIEW]
    assert kinds == [OpKind.ATTENTION, MATMUL, ADD, ADD, OpKind.SOFTMAX, MATMUL]


@pytest.mark.parametrize(
    ("target", "function", "parameters"),
    [
        ("layer_norm", "layer", 2),
        ("native_layer_norm", "layer", 2),
        ("rms_norm", "rms", 1),
        ("_fused_rms_norm", "rms", 1),
        ("group_norm", "group", 2),
        ("instance_norm", "instance", 2),
    ],
)
def test_norms(r, target, function, parameters):
    x = r.input("x", B, 6, 8)
    given = {name: r.weight(name, 8) for name in ("weight", "bias")[:parameters]}
    graph = r.graph(r.call(target, (B, 6, 8), input=x, **given))
    assert summary(graph) == [(OpKind.NORM, function, ("x", *given), (4, 6, 8))]


@pytest.mark.parametrize(
    "target", ["batch_norm", "_native_batch_norm_legit_no_training", "native_batch_norm"]
)
def test_batch_norm_has_two_running_statistics(r, target):
    names = ["weight", "bias", "running_mean", "running_var"]
    x = r.input("x", B, 6, 8)
    given = {name: (r.weight if i < 2 else r.buffer)(name, 6) for i, name in enumerate(names)}
    graph = r.graph(r.call(target, (B, 6, 8), input=x, **given))
    assert graph.operators[0].inputs == ("x", *names)
    assert dict(graph.operators[0].attributes) == {"function": "batch", "statistics": 2}
    assert sum(t.elements for t in model_parameters(graph)) == 12


@pytest.mark.parametrize(
    ("target", "arguments", "functions"),
    [
        ("gelu", {}, ["gelu"]),
        ("gelu", {"approximate": "tanh"}, ["gelu_tanh"]),
        ("relu_", {}, ["relu"]),
        ("silu", {}, ["silu"]),
        ("mish", {}, ["softplus", "tanh", "mul"]),
        ("hardtanh", {}, ["clip"]),
        ("clamp", {"min": 0.0}, ["clip"]),
        ("rsqrt", {}, ["sqrt"]),
        ("cumsum", {"dim": 1}, ["scale"]),
        ("dropout", {"p": 0.1, "train": False}, ["dropout"]),
        ("native_dropout", {"p": 0.1, "train": True}, ["dropout"]),
        ("pow", {"exponent": 2}, ["mul"]),
        ("pow", {"exponent": 3.0}, ["mul", "mul"]),
        ("pow", {"exponent": 1.7}, ["pow"]),
        ("add", {"other": 1.0}, ["scale"]),
        ("div", {"other": 2.0}, ["scale"]),
        ("masked_fill", {"mask": Ref("b_mask"), "value": -1e9}, ["where"]),
    ],
)
def test_functions_of_one_tensor(r, target, arguments, functions):
    r.buffer("mask", 6, 8, dtype="bool")
    graph = one(r, target, (B, 6, 8), **arguments)
    assert [function for _, function, _, _ in summary(graph)] == functions


def test_numbers_masks_and_tables_are_no_operands(r):
    x, table = r.input("x", B, 6, 8), r.buffer("sines", 6, 8)
    scaled = r.call("mul", (B, 6, 8), self=x, other=table)
    masked = r.call(
        "where", (B, 6, 8), condition=r.buffer("mask", 6, 8, dtype="bool"), self=scaled, other=table
    )
    graph = r.graph(r.call("add", (B, 6, 8), self=masked, other=scaled))
    assert graph.parameters() == ()
    assert [(function, len(inputs)) for _, function, inputs, _ in summary(graph)] == [
        ("scale", 1),
        ("where", 1),
        ("add", 2),
    ]


def test_a_dropout_that_drops_nothing_and_casts_vanish(r):
    x = r.input("x", B, 6)
    kept = r.call("dropout", (B, 6), input=x, p=0.0, train=True)
    cast = r.call("aten.to.dtype", (B, 6), dtype="bfloat16", self=kept)
    graph = r.graph(r.call("relu", (B, 6), self=r.call("clone", (B, 6), self=cast)))
    assert summary(graph) == [(ADD, "relu", ("x",), (4, 6))]


def test_tables(r):
    ids, table = r.input("ids", B, 6, dtype="int64"), r.weight("table", 50, 8)
    places = r.buffer("positions", 1, 6, dtype="int64")
    word = r.call("embedding", (B, 6, 8), weight=table, indices=ids)
    place = r.call("embedding", (1, 6, 8), weight=r.weight("places", 9, 8), indices=places)
    picked = r.call("index", (B, 6, 8), self=table, indices=(ids,))
    total = r.call("add", (B, 6, 8), self=r.call("add", (B, 6, 8), self=word, other=place), other=picked)
    kinds = [op.kind for op in r.graph(total).operators]
    assert kinds == [OpKind.EMBEDDING, VIEW, OpKind.EMBEDDING, ADD, ADD]


def test_embedding_bags_are_gathered_and_summed(r):
    ids, offsets = r.input("ids", (B, 3), dtype="int64"), r.buffer("offsets", 4, dtype="int64")
    table = r.weight("table", 50, 8)
    made = r.call("embedding_bag", (B, 8), weight=table, indices=ids, offsets=offsets)
    assert summary(r.graph(made)) == [
        (OpKind.EMBEDDING, None, ("ids", "table"), (12, 8)),
        (OpKind.REDUCE, "sum", ("embedding_bag.rows",), (4, 8)),
    ]


def test_splits_and_joins(r):
    x, token = r.input("x", B, 6, 8), r.weight("token", 1, 1, 8)
    a, b, _ = r.call("aten.split.Tensor", (B, 2, 8), (B, 2, 8), (B, 2, 8), self=x, split_size=2, dim=1)
    wide = r.call("expand", (B, 1, 8), self=token, size=(2, 1, 8))
    graph = r.graph(r.call("cat", (B, 5, 8), tensors=(wide, b, a), dim=1))
    assert [op.kind for op in graph.operators] == [VIEW] * 3
    assert graph.operators[-1].inputs == ("expand", "split.1", "split.0")
    assert [t.name for t in graph.parameters()] == ["token"]


@pytest.mark.parametrize(
    ("target", "functions"),
    [
        ("sum", ["sum"]),
        ("amax", ["max"]),
        ("argmax", ["argmax"]),
        ("linalg_vector_norm", ["mul", "sum", "sqrt"]),
        ("logsumexp", ["exp", "sum", "log"]),
        ("var", ["mean", "sub", "mul", "mean"]),
        ("std", ["mean", "sub", "mul", "mean", "sqrt"]),
    ],
)
def test_reductions(r, target, functions):
    graph = one(r, target, (B, 6), dim=(-1,))
    assert [function for kind, function, _, _ in summary(graph) if kind is not VIEW] == functions
    assert graph.tensors[graph.outputs[0]].shape == (4, 6)


def test_largest_elements_and_their_places(r):
    x = r.input("x", B, 6, 8)
    values, places = r.call("topk", (B, 6, 2), (B, 6, 2), self=x, k=2)
    graph = r.graph(values, places)
    assert [function for _, function, _, _ in summary(graph)] == ["max", "argmax"]


def test_a_loss_stands_for_its_logits(r):
    x, labels = r.input("x", B, 8), r.input("labels", B, dtype="int64")
    logits = r.call("linear", (B, 5), input=x, weight=r.weight("w", 5, 8))
    model = r.model(r.call("cross_entropy_loss", (), self=logits, target=labels))
    operators = GraphWorkload(model, Mode.TRAINING).operator_graph(4).operators
    assert [op.kind for op in operators] == [MATMUL, OpKind.LOSS]


def test_a_gated_unit_is_cut_into_its_halves(r):
    graph = one(r, "glu", (B, 6, 4))
    assert [op.kind for op in graph.operators] == [VIEW, ADD, ADD]
    assert [function for _, function, _, _ in summary(graph)][1:] == ["sigmoid", "mul"]


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_operator_of_the_table_is_called_by_its_bare_name(name):
    assert Node("n", f"aten.{name}.default", {}, ("t",)).operator == name


def test_every_function_has_a_cost(r):
    for name in ("relu", "hardsigmoid", "sign", "tril", "log_sigmoid", "leaky_relu", "square", "softsign"):
        fresh = Recorder()
        graph = one(fresh, name, (B, 6, 8))
        assert all(op.attributes["function"] in FUNCTIONS for op in graph.operators)


@pytest.mark.parametrize("slopes", [1, 6])
def test_slopes_are_trained(r, slopes):
    x, w = r.input("x", B, 6, 9), r.weight("slope", slopes)
    graph = r.graph(r.call("prelu", (B, 6, 9), self=x, weight=w))
    assert [op.attributes.get("function") for op in graph.operators] == [None, "prelu"]
    assert graph.tensors[graph.operators[1].inputs[1]].shape == (slopes, 1)
    assert {t.name for t in model_parameters(graph)} == {"slope"}
