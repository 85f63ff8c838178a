"""Area and power against published dies, worked examples and an independent scalar implementation.

Worked examples of GPUs follow the constants of docs/decisions/0013-silicon.md, ports and reads of the global buffer
those of docs/decisions/0042-on-chip-memory.md.
They leave out the 1.5 W that each HBM stack draws in the background, so they are compared with
the TDP less that part.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.hardware.architecture import Architecture, load_architecture, to_table
from phaze.hardware.derived_figures import peak_flops_per_s
from phaze.hardware.hardware_fields import default_values
from phaze.hardware.silicon.die_area import area_mm2, area_parts_mm2
from phaze.hardware.silicon.package_power import power_parts_w, tdp_w

MIB = 1 << 20
# logic, sram, energy, leakage, nominal GHz
NODES = {
    "N28": (3.90, 3.20, 2.10, 0.8, 0.95),
    "N16": (2.55, 2.40, 1.45, 0.8, 1.0),
    "N12": (2.50, 2.40, 1.40, 0.8, 1.35),
    "N8": (1.18, 1.50, 1.25, 0.9, 1.35),
    "N7": (1.0, 1.0, 1.0, 1.0, 1.3),
    "N6": (0.85, 0.95, 0.95, 1.0, 1.4),
    "N5": (0.645, 0.78, 0.82, 1.1, 1.5),
    "N4": (0.51, 0.78, 0.78, 1.1, 1.55),
    "N3": (0.45, 0.76, 0.66, 1.15, 1.7),
}
SITE_MM2 = {"HBM2": 11.5, "HBM2e": 14, "HBM3": 15, "HBM3e": 15, "HBM4": 17}
# voltage: floor, at rest, slope; ALU cycle in pJ and its share at full load; background W/mm2/GHz; busy ports
VLIW = (0.75, 0.65, 0.35, 8.0, 0.5, 0.067, 1.0, 1.0, 1.0)
GPU = (0.65, 0.47, 0.53, 19.5, 0.34, 0.063, 0.25, 0.32, 1.4)
HBM_PJ = {"HBM2": 4.5, "HBM2e": 4.5, "HBM3": 4.3, "HBM3e": 4.0, "HBM4": 3.5}


@dataclass(frozen=True)
class Chip:
    """Structural inputs of one chip: physical units, MiB, GB/s (links: both directions), GHz."""

    node: str
    arrays: int
    rows: int
    columns: int
    alus: int
    int32: int
    fp64: int
    registers: float
    local: float
    buffer: float
    cache: bool
    sites: int
    generation: str
    hbm: float
    links: float
    clock: float
    simt: bool = False
    enabled: tuple[int, int] = (1, 1)
    links_on_die: float | None = None
    port_bytes: int = 4096


CHIPS = {
    "TPUv2": Chip(
        "N16", 2, 128, 128, 4096, 0, 0, 0.25, 32, 0, False, 4, "HBM2", 700, 496, 0.70, port_bytes=1
    ),
    "TPUv3": Chip(
        "N16", 4, 128, 128, 4096, 0, 0, 0.25, 32, 0, False, 4, "HBM2", 900, 656, 0.94, port_bytes=1
    ),
    "TPUv4i": Chip("N7", 4, 128, 128, 2048, 0, 0, 0.13, 16, 128, False, 2, "HBM2", 614, 200, 1.05),
    "TPUv4": Chip("N7", 8, 128, 128, 4096, 0, 0, 0.25, 42, 128, False, 4, "HBM2", 1200, 600, 1.05),
    "V100": Chip(
        *("N12", 672, 8, 8, 5376, 5376, 2688, 21, 10.5, 6, True, 4, "HBM2", 900, 332, 1.38, True, (80, 84)),
        port_bytes=2048,
    ),
    "A100": Chip(
        *(
            "N7",
            512,
            16,
            16,
            8192,
            8192,
            4096,
            32,
            24,
            48,
            True,
            6,
            "HBM2e",
            1555,
            664,
            1.29,
            True,
            (108, 128),
        ),
        port_bytes=5120,
    ),
    "H100": Chip(
        *(
            "N4",
            576,
            32,
            16,
            18432,
            9216,
            9216,
            36,
            36,
            60,
            True,
            6,
            "HBM3",
            3350,
            1028,
            1.45,
            True,
            (132, 144),
        ),
        port_bytes=5120,
    ),
    "MI210": Chip(
        *(
            "N6",
            448,
            16,
            8,
            7168,
            7168,
            7168,
            56,
            8.75,
            8,
            True,
            4,
            "HBM2e",
            1638,
            364,
            1.40,
            True,
            (104, 112),
        ),
        links_on_die=863,
    ),
}
EXAMPLE = Chip("N5", 8, 128, 128, 4096, 0, 0, 0.25, 32, 128, False, 6, "HBM3", 4900, 900, 1.2)


def architecture(chip: Chip) -> Architecture:
    on, total = chip.enabled
    fields = {
        "node": chip.node,
        "tensor_cores": chip.arrays * on // total,
        "tensor_core_rows": chip.rows,
        "tensor_core_columns": chip.columns,
        "vector_cores": 1,
        "vector_core_alus": chip.alus * on // total,
        "int32_alus": chip.int32 * on // total,
        "fp64_alus": chip.fp64 * on // total,
        "register_bytes": chip.registers * MIB * on / total,
        "local_buffer_bytes": chip.local * MIB * on / total,
        "global_buffer_bytes": int(chip.buffer * MIB),
        "global_buffer_bytes_per_cycle": chip.port_bytes,
        "global_buffer_kind": "cache" if chip.cache else "scratchpad",
        "hbm_stacks": chip.sites,
        "hbm_generation": chip.generation,
        "hbm_bandwidth_bytes_per_s": chip.hbm * 1e9,
        "link_bandwidth_bytes_per_s": chip.links * 1e9 / 2,
        "clock_hz": chip.clock * 1e9,
        "simt": chip.simt,
        "enabled_fraction": on / total,
    }
    if chip.links_on_die is not None:
        fields["link_on_die_bytes_per_s"] = chip.links_on_die * 1e9 / 2
    return Architecture(name="chip", fields={**default_values(), **fields})


def table_of(*chips: Chip):
    return to_table([architecture(chip) for chip in chips])


def by_hand(chip: Chip) -> tuple[float, float]:
    """Area in mm2 and power in W without HBM background, written down a second time, scalar by scalar."""
    logic, sram, energy, leak, nominal = NODES[chip.node]
    cores = logic * 1e-6 * (
        700 * chip.arrays * chip.rows * chip.columns
        + chip.alus * (1000 + 11100 * chip.simt)
        + 330 * chip.int32
        + 4000 * chip.fp64
    ) + sram * (3.0 * chip.registers + 2.5 * chip.local)
    core = cores + sram * (1.1 if chip.cache else 0.71) * chip.buffer + logic * 0.0052 * chip.port_bytes
    on_die = max(chip.links, chip.links_on_die or 0.0)
    io = chip.sites * SITE_MM2[chip.generation] * (0.6 + 0.4 * logic) + 0.05 * on_die * (0.5 + 0.5 * logic)
    area = 1.5 * core + io + 15 * logic
    floor, rest, slope, lane, activity, background, busy, memory, product = GPU if chip.simt else VLIW
    v2 = max(floor, rest + slope * chip.clock / nominal) ** 2
    on = chip.enabled[0] / chip.enabled[1]
    macs = chip.arrays * chip.rows * chip.columns * on
    # GHz x pJ = mW
    array = (
        product
        * macs
        * chip.clock
        * (0.60 + 0.10 * (16 / chip.columns + 64 / chip.rows))
        * energy
        * v2
        * 1e-3
    )
    vector = chip.alus * on * chip.clock * lane * activity * energy * v2 * 1e-3
    buffer_pj_per_bit = 0.10 + 0.03 * (chip.buffer * 1024 / 64) ** 0.5
    ports = chip.port_bytes * chip.clock * 8 * buffer_pj_per_bit * busy * energy * v2 * 1e-3
    powered = area - 1.5 * cores * (1 - on)
    leaking = v2 if chip.simt else v2 / 0.9326923**2
    chip_w = (array + vector + ports + powered * (background * chip.clock * v2 + 0.06 * leak * leaking)) / 0.9
    return area, chip_w + memory * chip.hbm * 8 * HBM_PJ[
        chip.generation
    ] * 1e-3 + chip.links * 8 * 6 * 0.5 * 1e-3


def without_hbm_background(table):
    return tdp_w(table) - power_parts_w(table)["hbm_background"]


@pytest.mark.parametrize(
    ("name", "area", "power"),
    [
        ("TPUv2", 551, 122),
        ("TPUv4i", 349, 175),
        ("V100", 929, 435),
        ("A100", 800, 466),
        ("TPUv3", 653, 217),
        ("TPUv4", 562, 286),
        ("H100", 807, 728),
        ("MI210", 617, 326),
    ],
)
def test_validation_table(name, area, power):
    table = table_of(CHIPS[name])
    assert area_mm2(table)[0] == pytest.approx(area, abs=0.6)
    assert without_hbm_background(table)[0] == pytest.approx(power, abs=0.7)


@pytest.mark.parametrize(
    ("name", "area", "power"),
    [
        ("tpuv2", 553, 145),
        ("tpuv4i", 349, 175),
        ("tpuv3", 656, 254),
        ("tpuv4", 562, 286),
    ],
)
def test_templates_give_the_validated_figures(name, area, power):
    table = to_table([load_architecture(name)])
    assert area_mm2(table)[0] == pytest.approx(area, rel=0.002)
    # The templates count only links between accelerators as active, the validation also the host's.
    assert without_hbm_background(table)[0] == pytest.approx(power, rel=0.01)


DIES = (
    "p4",
    "p100",
    "a100",
    "titan-rtx",
    "titan-xp",
    "a40",
    "l40s",
    "h200",
    "rtx-pro-6000",
    "mi25",
    "mi100",
    "mi250x",
)


@pytest.mark.parametrize("name", DIES)
def test_gpus_lie_near_their_published_figures(name):
    chip = load_architecture(name)
    table = to_table([chip])
    assert area_mm2(table)[0] == pytest.approx(chip.published_area_mm2, rel=0.1)
    assert tdp_w(table)[0] == pytest.approx(chip.published_tdp_w, rel=0.3)


def test_a100_parts():
    table = table_of(CHIPS["A100"])
    area = {name: part[0] for name, part in area_parts_mm2(table).items()}
    assert area["mac"] == pytest.approx(91.8, abs=0.06)
    assert area["lane"] + area["int32"] + area["fp64"] == pytest.approx(27.3, abs=0.06)
    assert area["registers"] == pytest.approx(96.0, abs=0.06)
    assert area["local"] == pytest.approx(60.0, abs=0.06)
    assert area["global"] * 1.5 == pytest.approx(119.3, abs=0.3)  # LLMCompass, die photo
    assert area["simt"] == pytest.approx(90.9, abs=0.06)
    assert area["hbm_phy"] + area["link"] == pytest.approx(117.2, abs=0.06)
    assert area["misc"] == pytest.approx(15.0)
    assert area["overhead"] == pytest.approx(222.7, abs=0.06)
    power = {name: part[0] for name, part in power_parts_w(table).items()}
    expected = {
        "mac": 132.1,
        "operands": 110.1,
        "vector": 65.2,
        "buffer": 13.6,
        "background": 64.0,
        "leakage": 47.2,
        "hbm": 17.9,
        "link": 15.9,
        "hbm_background": 9.0,
    }
    assert power == pytest.approx(expected, abs=0.06)


def test_tpuv4_parts():
    table = table_of(CHIPS["TPUv4"])
    area = {name: part[0] for name, part in area_parts_mm2(table).items()}
    assert area["mac"] == pytest.approx(91.8, abs=0.06)
    assert area["lane"] == pytest.approx(4.1, abs=0.06)
    assert area["local"] == pytest.approx(105, abs=0.06)
    assert area["global"] == pytest.approx(112.0, abs=0.3)  # CMEM of the TPU v4i, ports included
    assert area["hbm_phy"] + area["link"] == pytest.approx(76.0, abs=0.06)
    assert area["overhead"] == pytest.approx(156.9, abs=0.06)
    power = {name: part[0] for name, part in power_parts_w(table).items()}
    expected = {
        "mac": 79.8,
        "operands": 8.3,
        "vector": 16.6,
        "buffer": 48.5,
        "background": 38.2,
        "leakage": 37.4,
        "hbm": 43.2,
        "link": 14.4,
        "hbm_background": 6.0,
    }
    assert power == pytest.approx(expected, abs=0.06)


def test_example_design_at_5_nm():
    table = table_of(EXAMPLE)
    assert area_mm2(table)[0] == pytest.approx(438, abs=0.5)
    assert without_hbm_background(table)[0] == pytest.approx(399, abs=0.6)
    assert peak_flops_per_s(table)[0] == pytest.approx(315e12, rel=2e-3)


@pytest.mark.parametrize(
    ("size", "arrays", "power"), [(256, 2, 395), (64, 32, 407), (32, 128, 422), (16, 512, 453)]
)
def test_small_arrays_pay_for_operand_delivery(size, arrays, power):
    table = table_of(replace(EXAMPLE, arrays=arrays, rows=size, columns=size))
    assert without_hbm_background(table)[0] == pytest.approx(power, abs=0.6)


chips = st.builds(
    Chip,
    node=st.sampled_from(list(NODES)),
    arrays=st.integers(1, 512),
    rows=st.sampled_from([8, 16, 100, 256]),
    columns=st.sampled_from([8, 16, 100, 256]),
    alus=st.integers(1, 20000),
    int32=st.integers(0, 9000),
    fp64=st.integers(0, 9000),
    registers=st.floats(0, 64),
    local=st.floats(0, 64),
    buffer=st.integers(0, 256),
    cache=st.booleans(),
    sites=st.integers(1, 8),
    generation=st.sampled_from(list(SITE_MM2)),
    hbm=st.floats(100, 8000),
    links=st.floats(0, 2000),
    clock=st.floats(0.1, 2.0),
    simt=st.booleans(),
    links_on_die=st.none() | st.floats(0, 2000),
)


@given(st.lists(chips, min_size=1, max_size=4))
def test_equals_the_scalar_implementation(several):
    table = table_of(*several)
    area, power = np.array([by_hand(chip) for chip in several]).T
    np.testing.assert_allclose(area_mm2(table), area, rtol=1e-12)
    np.testing.assert_allclose(without_hbm_background(table), power, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("tpuv2", 46),
        ("tpuv3", 123),
        ("tpuv4", 275),
        ("tpuv4i", 138),
        ("v100", 125),
        ("a100", 312),
        ("h100", 989),
    ],
)
def test_peak_rate_is_the_published_one(name, tflops):
    assert peak_flops_per_s(to_table([load_architecture(name)]))[0] == pytest.approx(tflops * 1e12, rel=0.004)
