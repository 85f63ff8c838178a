"""GNMT: published sizes, multiply-accumulates layer by layer, and what depends on what."""

import networkx as nx
import pytest

from phaze.errors import InputError
from phaze.workload.families.model_family import Extent
from phaze.workload.families.recurrent_family import RecurrentTranslator
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_loader import load_workload
from phaze.yaml_file import checked

SMALL = {"layers": 3, "hidden": 4, "vocabulary": 9, "max_positions": 5, "dropout": 0.1}


def small(**changes):
    return checked(RecurrentTranslator, SMALL | changes, "test")


def test_parameters_are_those_of_the_reference():
    """The sum that MLPerf's reference prints: table, LSTMs with two biases, attention, classifier."""
    h, rows, layers = 1024, 32320, 4

    def lstm(width):
        return 4 * h * (width + h) + 8 * h

    encoder = 2 * lstm(h) + lstm(2 * h) + (layers - 2) * lstm(h)
    decoder = lstm(h) + (layers - 1) * lstm(2 * h) + 2 * h * h + 2 * h + 1
    count = rows * h + encoder + decoder + h * rows + rows
    assert load_workload("gnmt4").parameter_count == count == 160_671_297


@pytest.mark.parametrize("batch", [1, 3])
def test_macs_are_those_of_products_attention_and_classifier(batch):
    s, h = 50, 1024
    lstms = [1, 1, 2, 1, 1, 1, 2, 2, 2]  # widths of the inputs, in states: encoder, then decoder
    per_token = sum(4 * h * (width * h + h) for width in lstms) + h * 32320
    attention = 2 * s * h * h + s * s * h + s * s * h
    chain = load_workload("gnmt4", Mode.PREFILL).chain(batch, 1)
    assert chain.model_flops == 2 * batch * (s * per_token + attention)


def test_the_model_is_a_chain_with_equal_layers_once():
    chain = load_workload("gnmt8", Mode.PREFILL).chain(1, 1)
    counts = [chain.index.count(i) for i in range(len(chain.layers))]
    assert sorted(counts)[-2:] == [5, 6]  # encoder from the third layer; decoder's last one passes less on
    assert chain.names[3:9] == tuple(f"encoder.layer{number}" for number in range(3, 9))


def test_every_time_step_waits_for_the_one_before_and_for_no_later_one():
    graph = small().graph("small", Extent(2, 5), Attention.FLASH)
    order = graph.to_networkx()

    def step(number):
        """Operators of a time step that follow its state."""
        name = f"encoder.layer2.lstm.step{number}."
        return {i for i, op in enumerate(graph.operators) if op.name.startswith(name)}

    for number in range(1, 5):
        before = set().union(*(nx.ancestors(order, i) for i in step(number)))
        assert step(number - 1) <= before
        assert number == 4 or not step(number + 1) & before


def test_attention_sees_every_pair_of_positions():
    graph = small().graph("small", Extent(2, 5), Attention.FLASH)
    shapes = {op.name: graph.tensors[op.outputs[0]].shape for op in graph.operators}
    assert shapes["decoder.layer1.attention.tanh"] == (2, 5, 5, 4)
    assert shapes["decoder.layer1.attention.softmax"] == (2, 5, 5)


def test_dropout_is_there_only_where_asked_for_and_in_training():
    with_, without = (small(dropout=p).graph("g", Extent(1, 5), Attention.FLASH) for p in (0.1, 0.0))
    dropouts = [op for op in with_.operators if op.attributes.get("function") == "dropout"]
    assert len(dropouts) == 6
    assert len(without.operators) == len(with_.operators) - 6


@pytest.mark.parametrize("changes", [{"layers": 1}, {"hidden": 0}, {"dropout": 1.0}, {"heads": 4}])
def test_bad_dimensions(changes):
    with pytest.raises(InputError, match=next(iter(changes))):
        small(**changes)
