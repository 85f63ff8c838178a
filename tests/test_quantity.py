from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze import quantity as q
from phaze.errors import InputError

# Expected values worked out by hand from the SI and IEC prefixes.
RIGHT = [
    (q.parse_power, "400W", 400.0),
    (q.parse_power, "0.4 kW", 400.0),
    (q.parse_power, "4e2W", 400.0),
    (q.parse_area, "800mm2", 800.0),
    (q.parse_area, "8cm2", 800.0),
    (q.parse_area, "8 cm^2", 800.0),
    (q.parse_area, "8cm²", 800.0),
    (q.parse_power_density, "0.8W/mm2", 0.8),
    (q.parse_power_density, "80 W/cm^2", 0.8),
    (q.parse_power_density, "0.5kW/cm²", 5.0),
    (q.parse_size, "80GiB", 80 * 2**30),
    (q.parse_size, "80GB", 80e9),
    (q.parse_size, "3MiB", 3 * 2**20),
    (q.parse_size, "3MB", 3e6),
    (q.parse_size, "3KiB", 3072.0),
    (q.parse_size, "3kB", 3000.0),
    (q.parse_rate, "300GB/s", 3e11),
    (q.parse_rate, "8Gbit/s", 1e9),
    (q.parse_frequency, "1.05GHz", 1.05e9),
    (q.parse_time, "10s", 10.0),
    (q.parse_time, "2min", 120.0),
    (q.parse_time, "500ms", 0.5),
    (q.parse_time, "10", 10.0),
]
WRONG = [
    (q.parse_power, "400"),
    (q.parse_power, "400w"),
    (q.parse_power, "-400W"),
    (q.parse_power, "0W"),
    (q.parse_power, "nan"),
    (q.parse_power, "nanW"),
    (q.parse_power, "inf"),
    (q.parse_power, "1e400W"),
    (q.parse_power, "4kg"),
    (q.parse_power, ""),
    (q.parse_power, "W"),
    (q.parse_power, "400W 3"),
    (q.parse_power, "4W/0"),
    (q.parse_area, "800"),
    (q.parse_area, "800mm"),
    (q.parse_power_density, "0.8"),
    (q.parse_power_density, "0.8W/mm"),
    (q.parse_size, "80"),
    (q.parse_size, "80Gb"),
    (q.parse_size, "3rad"),
    (q.parse_rate, "300GHz"),
    (q.parse_rate, "300GB"),
    (q.parse_frequency, "5rad/s"),
    (q.parse_time, "-1"),
    (q.parse_time, "0"),
    (q.parse_time, "10W"),
]


@pytest.mark.parametrize(("parser", "text", "expected"), RIGHT)
def test_right_quantities(parser, text, expected):
    assert parser(text) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("parser", "text"), WRONG)
def test_wrong_quantities_say_what_would_be_right(parser, text):
    with pytest.raises(InputError, match="for example") as caught:
        parser(text, "--flag")
    assert str(caught.value).startswith(f"--flag {text!r}")


@given(st.text(max_size=12))
def test_no_text_escapes_as_another_error(text):
    for parser in (q.parse_power, q.parse_area, q.parse_size, q.parse_rate, q.parse_frequency, q.parse_time):
        try:
            value = parser(text)
        except InputError:
            continue
        assert math.isfinite(value)
        assert value > 0


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_prefixes_scale(value):
    assert q.parse_power(f"{value!r}kW") == pytest.approx(1000 * q.parse_power(f"{value!r}W"), rel=1e-12)


def test_pint_is_imported_only_when_a_unit_is_parsed():
    code = "import sys, phaze.quantity as q; q.parse_time('10'); assert 'pint' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
