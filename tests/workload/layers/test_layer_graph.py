"""Layer graphs: chains stay chains, towers and skips become edges, the arithmetic is that of the chain."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from onnx_tiny import light
from phaze.solvers.placement.general import place_general, read_general_problem
from test_graphs import CHOICES, Drawn
from test_layers_found import Fixed, branches, two_stacks

from phaze.hardware.cluster_network import load_network
from phaze.parallel.cluster import Cluster
from phaze.parallel.plan_search.branches.graph_instance import placement_instance
from phaze.scheduling.layers import LayerTimes
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.operators.operator_graph import GraphBuilder, OpKind
from phaze.workload.training.training_numerics import Optimizer, numerics
from phaze.workload.workload import Mode
from phaze.workload.workload_loader import load_workload


def pairs(graph):
    return [(e.source, e.target) for e in graph.edges]


def products(chain):
    layers = [chain.layers[i] for i in chain.index]
    passes = [p for layer in layers for p in (layer.forward, layer.backward) if p is not None]
    return sorted((g.groups, g.m, g.k, g.n) for p in passes for w in p.works for g in w.gemms)


def u_net(depth, convolutions=6):
    """Down and up again, with a skip at every level."""
    g = GraphBuilder("u")
    shape = (2, 8, 16)

    def run(name, x):
        for k in range(convolutions):
            x = g.add(f"{name}.{k}", OpKind.MATMUL, (x, g.parameter(f"{name}.w{k}", (16, 16))), shape)
        return x

    x, skips = g.input("x", shape), []
    for level in range(depth):
        x = run(f"down{level}", x)
        skips.append(x)
    x = run("bottom", x)
    for level in reversed(range(depth)):
        x = g.add(f"join{level}", OpKind.ELEMENTWISE, (x, skips[level]), shape, function="add")
        x = run(f"up{level}", x)
    return g.build((x,))


@pytest.mark.parametrize("name", ["gpt3", "llama2-7b"])
def test_a_transformer_is_the_same_chain(name):
    workload = load_workload(name)
    graph, chain = workload.layer_graph(1, 2), workload.chain(1, 2)
    assert graph.is_chain
    assert graph.order == chain


@pytest.mark.parametrize("name", ["densenet121", "vgg19"])
def test_networks_without_branches_are_chains(name):
    workload = load_workload(str(light(name)))
    graph = workload.layer_graph(1, 1)
    assert graph.is_chain
    assert graph.order.names == workload.chain(1, 1).names


@pytest.mark.parametrize("name", ["inception_v1", "squeezenet"])
def test_towers_are_branches(name):
    workload = load_workload(str(light(name)))
    graph = workload.layer_graph(1, 1)
    assert len(graph.order.index) > len(workload.chain(1, 1).index)
    edges = nx.DiGraph(pairs(graph))
    assert max(degree for _, degree in edges.out_degree()) == (4 if name == "inception_v1" else 2)
    assert nx.is_weakly_connected(edges)
    assert products(graph.order) == products(workload.chain(1, 1))
    assert graph.order.parameters == workload.chain(1, 1).parameters


def test_skips_of_a_u_net_are_edges():
    graph = GraphWorkload(Fixed(u_net(3)), Mode.TRAINING).layer_graph(2, 1)
    skips = [(a, b) for a, b in pairs(graph) if b > a + 1]
    assert len(skips) == 2  # the innermost spans too little and stays inside a layer
    assert len(graph.order.index) > 25


def test_every_decoder_block_reads_the_encoder():
    graph = GraphWorkload(Fixed(two_stacks(4)), Mode.TRAINING).layer_graph(1, 1)
    encoder = graph.order.names.index("encoder3.up")
    assert sum(source == encoder for source, _ in pairs(graph)) == 4
    layer = graph.order.layers[graph.order.index[encoder]]
    sums = [w for w in layer.backward.works if "gradient_sum" in w.name]
    assert len(sums) == 1  # of four gradients, three additions
    assert sums[0].vector_cycles == 3 * 2 * 4 * 8


@settings(max_examples=30, deadline=None)
@given(CHOICES)
def test_arithmetic_parameters_and_order(choices):
    workload = GraphWorkload(Drawn(choices), Mode.TRAINING)
    graph, chain = workload.layer_graph(2, 1), workload.chain(2, 1)
    assert products(graph.order) == products(chain)
    assert graph.order.parameters == chain.parameters
    assert graph.order.model_flops == chain.model_flops
    assert all(source < target for source, target in pairs(graph))


@pytest.mark.parametrize("sizes", [(1, 1), (2, 1, 3)])
def test_the_general_solver_places_it(sizes):
    """Towers whose layers take a second each: with a device per layer the slowest stage has one layer."""
    graph = GraphWorkload(Fixed(branches(sizes)), Mode.TRAINING).layer_graph(2, 1)
    shape = (1, len(graph.order.layers))
    times = LayerTimes(np.ones(shape), 2 * np.ones(shape))
    layers = len(graph.order.index)
    cluster = Cluster(layers, 2 * 1000, load_network("default"))
    document = placement_instance(
        {1: (graph, times)}, 1e30, cluster, numerics(Optimizer.ADAM, Mode.TRAINING), 1e30
    )
    found = place_general(read_general_problem(document))
    assert found.time_per_batch_s is not None
    assert 1000 * 3 <= found.time_per_batch_s <= (1000 + layers) * 3
    with pytest.raises(ValueError, match="training"):
        placement_instance({1: (graph, times)}, 1e30, cluster, numerics(Optimizer.ADAM, Mode.PREFILL), 1e30)
