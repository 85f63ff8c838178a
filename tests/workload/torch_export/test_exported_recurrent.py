"""Recurrent layers of recorded programs: their operators by hand, and torch's own counts where it is installed."""

from math import prod

import pytest
from exported_tiny import B, Recorder

from phaze.errors import InputError
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.torch_export.torch_tracing import record
from phaze.workload.workload import Mode

WIDTH, HIDDEN, STEPS, BATCH = 6, 8, 5, 4


def recorded(operator, *, layers=1, ways=1, axis=0, gates=4, states=2, dropout=0.0, given=0, **more):
    """The graph of one call at batch 4; `axis` of the batch; so many of its first states are `given`."""
    r = Recorder()
    first_two = (STEPS, B) if axis else (B, STEPS)
    x = r.input("x", *first_two, WIDTH)
    shape = (layers * ways, B, HIDDEN)
    first = [r.input(f"h{i}", *shape) if i < given else r.call("zeros", shape) for i in range(states)]
    params = []
    for layer in range(layers):
        width = ways * HIDDEN if layer else WIDTH
        for way in range(ways):
            sizes = {"ih": (gates * HIDDEN, width), "hh": (gates * HIDDEN, HIDDEN)}
            params += [r.weight(f"w_{part}_{layer}_{way}", *size) for part, size in sizes.items()]
            params += [r.weight(f"b_{part}_{layer}_{way}", gates * HIDDEN) for part in sizes]
    arguments = {
        "hx": tuple(first) if states > 1 else first[0],
        "params": tuple(params),
        "has_biases": True,
        "num_layers": layers,
        "dropout": dropout,
        "bidirectional": ways == 2,
        "batch_first": axis == 0,
    }
    made = r.call(
        f"aten.{operator}.input", (*first_two, ways * HIDDEN), *(shape,) * states, input=x, **arguments | more
    )
    return r.graph(*made, batch=BATCH)


def products(graph):
    """Shapes of all factors and results of products, in order."""
    return [
        tuple(graph.tensors[t].shape for t in (*op.inputs, *op.outputs))
        for op in graph.operators
        if op.kind is OpKind.MATMUL
    ]


def test_an_lstm_is_one_product_of_all_inputs_and_one_per_time_step():
    graph = recorded("lstm")
    fed, *own = products(graph)
    assert fed == ((BATCH, STEPS, WIDTH), (32, WIDTH), (BATCH, STEPS, 32))
    assert own == [((BATCH, HIDDEN), (32, HIDDEN), (BATCH, 32))] * STEPS
    assert [graph.tensors[t].shape for t in graph.outputs] == [
        (BATCH, STEPS, HIDDEN),
        *((1, BATCH, HIDDEN),) * 2,
    ]


@pytest.mark.parametrize("axis", [0, 1])
def test_layers_and_directions_follow_each_other(axis):
    graph = recorded("lstm", layers=2, ways=2, axis=axis, dropout=0.5)
    made = products(graph)
    assert len(made) == 2 * 2 * (1 + STEPS)
    assert [factors for factors, *_ in made if len(factors) == 3] == [
        *((BATCH, STEPS, WIDTH),) * 2,
        *((BATCH, STEPS, 2 * HIDDEN),) * 2,
    ]
    dropped = [op for op in graph.operators if op.attributes.get("function") == "dropout"]
    assert [graph.tensors[op.outputs[0]].shape for op in dropped] == [(BATCH, STEPS, 2 * HIDDEN)]
    first_two = (STEPS, BATCH) if axis else (BATCH, STEPS)
    assert graph.tensors[graph.outputs[0]].shape == (*first_two, 2 * HIDDEN)


@pytest.mark.parametrize(("operator", "gates"), [("gru", 3), ("rnn_tanh", 1)])
def test_cells_with_one_state(operator, gates):
    graph = recorded(operator, gates=gates, states=1, layers=2)
    assert [result for *_, result in products(graph)[: 1 + STEPS]] == [
        (BATCH, STEPS, gates * HIDDEN),
        *((BATCH, gates * HIDDEN),) * STEPS,
    ]
    assert graph.tensors[graph.outputs[1]].shape == (2, BATCH, HIDDEN)


@pytest.mark.parametrize("given", [1, 2])
def test_first_states_that_are_given_are_read(given):
    graph = recorded("lstm", layers=2, given=given)
    for i in range(given):
        (pieces,) = [op.outputs for op in graph.operators if f"h{i}" in op.inputs]
        assert len(pieces) == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"has_biases": False}, "has 4 weights, not 2 per layer and direction"),
        ({"axis": 1, "batch_first": True}, "it is not dimension 0 of the input"),
        ({"batch_sizes": 3}, "packed sequences"),
    ],
)
def test_refusals_name_the_reason(change, reason):
    with pytest.raises(InputError, match=reason):
        recorded("lstm", **change)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_parameters_and_products_are_those_of_torch(kind, batch_first):
    torch = pytest.importorskip("torch")
    counter = pytest.importorskip("torch.utils.flop_counter")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = getattr(torch.nn, kind)(
                WIDTH, HIDDEN, 2, bidirectional=True, batch_first=batch_first
            )

        def forward(self, x):
            turned = x if batch_first else x.transpose(0, 1)
            return self.inner(turned)[0]

    model, x = Model(), torch.zeros(BATCH, STEPS, WIDTH)
    with (
        torch.no_grad(),
        torch.backends.mkldnn.flags(enabled=False),
        counter.FlopCounterMode(display=False) as c,
    ):
        model(x)
    workload = GraphWorkload(record(model, (x,), {}, "rnn"), Mode.PREFILL)
    assert workload.parameter_count == sum(p.numel() for p in model.parameters())
    made = products(workload.operator_graph(BATCH))
    assert sum(2 * prod(factor) * result[-1] for factor, _, result in made) == c.get_total_flops()
