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


def test_fidelities_say_what_software_loses():
    assert "no chip loses" in losses_told("ideal")
    assert len({losses_told(fidelity) for fidelity in ("ideal", "analytic", "calibrated")}) == 3


def test_measurements_do_not_judge_ideal_hardware():
    with pytest.raises(InputError, match="rung ideal leaves software out"):
        check_judged(Fidelity.IDEAL)
    for fidelity in JUDGED:
        check_judged(fidelity)
