"""Kernels alone on chips: constants and choices of laws, products one after the other, collectives."""

from dataclasses import replace

import numpy as np
import pytest

from phaze.cost.fidelity import Fidelity
from phaze.cost.kernels.fitted_constants import Constants, fitted_constants, law_of
from phaze.cost.kernels.kernel_laws import kernels_s
from phaze.cost.kernels.link_constants import law_file
from phaze.cost.kernels.quantise_kernel import PER_BLOCK, PER_TENSOR, TO_FP4, QuantiseLaw, quantisation
from phaze.cost.kernels.simt_products import SimtLaw, simt_law, simt_products_s, sustained_clock
from phaze.cost.kernels.systolic_programs import SerialLaw
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.hardware_fields import field_table
from phaze.hardware.network_tiers import LinkLaw, Medium
from phaze.validation.measured.single_operators import exchange, product
from phaze.workload.work import Collective, Format, Traffic


def calibrated_s(works, chip):
    return kernels_s(works, to_table([load_architecture(chip)]), Fidelity.CALIBRATED)[0]


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        (SimtLaw, "products.yaml"),
        (SimtLaw, "products_fp32.yaml"),
        (QuantiseLaw, "quantise.yaml"),
        (SerialLaw, "serial.yaml"),
        *((LinkLaw, law_file(medium)) for medium in Medium),
    ],
)
def test_families_with_constants_are_choices_of_the_field(kind, file):
    assert set(fitted_constants(kind, file)) <= set(field_table()["family"].choices)


def test_nothing_is_said_where_nothing_is_fitted():
    one = product(1, 512, 512, 512)
    fused = replace(one, gemms=tuple(replace(g, traffic=Traffic.FUSED) for g in one.gemms))
    on_gpu = calibrated_s((one, fused), "h200")
    assert on_gpu[0] > 0
    assert np.isnan(on_gpu[1])


def test_several_products_of_one_operator_run_one_after_the_other():
    one = product(1, 512, 512, 512)
    alone, twice = calibrated_s((one, replace(one, gemms=one.gemms * 2)), "h200")
    assert twice == pytest.approx(2 * alone)


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
    law = law_of(LinkLaw, law_file(Medium.DIRECT), "hopper")
    ranks = 2 if kind is Collective.SEND_RECV else 4
    (seconds,) = calibrated_s([exchange(kind, 64e6, ranks)], "h200")
    steps, sent, copied, ramp_s = 3, 3 / 4, 1 / 4, law.ramp_s
    if kind is Collective.ALL_REDUCE:
        steps, sent = 6, 6 / 4
    if kind is Collective.SEND_RECV:
        steps, sent, copied, ramp_s = 1, 1, 0, 0.0
    wire = (sent + law.delta * copied) * 64e6 / (law.efficiency * 450e9)
    assert seconds == pytest.approx(law.launch_s + steps * law.step_s + wire + (ramp_s * wire) ** 0.5)


def test_each_arithmetic_has_constants_of_its_own():
    assert simt_law(Format.FP32, Constants("ampere")) != simt_law(Format.BF16, Constants("ampere"))
    assert simt_law(None, Constants("ampere")) == simt_law(Format.FP8, Constants("ampere"))
    ampere, hopper = (simt_law(Format.FP32, Constants(family)) for family in ("ampere", "hopper"))
    assert replace(hopper, sustained=ampere.sustained) == ampere  # its kernels at another clock


def test_a_mixed_list_is_costed_format_by_format():
    works = [product(1, 512, 512, 512, operands=f) for f in (Format.FP32, Format.BF16, Format.FP8, None)]
    alone = [calibrated_s([work], "h200")[0] for work in works]
    assert calibrated_s(works, "h200") == pytest.approx(alone)
    assert alone[1] == alone[3]  # bf16 is what these tensor cores take
    assert alone[0] > alone[1] > alone[2]


def test_scaling_to_8_bits_by_hand():
    law = law_of(QuantiseLaw, "quantise.yaml", "hopper")
    whole, blocks = (quantisation(4096, 2048, kind) for kind in (PER_TENSOR, PER_BLOCK))
    by_tensor = law.tensor_launch_s + 5 * 4096 * 2048 / (law.tensor_efficiency * 4.8e12)
    by_block = law.block_launch_s + 3 * 4096 * 2048 / (law.block_efficiency * 4.8e12)
    assert calibrated_s([whole, blocks], "h200") == pytest.approx([by_tensor, by_block])
    law = law_of(QuantiseLaw, "quantise.yaml", "blackwell")
    to_fp4 = law.fp4_launch_s + (2 + 1 / 2 + 1 / 16) * 4096 * 2048 / (law.fp4_efficiency * 8e12)
    assert calibrated_s([quantisation(4096, 2048, TO_FP4)], "gb200") == pytest.approx([to_fp4])


def test_operands_in_4_bits_have_a_power_limit_of_their_own():
    """Twice the peak of 8 bits, less of it sustained; families that say nothing hold them to the share of 8 bits."""
    law = law_of(SimtLaw, "products.yaml", "blackwell")
    works = [product(1, 16384, 16384, 16384, 1, operands=f) for f in (Format.FP8, Format.FP4)]
    eight, four = calibrated_s(works, "gb200")
    table = to_table([load_architecture("gb200")])
    clocks = sustained_clock(table, Format.FP4) / sustained_clock(table, Format.FP8)
    assert eight / four == pytest.approx(2 * clocks * law.fp4_sustained / law.narrow_sustained, rel=0.1)
    gemms = [work.gemms[0] for work in works]
    silent = simt_products_s(gemms, table, replace(law, fp4_sustained=None))
    assert silent[0] / silent[1] == pytest.approx(2 * clocks, rel=0.1)
