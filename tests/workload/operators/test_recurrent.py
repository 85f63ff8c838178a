"""Recurrent layers: work, parameters and dependencies of the unrolled graph, in both passes."""

import networkx as nx
import pytest

from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.operators.operator_graph import GraphBuilder, OpKind
from phaze.workload.operators.recurrent_layers import (
    GATES,
    Cell,
    bidirectional_layer,
    recurrent_layer,
    recurrent_weights,
)
from phaze.workload.workload import Mode

WIDTH, HIDDEN, STEPS = 6, 8, 5


class Stacked:
    """Two recurrent layers, one after the other."""

    name = "stacked"
    heads = None

    def __init__(self, cell, *, both=False, biases=1):
        self.cell, self.both, self.biases = cell, both, biases

    def graph(self, batch):
        g = GraphBuilder(self.name)
        x = g.input("x", (batch, STEPS, WIDTH))
        for name in ("first", "second"):
            sizes = (g.shape(x)[-1], HIDDEN)
            ways = [
                recurrent_weights(g, f"{name}.{way}", self.cell, sizes, self.biases)
                for way in ("ab" if self.both else "a")
            ]
            layer = bidirectional_layer(g, name, self.cell, x, ways) if self.both else None
            x = (layer or recurrent_layer(g, name, self.cell, x, ways[0])).sequence
        return g.build([x])


def macs_per_sample(cell, inputs, ways=1):
    return ways * STEPS * GATES[cell] * HIDDEN * sum(width + HIDDEN for width in inputs)


@pytest.mark.parametrize("cell", list(Cell))
def test_products_of_a_layer_are_those_of_the_formula(cell):
    model = Stacked(cell)
    prefill = GraphWorkload(model, Mode.PREFILL).chain(3, 1)
    assert prefill.model_flops == 3 * 2 * macs_per_sample(cell, (WIDTH, HIDDEN))
    both = GraphWorkload(Stacked(cell, both=True), Mode.PREFILL).chain(3, 1)
    assert both.model_flops == 3 * 2 * macs_per_sample(cell, (WIDTH, 2 * HIDDEN), ways=2)


@pytest.mark.parametrize("cell", list(Cell))
@pytest.mark.parametrize("biases", [0, 1, 2])
def test_parameters(cell, biases):
    workload = GraphWorkload(Stacked(cell, biases=biases), Mode.TRAINING)
    rows = GATES[cell] * HIDDEN
    assert workload.parameter_count == rows * (WIDTH + 3 * HIDDEN + 2 * biases)
    assert workload.chain(2, 1).parameters == workload.parameter_count


def test_backward_of_an_lstm_is_twice_the_forward_but_for_the_input_and_the_zero_state():
    """Nobody wants the gradient of the model's input, nor that of the state it starts from."""
    per_step = 4 * HIDDEN * HIDDEN
    forward = macs_per_sample(Cell.LSTM, (WIDTH, HIDDEN))
    training = GraphWorkload(Stacked(Cell.LSTM), Mode.TRAINING).chain(2, 1)
    assert training.model_flops == 2 * 2 * (3 * forward - STEPS * 4 * HIDDEN * WIDTH - 2 * per_step)


@pytest.mark.parametrize("cell", list(Cell))
@pytest.mark.parametrize("mode", list(Mode))
def test_time_steps_wait_for_one_another(cell, mode):
    """The input product is a layer; in the next the longest path holds every recurrent product."""
    chain = GraphWorkload(Stacked(cell), mode).chain(2, 1)
    assert chain.names[:4] == tuple(
        f"{name}.{part}" for name in ("first", "second") for part in ("input", "step0.recurrent")
    )
    for layer in (chain.layers[i] for i in chain.index[1:4:2]):
        for work in filter(None, (layer.forward, layer.backward)):
            graph = nx.DiGraph(work.edges)
            longest = nx.dag_longest_path(graph)
            assert sum(bool(work.works[i].gemms) for i in longest) >= STEPS


def test_reversed_layers_begin_at_the_end():
    g = GraphBuilder("reversed")
    x = g.input("x", (2, 3, WIDTH))
    weights = recurrent_weights(g, "r", Cell.RNN, (WIDTH, HIDDEN))
    made = recurrent_layer(g, "r", Cell.RNN, x, weights, reverse=True)
    assert made.state == ("r.step0.hidden",)
    products = [op.name for op in g.build([made.sequence]).operators if op.kind is OpKind.MATMUL]
    assert products == ["r.input", *(f"r.step{t}.recurrent" for t in (2, 1, 0))]


def test_a_given_state_is_read():
    g = GraphBuilder("given")
    x, h, c = g.input("x", (2, 3, WIDTH)), *(g.input(name, (2, HIDDEN)) for name in "hc")
    weights = recurrent_weights(g, "r", Cell.LSTM, (WIDTH, HIDDEN))
    made = recurrent_layer(g, "r", Cell.LSTM, x, weights, state=(h, c))
    graph = g.build([made.sequence, *made.state])
    assert [len(graph.consumers()[name]) for name in "hc"] == [1, 1]
