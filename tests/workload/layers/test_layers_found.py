"""Layers: the same ones in any order of the file, and tensors that many later layers read."""

import random
from dataclasses import replace

import networkx as nx
import pytest
from onnx_tiny import light

from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.layers.layer_cutting import cut, whole_context
from phaze.workload.layers.layer_reuse import Signatures
from phaze.workload.operators.operator_graph import GraphBuilder, OperatorGraph, OpKind
from phaze.workload.workload import Mode
from phaze.workload.workload_loader import load_workload

ROWS, WIDTH = 4, 8


def shuffled(graph, seed):
    """The same graph with its operators in another topological order and every name replaced."""
    draw, order = random.Random(seed), []
    edges = nx.DiGraph(graph.edges())
    edges.add_nodes_from(range(len(graph.operators)))
    ready = [n for n in edges if edges.in_degree(n) == 0]
    while ready:
        node = ready.pop(draw.randrange(len(ready)))
        order.append(node)
        for after in sorted(edges.successors(node)):
            if all(before in order for before in edges.predecessors(after)):
                ready.append(after)
    names = {t: f"t{draw.random()}" for t in sorted(graph.tensors)}
    tensors = {names[t]: replace(tensor, name=names[t]) for t, tensor in graph.tensors.items()}
    operators = tuple(
        replace(
            op,
            name=f"o{n}",
            inputs=tuple(map(names.get, op.inputs)),
            outputs=tuple(map(names.get, op.outputs)),
        )
        for n, op in ((n, graph.operators[n]) for n in order)
    )
    ends = (tuple(map(names.get, graph.inputs)), tuple(map(names.get, graph.outputs)))
    return replace(graph, tensors=tensors, operators=operators, inputs=ends[0], outputs=ends[1])


def branches(sizes, joined="add"):
    """Towers of products between a fork and a join, one layer as no single tensor passes inside."""
    g = GraphBuilder("towers")
    x = g.input("x", (2, ROWS, WIDTH))
    x = g.add("stem", OpKind.MATMUL, (x, g.parameter("stem.w", (WIDTH, WIDTH))), g.shape(x))
    ends = []
    for i, depth in enumerate(sizes):
        y = x
        for k in range(depth):
            y = g.add(f"t{i}.{k}", OpKind.MATMUL, (y, g.parameter(f"w{i}.{k}", (WIDTH, WIDTH))), g.shape(x))
        ends.append(y)
    return g.build((g.add("join", OpKind.ELEMENTWISE, ends, g.shape(x), function=joined),))


def largest(graph):
    """The layer with most operators."""
    return max(cut(graph, whole_context(graph, training=False)), key=lambda s: len(s.operators))


def side_by_side(*graphs):
    """One graph of several, so that their layers can be compared; names tell them apart."""
    return OperatorGraph(
        "all",
        {t: tensor for g in graphs for t, tensor in g.tensors.items()},
        tuple(op for g in graphs for op in g.operators),
        tuple(t for g in graphs for t in g.inputs),
        tuple(t for g in graphs for t in g.outputs),
    )


@pytest.mark.parametrize("sizes", [(1, 2, 3), (2, 2), (3, 3, 1, 1)])
@pytest.mark.parametrize("seed", range(5))
def test_order_and_names_play_no_role(sizes, seed):
    graph = branches(sizes)
    other = shuffled(graph, seed)
    both = side_by_side(graph, other)
    signatures = Signatures(both, whole_context(both, training=False))
    assert len(largest(graph).operators) == sum(sizes) + 1
    assert signatures.of(largest(graph)) == signatures.of(largest(other))


def test_different_wiring_is_told_apart():
    """The same operators: two products of one tensor against two products in a row, and so on."""
    wirings = [((2, 2), "add"), ((1, 3), "add"), ((4, 1), "add"), ((2, 3), "add"), ((2, 2), "mul")]
    graphs = [shuffled(branches(*wiring), seed) for seed, wiring in enumerate(wirings)]
    everything = side_by_side(*graphs)
    signatures = Signatures(everything, whole_context(everything, training=False))
    assert len({signatures.of(largest(g)) for g in graphs}) == len(graphs)


# Layers and different ones of the training graph, as counted when exactly one tensor passed every cut.
COUNTS = {
    "gpt3": (196, 6),
    "densenet121": (74, 74),
    "inception_v1": (22, 22),
    "inception_v2": (21, 21),
    "resnet50": (22, 15),
    "shufflenet": (25, 16),
    "squeezenet": (24, 23),
    "vgg19": (25, 21),
}


@pytest.mark.parametrize("name", COUNTS)
def test_chains_of_known_models(name):
    source = name if name == "gpt3" else str(light(name))
    chain = load_workload(source).chain(1, 1)
    assert (len(chain.index), len(chain.layers)) == COUNTS[name]


