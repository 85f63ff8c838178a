"""Products alone on systolic chips, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.kernel_laws import kernels_s
from phaze.cost.kernels.systolic_programs import SerialChip, SerialLaw, SerialProducts, serial_products_s
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.derived_figures import peak_flops_per_s
from phaze.validation.measured.single_operators import product

MIB = 2.0**20
CHIP = SerialChip(rows=256, columns=256, memory_bytes_per_s=1e12, on_chip_bytes=128 * MIB)
IDEAL = SerialLaw(launch_s=0.0, efficiency=1.0, load_efficiency=1.0, store_efficiency=1.0)
PEAK = 1e15


def seconds(m, k, n, load, store, law=IDEAL, chip=CHIP):
    columns = [np.array([float(x)]) for x in (1, m, k, n, load, store, PEAK)]
    return serial_products_s(SerialProducts(*columns), chip, law)[0]


def test_what_fits_a_kernel_is_loaded_computed_and_stored_in_turn():
    compute = 2 * 1024**3 / PEAK
    assert seconds(1024, 1024, 1024, 8e6, 4e6) == pytest.approx(12e6 / 1e12 + compute)
    assert seconds(1024, 1024, 1024, 8e6, 4e6, replace(IDEAL, launch_s=1e-6)) == pytest.approx(
        1e-6 + 12e6 / 1e12 + compute
    )


def test_of_a_large_product_one_kernel_s_memory_is_not_hidden():
    compute, moved = 2 * 8192**3 / PEAK, 160 * MIB
    assert seconds(8192, 8192, 8192, moved, 0) == pytest.approx(compute + 0.1 * moved / 1e12)


def test_edge_tiles_count_whole():
    assert seconds(9, 257, 1, 0, 1) == pytest.approx(2 * 16 * 512 * 256 / PEAK + 1e-12)


def test_each_way_has_its_own_share_of_the_bandwidth():
    law = replace(IDEAL, load_efficiency=0.5, store_efficiency=0.25)
    assert seconds(8, 256, 256, 1e6, 1e6, law) == pytest.approx(6e-6 + 2 * 8 * 256**2 / PEAK)


def alone_s(work, chip="tpuv6e", rung=Fidelity.ANALYTIC):
    return float(kernels_s((work,), to_table([load_architecture(chip)]), rung)[0, 0])


def test_an_operand_that_stays_spares_reading_again():
    """fp32 tensors: 64 MiB of weights are half of the memory of a v6e, 65 MiB more than that."""
    stays, streams = (alone_s(product(1, 65536, 4096, n, 4)) for n in (4096, 4160))
    assert streams > 1.5 * stays


@pytest.mark.parametrize("chip", ["tpuv4", "tpuv7-chiplet", "edge"])
@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_no_product_beats_the_peak_or_a_smaller_one(chip, m, k, n, groups):
    table = to_table([load_architecture(chip)])
    works = (product(groups, m, k, n), product(groups, m + 8, k, n))
    seconds, longer = kernels_s(works, table, Fidelity.ANALYTIC)[0]
    assert seconds >= 2 * works[0].macs / peak_flops_per_s(table)[0]
    assert longer >= seconds
