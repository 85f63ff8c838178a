"""Peak rates of products by format against the vendors' data sheets (dense, TFLOP/s or TOPS)."""

from dataclasses import fields

import numpy as np
import pytest

from phaze.hardware.architecture import list_architectures, load_architecture, to_table
from phaze.hardware.derived_figures import (
    macs,
    peak_flops_per_s,
    product_flops_per_s,
    under_load,
    vector_alus,
)
from phaze.hardware.silicon.die_area import area_parts_mm2
from phaze.hardware.silicon.package_power import energy_constants, power_parts_w

# Data sheets and whitepapers of the vendors; GeForce cards with fp32 sums.
PUBLISHED = {
    "titan-x-maxwell": {"fp32": 6.7},
    "m40": {"fp32": 6.84},
    "p4": {"fp32": 5.7, "int8": 22},
    "p100": {"fp32": 9.3, "fp16": 18.7},
    "p100-sxm2": {"fp32": 10.6, "fp16": 21.2},
    "titan-xp": {"fp32": 12.15},
    "titan-x-pascal": {"fp32": 11},
    "gtx-1080-ti": {"fp32": 11.3},
    "v100": {"fp32": 15.7, "fp16": 125, "int8": 62},
    "v100-pcie": {"fp32": 14, "fp16": 112},
    "t4": {"fp32": 8.1, "fp16": 65, "int8": 130},
    "titan-rtx": {"fp32": 16.3, "fp16": 130.5, "int8": 261},
    "rtx-2080-ti": {"fp32": 13.4, "fp16": 53.8, "int8": 215.2},
    "a100": {"fp32": 19.5, "tf32": 156, "bf16": 312, "fp16": 312, "int8": 624},
    "a100-80gb": {"fp32": 19.5, "tf32": 156, "bf16": 312, "fp16": 312, "int8": 624},
    "a100-pcie-40gb": {"fp32": 19.5, "tf32": 156, "bf16": 312, "int8": 624},
    "a100-pcie-80gb": {"fp32": 19.5, "tf32": 156, "bf16": 312, "int8": 624},
    "a30": {"fp32": 10.3, "tf32": 82, "bf16": 165, "int8": 330},
    "a40": {"fp32": 37.4, "tf32": 74.8, "bf16": 149.7, "int8": 299.3},
    "rtx-a5000": {"fp32": 27.8, "bf16": 111.1},
    "rtx-3090": {"fp32": 35.6, "tf32": 35.6, "bf16": 71, "int8": 284},
    "l4": {"fp32": 30.3, "tf32": 60, "bf16": 121, "fp8": 242, "int8": 242},
    "l40": {"fp32": 90.5, "tf32": 90.5, "bf16": 181, "fp8": 362, "int8": 362},
    "l40s": {"fp32": 91.6, "tf32": 183, "bf16": 362, "fp8": 733, "int8": 733},
    "rtx-4090": {"fp32": 82.6, "tf32": 82.6, "bf16": 165.2, "fp8": 330.3, "int8": 660.6},
    "h100": {"fp32": 66.9, "tf32": 494.7, "bf16": 989.4, "fp8": 1978.9, "int8": 1978.9},
    "h100-pcie": {"fp32": 51.2, "tf32": 378, "bf16": 756, "fp8": 1513, "int8": 1513},
    "h200": {"fp32": 66.9, "tf32": 494.7, "bf16": 989.4, "fp8": 1978.9, "int8": 1978.9},
    "h800": {"bf16": 989.4, "fp4": 1978.9, "fp8": 1978.9},  # fp4 at the rate of fp8 where there is none
    "gh200": {"fp32": 66.9, "bf16": 989.4, "fp8": 1978.9},
    "b200": {"fp32": 80, "tf32": 1125, "bf16": 2250, "fp4": 9000, "fp8": 4500, "int8": 4500},
    "gb200": {"fp32": 80, "tf32": 1250, "bf16": 2500, "fp4": 10000, "fp8": 5000, "int8": 5000},
    "b300": {"bf16": 2250, "fp4": 13500, "fp8": 4500},
    "gb300": {"bf16": 2500, "fp4": 15000, "fp8": 5000},
    "rtx-pro-6000": {"fp32": 120},
    "mi25": {"fp32": 12.3, "fp16": 24.6},
    "vega-fe": {"fp32": 13.1, "fp16": 26.2},
    "mi100": {"fp32": 46.1, "fp16": 184.6, "bf16": 92.3, "int8": 184.6},
    "mi210": {"fp32": 45.3, "fp16": 181, "bf16": 181, "int8": 181},
    "mi250": {"fp32": 45.3, "fp16": 181},
    "mi250x": {"fp32": 95.7, "fp16": 383, "bf16": 383, "int8": 383},
    "mi300x": {"fp32": 163.4, "tf32": 653.7, "bf16": 1307, "fp8": 2614, "int8": 2614},
    "mi355x": {"fp32": 157.3, "bf16": 2517, "fp8": 5033},
    "arc-pro-b60": {"fp32": 12.3, "fp16": 98.3, "int8": 197},
    "tpuv2": {"bf16": 46},
    "tpuv3": {"bf16": 123},
    "tpuv4i": {"bf16": 138, "int8": 138},
    "tpuv4": {"bf16": 275, "int8": 275},
    "tpuv5e": {"bf16": 197, "int8": 394},
    "tpuv5p": {"bf16": 459, "int8": 918},
    "tpuv6e": {"bf16": 918, "int8": 1836},
    "tpuv7": {"bf16": 2307, "fp8": 4614},
    "tpuv7-chiplet": {"bf16": 1153.5, "fp8": 2307},
    "gaudi2": {"bf16": 432, "fp8": 865},
    "gaudi3": {"bf16": 1677, "fp8": 1677},
    "trainium1": {"bf16": 190, "fp8": 190, "fp32": 47.5},
    "trainium2": {"bf16": 667, "fp8": 1299, "fp32": 181},
}
OF_VECTOR_ALUS = [n for n in list_architectures() if load_architecture(n).value("vector_products")]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_peaks(name):
    table = to_table([load_architecture(name)])
    peaks = {f: float(product_flops_per_s(table, f)[0]) / 1e12 for f in PUBLISHED[name]}
    assert peaks == pytest.approx(PUBLISHED[name], rel=0.02)


