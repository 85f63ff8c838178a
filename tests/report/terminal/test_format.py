from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze.report import number_format as fmt


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1.0, "1.00"), (12.345, "12.3"), (999.6, "1,000"), (123456, "123,456"), (1e9, "1.00e+09")],
)
def test_three_significant_digits(value, text):
    assert fmt.number(value) == text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("clock_hz", 1.05e9, "1.05 GHz"),
        ("link_bandwidth_bytes_per_s", 3e11, "300 GB/s"),
        ("global_buffer_bytes", 2**27, "128 MiB"),
        ("area_mm2", 612.4, "612 mm2"),
        ("tdp_w", 398.0, "398 W"),
        ("iteration_time_s", 0.00342, "3.42 ms"),
        ("energy_per_iteration_j", 1.2e7, "12.0 MJ"),
        ("tensor_cores", 8, "8"),
        ("hbm_generation", "HBM3", "HBM3"),
        ("sparse", True, "True"),
    ],
)
def test_a_field_reads_in_its_unit(name, value, text):
    assert fmt.field(name, value) == text


@given(st.floats(min_value=1e-9, max_value=1e6))
def test_durations_keep_their_value(seconds):
    number, unit = fmt.duration(seconds).rsplit(" ", 1)
    factor = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]
    assert float(number.replace(",", "")) * factor == pytest.approx(seconds, rel=6e-3)


@given(st.floats(min_value=1, max_value=1e15))
def test_memory_keeps_its_value(size):
    number, unit = fmt.memory(size).rsplit(" ", 1)
    power = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].index(unit)
    assert float(number.replace(",", "")) * 1024**power == pytest.approx(size, rel=6e-3)
