"""Recurrent layers of ONNX files: work, parameters, states and directions."""

import pytest
from onnx_tiny import integers, node, save, tensor, weight

from phaze.errors import InputError
from phaze.workload.graph_workload import GraphWorkload
from phaze.workload.onnx import load_onnx
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.workload import Mode

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, WIDTH, HIDDEN = 5, 6, 8


def layer(
    folder, kind, *, ways=1, biased=True, states=(), outputs=("y",), shape=(STEPS, 1, WIDTH), **attributes
):
    """A model of one recurrent layer whose weights are stored."""
    rows = GATES[kind] * HIDDEN
    constants = [weight("w", ways, rows, WIDTH), weight("r", ways, rows, HIDDEN)]
    constants += [weight("b", ways, 2 * rows)] if biased else []
    operands = ["x", "w", "r", "b" if biased else "", "", *states]
    attributes |= {"direction": "bidirectional"} if ways == 2 else {}
    made = node(kind, operands, list(outputs), hidden_size=HIDDEN, **attributes)
    inputs = [tensor("x", *shape), *(tensor(name, ways, 1, HIDDEN) for name in states)]
    return save(folder, [made], inputs, constants, outputs=[name for name in outputs if name])


def macs(graph):
    """Multiply-accumulates of the products of a graph."""
    made = 0
    for op in graph.operators:
        if op.kind is OpKind.MATMUL:
            a, b = (graph.tensors[name] for name in op.inputs)
            made += graph.tensors[op.outputs[0]].elements * a.shape[-1]
            assert b.shape[-1] == a.shape[-1]
    return made


@pytest.mark.parametrize("kind", sorted(GATES))
@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("before", [0, 1])
def test_work_and_parameters(tmp_path, kind, ways, before):
    attributes = {"linear_before_reset": before} if kind == "GRU" else {}
    path = layer(tmp_path, kind, ways=ways, **attributes)
    graph = load_onnx(path).graph(3)
    rows = ways * GATES[kind] * HIDDEN
    assert macs(graph) == 3 * STEPS * rows * (WIDTH + HIDDEN)
    assert sum(t.elements for t in graph.parameters()) == rows * (WIDTH + HIDDEN + 2)
    assert graph.tensors["y"].shape == (STEPS, ways, 3, HIDDEN)
    chain = GraphWorkload(load_onnx(path), Mode.TRAINING).chain(3, 1)
    assert chain.parameters == rows * (WIDTH + HIDDEN + 2)


def test_last_states_and_given_ones(tmp_path):
    path = layer(tmp_path, "LSTM", states=("h", "c"), outputs=("", "last", "cell"))
    graph = load_onnx(path).graph(4)
    assert {graph.tensors[name].shape for name in ("h", "c", "last", "cell")} == {(1, 4, HIDDEN)}
    assert {name for name in graph.inputs if graph.consumers().get(name)} == {"x", "h", "c"}


def test_the_batch_may_come_first(tmp_path):
    path = layer(tmp_path, "GRU", layout=1, shape=(1, STEPS, WIDTH))
    assert load_onnx(path).graph(3).tensors["y"].shape == (3, STEPS, 1, HIDDEN)


def test_reading_backwards_begins_at_the_end(tmp_path):
    graph = load_onnx(layer(tmp_path, "RNN", direction="reverse", biased=False)).graph(1)
    steps = [op.name for op in graph.operators if op.name.endswith("recurrent")]
    assert steps == [f"y.0.step{t}.recurrent" for t in reversed(range(STEPS))]


def test_activations_of_the_file_are_used(tmp_path):
    names = ["HardSigmoid", "Relu", "ELU"]
    graph = load_onnx(layer(tmp_path, "LSTM", activations=names)).graph(1)
    used = {op.attributes.get("function") for op in graph.operators if op.kind is OpKind.ELEMENTWISE}
    assert used == {"add", "mul", "hard_sigmoid", "relu", "elu"}
    with pytest.raises(InputError, match=r"LSTM node 'y' is malformed \('sinus'\)"):
        load_onnx(layer(tmp_path, "LSTM", activations=["Sinus"] * 3))


def test_what_is_not_supported_is_named(tmp_path):
    with pytest.raises(InputError, match="LSTM node 'y' has peepholes or coupled gates"):
        load_onnx(layer(tmp_path, "LSTM", input_forget=1))
    reshaped = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("RNN", ["t", "w", "r"], ["y"], name="rows", hidden_size=HIDDEN),
    ]
    constants = [weight("w", 1, HIDDEN, WIDTH), weight("r", 1, HIDDEN, HIDDEN), integers("i", 1)]
    inputs = [tensor("x", "time", "batch", WIDTH)]
    with pytest.raises(InputError, match="RNN node 'rows' does not keep the batch: its batch is its time"):
        load_onnx(save(tmp_path, reshaped, inputs, constants), {"time": 4})