def test_clock_under_load_is_never_above_the_sustained_one():
    loaded = load_architecture("gb200").replace("loaded", loaded_clock_hz=1.3e9)
    table = to_table([load_architecture("h100"), loaded, load_architecture("gb200")])
    slow = table.replace(clock_hz=np.full(3, 1e9))
    assert (under_load(table)["clock_hz"] == [1.5e9, 1.3e9, 1.65e9]).all()
    assert (under_load(slow)["clock_hz"] == 1e9).all()
    assert (peak_flops_per_s(under_load(table)) == peak_flops_per_s(table)).all()


@pytest.mark.parametrize("name", OF_VECTOR_ALUS)
def test_chips_without_tensor_cores_count_their_alus_once(name):
    table = to_table([load_architecture(name)])
    assert macs(table) == vector_alus(table)
    assert peak_flops_per_s(table) == product_flops_per_s(table, "fp32")
    assert area_parts_mm2(table)["mac"] == 0
    power, energy = power_parts_w(table), energy_constants(table)
    assert power["vector"] == power["operands"] == 0
    assert power["mac"] == macs(table) * table["clock_hz"] * energy.alu_cycle_j


def test_energies_of_one_chip_are_worked_out_once_and_are_those_among_others():
    both = to_table([load_architecture("a100"), load_architecture("h100")])
    alone, among = both.take([1]), energy_constants(both)
    assert energy_constants(alone) is energy_constants(alone)
    assert all(
        np.array_equal(getattr(energy_constants(alone), f.name), getattr(among, f.name)[1:])
        for f in fields(among)
    )


def test_tensor_cores_need_silicon_of_their_own():
    chip = load_architecture("a100")
    without = to_table([chip.replace("without", vector_products=True)])
    lost = {k: area - area_parts_mm2(without)[k] for k, area in area_parts_mm2(to_table([chip])).items()}
    assert {name for name, area in lost.items() if np.any(area > 0)} == {"mac", "overhead"}
