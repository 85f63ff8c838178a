"""The tile law: physical limits, monotonicity, and hand-worked cases."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.cost.kernels.fitted import fitted, law_of
from phaze.cost.kernels.kernel import kernels_s
from phaze.cost.kernels.products import Products, SimtLaw, products_s, simt_chip
from phaze.cost.kernels.serial import SerialLaw
from phaze.cost.rung import Rung
from phaze.cost.switched import SwitchLaw
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.derived import product_flops_per_s
from phaze.hardware.fields import field_table
from phaze.validation.operators import exchange, product, softmax
from phaze.workload.work import Collective

TABLE = to_table([load_architecture("a100-80gb")])
A100 = simt_chip(TABLE)
PEAK = 312e12
LAW = law_of(SimtLaw, "products.yaml", "ampere")
EXTENT = st.integers(1, 20_000)
# one multiprocessor's worth of everything, nothing lost: what is left are tiles and waves
IDEAL = SimtLaw(1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1e30, 0.0, 0.0, 0.0)


def seconds(m, k, n, groups=1, law=LAW, chip=A100):
    sizes = [np.array([float(v)]) for v in (groups, m, k, n)]
    bytes_ = 2.0 * sizes[0] * (sizes[1] * sizes[2] + sizes[2] * sizes[3] + sizes[1] * sizes[3])
    return float(products_s(Products(*sizes, bytes_, np.array([PEAK])), chip, law)[0])


def test_fields_of_the_a100():
    assert (A100.multiprocessors, A100.clock_hz) == (108, 1.41e9)
    assert product_flops_per_s(TABLE, "bf16")[0] == pytest.approx(PEAK, rel=1e-3)
    assert product_flops_per_s(TABLE, None)[0] == product_flops_per_s(TABLE, "fp16")[0]
    assert product_flops_per_s(TABLE, "fp32")[0] == pytest.approx(19.5e12, rel=1e-2)


@given(EXTENT, EXTENT, EXTENT, st.integers(1, 64))
def test_never_above_the_peak(m, k, n, groups):
    assert seconds(m, k, n, groups) > 2.0 * m * k * n * groups / PEAK


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


def calibrated_s(works, chip):
    return kernels_s(works, to_table([load_architecture(chip)]), Rung.CALIBRATED)[0]


@pytest.mark.parametrize(
    ("kind", "file"), [(SimtLaw, "products.yaml"), (SerialLaw, "serial.yaml"), (SwitchLaw, "links.yaml")]
)
def test_families_with_constants_are_choices_of_the_field(kind, file):
    assert set(fitted(kind, file)) <= set(field_table()["family"].choices)


def test_nothing_is_said_where_nothing_is_fitted():
    works = (product(1, 512, 512, 512), softmax(512, 512))
    on_gpu = calibrated_s(works, "h200")
    assert on_gpu[0] > 0
    assert np.isnan(on_gpu[1])
    assert np.isnan(calibrated_s(works, "tpuv3")).all()


def test_a_serial_chip_loads_then_computes_then_stores():
    law = law_of(SerialLaw, "serial.yaml", "tpu-v4")
    (seconds,) = calibrated_s([product(1, 100, 130, 128, element_bytes=4)], "tpuv4")
    # padded to 104 x 256 x 128: 8 rows of registers, arrays of 128 x 128
    compute = 2 * 104 * 256 * 128 / (law.efficiency * 2 * 8 * 128**2 * 1.05e9)
    load = 4 * (100 * 130 + 130 * 128) / (law.load_efficiency * 1200e9)
    store = 4 * 100 * 128 / (law.store_efficiency * 1200e9)
    assert seconds == pytest.approx(law.launch_s + load + compute + store)


@pytest.mark.parametrize("kind", Collective)
def test_collectives_on_a_switch_by_hand(kind):
    law = law_of(SwitchLaw, "links.yaml", "hopper")
    (seconds,) = calibrated_s([exchange(kind, 64e6, 4)], "h200")
    wire = (2 if kind is Collective.ALL_REDUCE else 1) * 3 / 4 * 64e6 / 450e9
    efficiency = law.pair + (law.many - law.pair) * 2 / 3
    assert seconds == pytest.approx(
        law.launch_s + 3 * law.step_s + wire / efficiency + (law.ramp_s * wire) ** 0.5
    )
