"""Rules, fusion and sharding of single operators, worked out by hand."""

import pytest

from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.layers.layer_cutting import Segment, whole_context
from phaze.workload.operators.operator_graph import GraphBuilder, OpKind
from phaze.workload.operators.operator_steps import gradient_of
from phaze.workload.operators.rule_table import RULES
from phaze.workload.parallel_degrees import Sharding
from phaze.workload.sharding.layer_division import UndividedModel
from phaze.workload.sharding.shard_roles import Shard, local_size
from phaze.workload.training.backward_pass import differentiable, model_parameters
from phaze.workload.work import Unit
from phaze.workload.workload import Mode


class Model:
    """A forward model around a function that builds a graph on a builder."""

    name, heads = "small", None

    def __init__(self, build):
        self._build = build

    def graph(self, batch):
        g = GraphBuilder(self.name)
        return g.build((self._build(g, batch),))


def convnet(g, batch):
    """Two convolutions (the second grouped, strided), norm, pool, classifier."""
    x = g.input("x", (batch, 4, 8, 8))
    y = g.add("c1", OpKind.CONV, (x, g.parameter("c1.w", (16, 4, 3, 3))), (batch, 16, 8, 8), kernel=(3, 3))
    bias = g.parameter("b1", (16, 1, 1))
    y = g.add("c1.b", OpKind.ELEMENTWISE, (y, bias), (batch, 16, 8, 8), function="add")
    y = g.add("r1", OpKind.ELEMENTWISE, (y,), (batch, 16, 8, 8), function="relu")
    weight = g.parameter("c2.w", (32, 8, 3, 3))
    y = g.add("c2", OpKind.CONV, (y, weight), (batch, 32, 4, 4), kernel=(3, 3), strides=(2, 2), groups=2)
    statistics = [g.parameter(f"n.{i}", (32,)) for i in range(4)]
    y = g.add("n", OpKind.NORM, (y, *statistics), (batch, 32, 4, 4), function="batch", statistics=2)
    y = g.add("p", OpKind.POOL, (y,), (batch, 32, 1, 1), function="average", kernel=(4, 4))
    y = g.add("flat", OpKind.VIEW, (y,), (batch, 32))
    return g.add("fc", OpKind.MATMUL, (y, g.parameter("fc.w", (10, 32))), (batch, 10), transpose_b=True)


def works(chain, direction):
    return {w.name: w for i in chain.index for w in getattr(chain.layers[i], direction).works}


def test_convolutions():
    """First layer without an input gradient; groups divide; strides change no count; bias is an epilogue."""
    chain = GraphWorkload(Model(convnet), Mode.TRAINING).chain(2, 1)
    forward, backward = works(chain, "forward"), works(chain, "backward")
    one, two = 2 * 64 * 16 * 4 * 9, 2 * 16 * 32 * 8 * 9
    assert forward["c1+b+r1"].macs == one
    assert forward["c2"].macs == backward["c2.dX"].macs == two
    assert [(g.groups, g.m, g.k, g.n) for g in forward["c2"].gemms] == [(2, 32, 72, 16)]
    assert [(g.groups, g.m, g.k, g.n) for g in backward["c2.dW"].gemms] == [(2, 72, 32, 16)]
    assert forward["c2"].gemms[0].a_bytes == 2 * 2 * 16 * 64
    assert not [name for name in backward if name.startswith("c1.dX")]
    assert chain.model_flops == 2 * (2 * one + 3 * two + 3 * 2 * 320)


def test_fused_relu_costs_no_traffic_of_its_own():
    chain = GraphWorkload(Model(convnet), Mode.PREFILL).chain(2, 1)
    conv = works(chain, "forward")["c1+b+r1"]
    assert conv.unit is Unit.TENSOR_VECTOR
    assert conv.vector_cycles == 2 * (2 * 16 * 64)
    assert conv.stream_bytes == 2 * 16  # the bias
    assert conv.gemms[0].c_bytes == 2 * 2 * 16 * 64


def test_batch_norm_reads_twice_in_training_only():
    size = 2 * 2 * 32 * 16
    training = works(GraphWorkload(Model(convnet), Mode.TRAINING).chain(2, 1), "forward")["n"]
    prefill = works(GraphWorkload(Model(convnet), Mode.PREFILL).chain(2, 1), "forward")["n"]
    assert training.stream_bytes - prefill.stream_bytes == size
    assert prefill.stream_bytes == 2 * size + 4 * 2 * 32
    assert prefill.vector_cycles == size / 2


