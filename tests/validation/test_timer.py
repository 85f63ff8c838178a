"""What timers add to kernels, and which one stands for a device."""

import pytest

from phaze.validation.measured.measured_cases import EXACT, Timer, timer_of


@pytest.mark.parametrize(
    ("timer", "kernel_s", "shown_s"),
    [
        (EXACT, 3e-6, 3e-6),
        (Timer(lag_s=10e-6, floor_s=25e-6), 3e-6, 25e-6),
        (Timer(lag_s=10e-6, floor_s=25e-6), 100e-6, 110e-6),
        (Timer(tick_s=1e-6), 2.4e-6, 2e-6),
        (Timer(tick_s=1e-6), 0.2e-6, 1e-6),
    ],
)
def test_readings(timer, kernel_s, shown_s):
    assert timer.reading_s(kernel_s) == pytest.approx(shown_s)


def test_the_first_host_that_is_found_counts():
    amd, other = (
        timer_of("op_vector_neusight_fp32", name, "add") for name in ("AMD Instinct MI100", "Tesla P4")
    )
    assert amd.floor_s < other.floor_s
    assert timer_of("op_vector_neusight_fp32", "a chip of tomorrow", "add") == other


def test_host_work_of_an_operator_scales_lag_and_floor():
    add, norm = (timer_of("op_vector_neusight_fp32", "Tesla T4", op) for op in ("add", "layernorm"))
    assert norm.floor_s / add.floor_s == pytest.approx(norm.lag_s / add.lag_s)
    assert norm.floor_s > add.floor_s


def test_sets_without_an_entry_are_exact():
    assert timer_of("op_gemm_tpu_v4", "TPU v4") == EXACT
