"""Losses of software alike for all systolic chips, ideal hardware, and rates that never slow a known chip."""

import numpy as np
import pytest
from cost_cases import NETWORK, grid, transformer_layer

from phaze.cost.cost_model import CostModel
from phaze.cost.fidelity import JUDGED, Fidelity, check_judged
from phaze.cost.software_losses import NO_LOSSES, losses_told, software_losses
from phaze.errors import InputError
from phaze.hardware.architecture import list_architectures, load_architecture, to_table
from phaze.hardware.derived_figures import hbm_bandwidth_bytes_per_s, peak_clock_hz
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.workload.work import Unit

LAYER = transformer_layer()
CHIPS = sorted(list_architectures())
FIDELITIES = (Fidelity.IDEAL, Fidelity.ANALYTIC)


def fastest_s(table, fidelity):
    return CostModel(table, NETWORK, fidelity).fastest_s(LAYER.works, np.arange(len(table)))


def test_software_only_ever_loses():
    table = grid(tensor_cores=(1, 8), tensor_core_rows=(16, 128), hbm_stacks=(1, 4), clock_hz=(0.5e9, 1e9))
    ideal, real = (fastest_s(table, fidelity) for fidelity in FIDELITIES)
    computing = np.array([work.unit is not Unit.LINK for work in LAYER.works])
    lost = software_losses(Fidelity.ANALYTIC)
    assert (real[:, computing] >= (ideal[:, computing] + lost.operator_s) * (1 - 1e-12)).all()
    least = min(lost.array_efficiency, lost.memory_efficiency)
    assert (real[:, computing] <= ideal[:, computing] / least + lost.operator_s * (1 + 1e-9)).all()
    np.testing.assert_array_equal(real[:, ~computing], ideal[:, ~computing])
    assert software_losses(Fidelity.IDEAL) == NO_LOSSES


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_bounds_stay_below_the_latency_of_a_pass(fidelity):
    table = grid(
        tensor_cores=(1, 8), tensor_core_rows=(16, 128), hbm_stacks=(1, 4), vector_core_alus=(64, 512)
    )
    costs, rows = CostModel(table, NETWORK, fidelity).costs(LAYER), np.arange(len(table))
    serial = fastest_s(table, fidelity).sum(axis=1)
    assert (costs.lower_s(rows) <= serial * (1 + 1e-12)).all()


@pytest.mark.parametrize("name", CHIPS)
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_more_of_a_rate_never_slows_a_known_chip(name, fidelity):
    """Also across the chip's own figure, which may have come with others."""
    chip = load_architecture(name)
    table = to_table([chip])
    own = {
        "clock_hz": float(table["clock_hz"][0]),
        "peak_clock_hz": float(peak_clock_hz(table)[0]),
        "hbm_bandwidth_bytes_per_s": float(hbm_bandwidth_bytes_per_s(table)[0]),
        "link_bandwidth_bytes_per_s": float(table["link_bandwidth_bytes_per_s"][0]),
        "global_buffer_bytes_per_cycle": float(table["global_buffer_bytes_per_cycle"][0]),
    }
    for field, value in own.items():
        faster = [chip.replace("faster", **{field: value * x}) for x in (0.7, 0.9, 0.99, 1.0, 1.01, 1.1, 2.0)]
        seconds = fastest_s(to_table(faster), fidelity)
        assert (seconds[1:] <= seconds[:-1] * (1 + 1e-9)).all(), field


COUNTED = (
    *("tensor_cores", "vector_core_alus", "int32_alus", "global_buffer_bytes", "local_buffer_bytes"),
    *("register_bytes", "hbm_capacity_bytes", "hbm_stacks"),
)
"""What a chip may have more of. Not its shapes: products leave more of a larger array empty, and more of twice as many
multiprocessors of half the size idle in a last wave."""
PAID = (
    "clock_hz",
    "hbm_bandwidth_bytes_per_s",
    "link_bandwidth_bytes_per_s",
    "global_buffer_bytes_per_cycle",
)
_LISTED = ("phaze",)  # areas by a table of sizes, with no others
_CROWDED = {"nvdla-like": "tensor_cores"}
"""Local buffers of 16 KiB in all: twice as many cores keep half as much each, and read operands again."""


@pytest.mark.parametrize("name", [chip for chip in CHIPS if not chip.startswith(_LISTED)])
def test_more_of_anything_slows_no_known_chip_and_what_speeds_it_up_costs_area_or_power(name):
    chip = load_architecture(name)
    given = {field: float(chip.value(field) or 0.0) for field in (*COUNTED, *PAID)}
    fields = [field for field, value in given.items() if value > 0 and _CROWDED.get(name) != field]
    more = [chip.replace(field, **{field: 2 * chip.value(field)}) for field in fields]
    table = to_table([chip, *more])
    seconds, watts, area = fastest_s(table, Fidelity.ANALYTIC), tdp_w(table), area_mm2(table)
    for i, field in enumerate(fields, start=1):
        assert (seconds[i] <= seconds[0] * (1 + 1e-9)).all(), field
        faster = (seconds[i] < seconds[0] * (1 - 1e-9)).any()
        assert not faster or watts[i] > watts[0] or area[i] > area[0], field


def test_fidelities_say_what_software_loses():
    assert "no chip loses" in losses_told("ideal")
    assert len({losses_told(fidelity) for fidelity in ("ideal", "analytic", "calibrated")}) == 3


def test_measurements_do_not_judge_ideal_hardware():
    with pytest.raises(InputError, match="rung ideal leaves software out"):
        check_judged(Fidelity.IDEAL)
    for fidelity in JUDGED:
        check_judged(fidelity)