def two_stacks(blocks):
    """An encoder of products, and a decoder each of whose blocks also multiplies the encoder's output."""
    g = GraphBuilder("translate")
    shape = (2, ROWS, WIDTH)
    x = g.input("source", shape)
    z = g.input("target", shape)
    for i in range(blocks):
        x = g.add(f"encoder{i}.up", OpKind.MATMUL, (x, g.parameter(f"e{i}", (WIDTH, WIDTH))), shape)
    y = g.add("target.up", OpKind.MATMUL, (z, g.parameter("z", (WIDTH, WIDTH))), shape)
    for i in range(blocks):
        k = g.add(f"decoder{i}.key", OpKind.MATMUL, (x, g.parameter(f"k{i}", (WIDTH, WIDTH))), shape)
        m = g.add(f"decoder{i}.mix", OpKind.ELEMENTWISE, (y, k), shape, function="mul")
        y = g.add(f"decoder{i}.down", OpKind.MATMUL, (m, g.parameter(f"d{i}", (WIDTH, WIDTH))), shape)
    return g.build((y,))


class Fixed:
    """A model that is always the same graph."""

    heads = None

    def __init__(self, graph):
        self.name = graph.name
        self._graph = graph

    def graph(self, batch):
        return self._graph


def test_blocks_that_read_the_encoder_are_layers_of_their_own():
    blocks = 5
    chain = GraphWorkload(Fixed(two_stacks(blocks)), Mode.TRAINING).chain(2, 1)
    tensor = 2 * ROWS * WIDTH * 2
    layers = [chain.layers[i] for i in chain.index[:-1]]  # all but the loss
    # The encoder; then its output beside what passes, up to the last block that reads it.
    sizes = [layer.output_bytes / tensor for layer in layers]
    assert sizes == [1] * (blocks - 1) + [2] * (2 * blocks - 1) + [1] * 2
    # Every block that reads it adds its part to the gradient that comes from those behind it.
    sums = [w.name for layer in layers for w in layer.backward.works if "gradient_sum" in w.name]
    assert len(sums) == blocks - 1
    assert len(chain.layers) < len(chain.index) - 3


@pytest.mark.parametrize("blocks", [2, 4])
def test_arithmetic_is_that_of_the_uncut_model(blocks):
    chain = GraphWorkload(Fixed(two_stacks(blocks)), Mode.TRAINING).chain(2, 1)
    layers = [chain.layers[i] for i in chain.index]
    macs = sum(w.macs for layer in layers for p in (layer.forward, layer.backward) for w in p.works)
    first_two = 2  # products of model inputs, which get no gradient
    assert macs == 2 * ROWS * WIDTH * WIDTH * (3 * (3 * blocks + 1) - first_two)


def test_two_readers_do_not_carry():
    graph = two_stacks(2)
    assert not any(segment.passing for segment in cut(graph, whole_context(graph, training=True)))
    assert len(GraphWorkload(Fixed(graph), Mode.TRAINING).chain(2, 1).index) == 3


def u_shape(depth):
    """Products down and up again; what each makes on the way down meets what is made on the way up."""
    g, shape = GraphBuilder("u"), (2, ROWS, WIDTH)
    x, skips = g.input("image", shape), []
    for i in range(depth):
        x = g.add(f"down{i}", OpKind.MATMUL, (x, g.parameter(f"d{i}", (WIDTH, WIDTH))), shape)
        skips.append(x)
    for i, skip in enumerate(reversed(skips[:1])):
        for k in range(depth):
            x = g.add(f"up{i}.{k}", OpKind.MATMUL, (x, g.parameter(f"u{i}.{k}", (WIDTH, WIDTH))), shape)
        both = g.add(f"both{i}", OpKind.VIEW, (x, skip), (2, ROWS, 2 * WIDTH))
        x = g.add(f"out{i}", OpKind.MATMUL, (both, g.parameter(f"o{i}", (2 * WIDTH, WIDTH))), shape)
    return g.build((x,))


@pytest.mark.parametrize(("depth", "carried"), [(5, False), (40, True)])
def test_long_skips_are_sent_along_and_short_ones_stay_inside(depth, carried):
    graph = u_shape(depth)
    segments = cut(graph, whole_context(graph, training=True))
    assert len(segments) == (2 * depth + 1 if carried else 3)
    assert any(segment.passing for segment in segments) is carried
    names = [op.name for segment in segments for op in segment.operators]
    assert names == [op.name for op in graph.operators]


def test_conditions_that_every_block_casts_are_sent_along():
    """As the time of a diffusion transformer, whose blocks all embed it."""
    g, shape, blocks = GraphBuilder("conditioned"), (2, ROWS, WIDTH), 5
    x, time = g.input("image", shape), g.input("time", (2,), 8)
    for i in range(blocks):
        cast = g.add(f"{i}.cast", OpKind.VIEW, (time,), (2, 1, 1))
        row = g.add(f"{i}.embedded", OpKind.MATMUL, (cast, g.parameter(f"t{i}", (1, WIDTH))), (2, 1, WIDTH))
        scaled = g.add(f"{i}.scaled", OpKind.ELEMENTWISE, (x, row), shape, function="mul")
        x = g.add(f"{i}.product", OpKind.MATMUL, (scaled, g.parameter(f"w{i}", (WIDTH, WIDTH))), shape)
    graph = g.build((x,))
    segments = cut(graph, whole_context(graph, training=True))
    assert len(segments) >= blocks
    assert max(len(segment.operators) for segment in segments) == 4
