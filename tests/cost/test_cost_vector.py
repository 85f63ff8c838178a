"""Vector cores and streamed bytes against hand counts."""

from __future__ import annotations

import numpy as np
import pytest
from cost_cases import product, tensor, transformer_layer, vector
from hypothesis import given
from hypothesis import strategies as st

from phaze.cost.core_cycles import passing_bytes, stream_bytes, vector_cycles


@pytest.mark.parametrize(
    ("alus", "cores", "cycles"), [(1, 1, 8000), (128, 1, 63), (128, 2, 32), (128, 100, 1)]
)
def test_elements_are_dealt_to_all_alus(alus, cores, cycles):
    assert vector_cycles(vector("norm", 1000, 8), alus, cores) == cycles


def test_flash_re_reads_keys_and_values_once_per_further_block_of_queries():
    attention = transformer_layer(tokens=4096).works[4]
    rows = attention.reread_rows_bytes  # 1.5 MiB of queries with their accumulators
    assert rows == 1.5 * 2**20
    bytes_ = stream_bytes(attention, np.array([4 * 2**20, 3 * 2**20, 2.9 * 2**20, 2**20]))
    extra = (bytes_ - attention.stream_bytes) / attention.reread_bytes
    assert extra.tolist() == [0, 0, 1, 2]


@given(st.lists(st.integers(0, 2**30), min_size=2, max_size=8))
def test_a_larger_buffer_never_streams_more(sizes):
    bytes_ = stream_bytes(transformer_layer(tokens=4096).works[4], np.sort(sizes))
    assert np.isfinite(bytes_).all()
    assert (np.diff(bytes_) <= 0).all()


def test_operands_of_a_fused_kernel_pass_the_buffer_once():
    layer = transformer_layer()
    assert passing_bytes(layer.works[4]) == 0.0  # counted with its products
    assert passing_bytes(layer.works[0]) == layer.works[0].stream_bytes
    assert passing_bytes(tensor("dW", product(64, 64, 64), stream_bytes=5.0)) == 5.0
