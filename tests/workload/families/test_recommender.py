"""DLRM: published sizes, what its interaction multiplies, tables divided over devices."""

import pytest

from phaze.errors import InputError
from phaze.workload.families.model_family import Extent
from phaze.workload.families.recommender_family import Recommender
from phaze.workload.operators.operator_graph import OpKind
from phaze.workload.workload import Attention, Mode
from phaze.workload.workload_loader import load_workload
from phaze.yaml_file import checked

SMALL = {
    "dense_features": 5,
    "bottom": [6, 4],
    "tables": [10, 7, 3],
    "embedding_size": 4,
    "top": [8, 1],
}


def small(**changes):
    return checked(Recommender, SMALL | changes, "test")


def test_mlperf_parameters():
    tables, bottom = 187_767_399 * 128, 13 * 512 + 512 + 512 * 256 + 256 + 256 * 128 + 128
    top = 479 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 512 + 512 + 512 * 256 + 256 + 256 + 1
    assert load_workload("dlrm").parameter_count == tables + bottom + top


def test_macs_of_one_sample():
    """Layers, and 27 x 27 products of vectors of 128."""
    layers = 13 * 512 + 512 * 256 + 256 * 128 + 479 * 1024 + 1024 * 1024 + 1024 * 512 + 512 * 256 + 256
    chain = load_workload("dlrm", Mode.PREFILL).chain(1, 1)
    assert chain.model_flops == 2 * (layers + 27 * 27 * 128)


@pytest.mark.parametrize("batch", [1, 3])
def test_every_pair_of_vectors_is_multiplied_once(batch):
    graph = small().graph("small", Extent(batch), Attention.FLASH)
    shapes = {op.name: graph.tensors[op.outputs[0]].shape for op in graph.operators}
    assert shapes["interaction.products"] == (batch, 4, 4)
    assert shapes["interaction.pairs"] == (batch, 6)
    assert shapes["interaction.join"] == (batch, 4 + 6)
    assert graph.tensors[graph.outputs[0]].shape == (batch, 1)


def test_several_lookups_are_added_up():
    graph = small(lookups=5).graph("small", Extent(2), Attention.FLASH)
    found = [op for op in graph.operators if op.kind is OpKind.EMBEDDING]
    assert [graph.tensors[op.outputs[0]].shape for op in found] == [(2, 5, 4)] * 3
    assert sum(op.kind is OpKind.REDUCE for op in graph.operators) == 3


def test_tables_are_divided_and_layers_repeated():
    workload = load_workload("dlrm")
    assert workload.tensor_parallel_widths(8) == (1, 2, 4, 8)
    whole, eighth = workload.chain(4, 1), workload.chain(4, 8)
    layers = whole.parameters - 187_767_399 * 128
    assert eighth.parameters - layers == pytest.approx(187_767_399 * 16, rel=1e-5)
    assert eighth.model_flops == whole.model_flops


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bottom": [6, 5]}, "bottom ends at width 5, embedding_size is 4"),
        ({"tables": []}, "tables"),
        ({"tables": [3, 0]}, "tables.1"),
        ({"depth": 3}, "no such field"),
    ],
)
def test_bad_dimensions(changes, message):
    with pytest.raises(InputError, match=message):
        small(**changes)
