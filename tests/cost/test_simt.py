"""The tile law: physical limits, monotonicity, and hand-worked cases."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.cost.calibration import calibrated_s, calibration_of, calibrations, simt_chip
from phaze.cost.simt import Products, SimtLaw, products_s
from phaze.hardware.architecture import list_architectures, load_architecture
from phaze.validation.operators import exchange, product, softmax
from phaze.workload.work import Collective

A100 = simt_chip(load_architecture("a100-80gb"))
LAW = calibrations()[0].tiles
EXTENT = st.integers(1, 20_000)
# one multiprocessor's worth of everything, nothing lost: what is left are tiles and waves
IDEAL = SimtLaw(1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1e30, 0.0, 0.0, 0.0)


def seconds(m, k, n, groups=1, law=LAW, chip=A100):
    sizes = [np.array([float(v)]) for v in (groups, m, k, n)]
    bytes_ = 2.0 * sizes[0] * (sizes[1] * sizes[2] + sizes[2] * sizes[3] + sizes[1] * sizes[3])
    return float(products_s(Products(*sizes, bytes_), chip, law)[0])


def test_fields_of_the_a100():
    assert (A100.multiprocessors, A100.clock_hz) == (108, 1.41e9)
    assert A100.peak_flop_per_s == pytest.approx(312e12, rel=1e-3)


@given(EXTENT, EXTENT, EXTENT, st.integers(1, 64))
def test_never_above_the_peak(m, k, n, groups):
    assert seconds(m, k, n, groups) > 2.0 * m * k * n * groups / A100.peak_flop_per_s


@given(EXTENT, EXTENT, EXTENT, st.integers(1, 3))
def test_a_longer_side_never_takes_less(m, k, n, side):
    longer = [m, k, n]
    longer[side - 1] += 97
    assert seconds(*longer) >= seconds(m, k, n) * (1 - 1e-12)


def test_one_block_more_than_multiprocessors_costs_a_second_wave():
    chip = replace(A100, memory_bytes_per_s=1e30)
    whole = seconds(16 * 108, 1 << 20, 64, law=replace(IDEAL, split_s=1.0), chip=chip)
    # 109 of the smallest blocks: two waves of them, half of the multiprocessors idle in the second
    more = seconds(16 * 109, 1 << 20, 64, law=replace(IDEAL, split_s=1.0), chip=chip)
    assert more == pytest.approx(2 * whole)


def test_a_cold_stream_takes_its_bytes_over_the_bandwidth():
    bytes_ = 2.0 * (64 + 64 * 10**6 + 10**6)
    ideal = seconds(1, 64, 10**6, law=IDEAL)
    assert ideal == pytest.approx(bytes_ / A100.memory_bytes_per_s)


def test_calibrated_chips_exist_and_each_belongs_to_one_family():
    chips = [chip for c in calibrations() for chip in c.chips]
    assert len(set(chips)) == len(chips)
    assert set(chips) <= set(list_architectures())
    assert calibration_of("tpuv3") is None


def test_nothing_is_said_where_nothing_is_calibrated():
    works = (product(1, 512, 512, 512), softmax(512, 512))
    on_gpu = calibrated_s(works, load_architecture("h200"))
    assert on_gpu[0] > 0
    assert np.isnan(on_gpu[1])
    assert np.isnan(calibrated_s(works, load_architecture("tpuv3"))).all()


def test_a_serial_chip_loads_then_computes_then_stores():
    chip, law = load_architecture("tpuv4"), calibration_of("tpuv4").serial
    (seconds,) = calibrated_s([product(1, 100, 130, 128, element_bytes=4)], chip)
    # padded to 104 x 256 x 128: 8 rows of registers, arrays of 128 x 128
    compute = 2 * 104 * 256 * 128 / (law.efficiency * 2 * 8 * 128**2 * 1.05e9)
    load = 4 * (100 * 130 + 130 * 128) / (law.load_efficiency * 1200e9)
    store = 4 * 100 * 128 / (law.store_efficiency * 1200e9)
    assert seconds == pytest.approx(law.launch_s + load + compute + store)


@pytest.mark.parametrize("kind", Collective)
def test_collectives_on_a_switch_by_hand(kind):
    chip, law = load_architecture("h200"), calibration_of("h200").switch
    (seconds,) = calibrated_s([exchange(kind, 64e6, 4)], chip)
    wire = (2 if kind is Collective.ALL_REDUCE else 1) * 3 / 4 * 64e6 / 450e9
    efficiency = law.pair + (law.many - law.pair) * 2 / 3
    assert seconds == pytest.approx(
        law.launch_s + 3 * law.step_s + wire / efficiency + (law.ramp_s * wire) ** 0.5
    )
