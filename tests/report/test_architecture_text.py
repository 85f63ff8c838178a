"""`dse archs show`: a file that reads back, and what the model makes of the chip."""

import re

import pytest

from phaze.hardware.architecture import list_architectures, load_architecture, parse_architecture
from phaze.report.terminal.architecture_yaml import architecture_text, derived_lines


@pytest.mark.parametrize("name", list_architectures())
def test_the_text_is_the_architecture(name):
    chip = load_architecture(name)
    assert parse_architecture(architecture_text(chip), "shown") == chip


def test_fields_have_units_and_defaults_their_source():
    lines = architecture_text(load_architecture("a100")).splitlines()
    (clock,) = (line for line in lines if line.startswith("  clock_hz:"))
    assert clock.endswith("}  # Hz")
    assert "  n_dies: 1  # 1, default: one: a single-die accelerator" in lines


def test_derived_figures_stand_beside_the_published_ones():
    lines = list(derived_lines(load_architecture("a100")))
    assert any(line.startswith("area ") and line.endswith("published 826") for line in lines)
    assert any("bf16 311.9, tf32 155.9, fp32 19.49" in line for line in lines)
    (cost,) = (line for line in lines if line.startswith("cost to make "))
    parts = [float(x.replace(",", "")) for x in re.findall(r" ([\d,]+)(?: USD|[,;])", cost)]
    assert parts[0] == pytest.approx(sum(parts[1:]), abs=2.5)
    assert not any("warning" in line for line in lines)
    (power,) = (line for line in derived_lines(load_architecture("tpuv4i")) if line.startswith("power at"))
    assert power.endswith("published 175")


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        ({"global_buffer_bytes": 1 << 30}, "of the 858 mm2 of a reticle"),
        ({"hbm_stacks": 24}, "no room for all memory interfaces"),
        ({"clock_hz": 3e9, "peak_clock_hz": 3e9}, "above 1.5 W/mm2"),
    ],
)
def test_warnings(fields, warning):
    odd = load_architecture("tpuv4").replace("odd", **fields)
    assert any(line.startswith("warning: ") and warning in line for line in derived_lines(odd))