def test_stored_statistics_are_not_trained():
    graph = Model(convnet).graph(1)
    assert {"n.0", "n.1"} <= differentiable(graph)
    assert {"n.2", "n.3"}.isdisjoint(differentiable(graph))
    names = {t.name for t in model_parameters(graph)}
    assert names == {"c1.w", "b1", "c2.w", "n.0", "n.1", "fc.w"}
    chain = GraphWorkload(Model(convnet), Mode.TRAINING).chain(1, 1)
    assert chain.parameters == GraphWorkload(Model(convnet), Mode.TRAINING).parameter_count


def test_saved_of_a_convnet_counts_shared_tensors_once():
    """Inputs of both convolutions (the relu's output is one), of the norm and the classifier, the logits."""
    chain = GraphWorkload(Model(convnet), Mode.TRAINING).chain(1, 1)
    kept = 2 * (4 * 64 + 16 * 64 + 32 * 16 + 32 + 10) + 8 + 4
    assert sum(chain.layers[i].saved_bytes for i in chain.index) == kept


def test_unknown_functions_are_named():
    def odd(g, batch):
        x = g.input("x", (batch, 4))
        return g.add("odd", OpKind.ELEMENTWISE, (x,), (batch, 4), function="frobnicate")

    with pytest.raises(ValueError, match=r"'odd'.*'frobnicate'"):
        GraphWorkload(Model(odd), Mode.PREFILL).chain(1, 1)


def test_weight_gradient_is_read_and_written_in_fp32():
    chain = GraphWorkload(Model(convnet), Mode.TRAINING).chain(2, 1)
    step = works(chain, "backward")["fc.dW"]
    assert step.gemms[0].c_bytes == step.stream_bytes == 4 * 320


def test_a_broadcast_guest_stays_alone():
    """A result larger than the tensor it would ride on is not an epilogue."""

    def spread(g, batch):
        x = g.input("x", (batch, 16, 4))
        y = g.add("s.row", OpKind.MATMUL, (x, g.parameter("w", (4, 1))), (batch, 16, 1))
        return g.add("s.mul", OpKind.ELEMENTWISE, (y, x), (batch, 16, 4), function="mul")

    forward = works(GraphWorkload(Model(spread), Mode.PREFILL).chain(1, 1), "forward")
    assert set(forward) == {"row", "mul"}


def test_dead_ends_and_unused_split_pieces_get_no_gradient():
    def half(g, batch):
        x = g.input("x", (batch, 8))
        y = g.add("h.fc", OpKind.MATMUL, (x, g.parameter("w", (8, 8))), (batch, 8))
        left, _ = g.split_into("h.cut", y, {"h.left": (batch, 4), "h.right": (batch, 4)})
        return g.add("h.out", OpKind.MATMUL, (left, g.parameter("v", (4, 4))), (batch, 4))

    graph = Model(half).graph(1)
    ctx = whole_context(graph, training=True)
    split = graph.operators[1]
    (step,) = RULES[OpKind.VIEW].backward(split, ctx, {split.outputs[0]: "d"})
    assert set(step.reads) == {"d"}
    assert set(step.writes) == {gradient_of(split, "h.fc")}


def test_local_size_rounds_each_part_up():
    assert local_size(((32, 128), (8, 128), (8, 128)), 4) == 128 * (8 + 2 + 2)
    assert local_size(((32, 128), (2, 128)), 8) == 128 * (4 + 1)
    assert local_size(((50257, 1),), 8) == 6283


def test_a_divided_tensor_needs_a_role():
    g = GraphBuilder("g")
    x = g.input("x", (1, 8))
    y = g.add("up", OpKind.MATMUL, (x, g.parameter("w", (8, 8))), (1, 8), shard=Shard.COLUMN)
    z = g.add("relu", OpKind.ELEMENTWISE, (y,), (1, 8), function="relu")
    graph = g.build((z,))
    whole = UndividedModel(graph, whole_context(graph, training=False))
    layer = Segment(graph.operators, ("x",), ("relu",), frozenset())
    with pytest.raises(ValueError, match="reads divided tensor 'up' without a sharding role"):
        whole.divided(layer, Sharding(2))
