"""Areas of parts, read from photos of dies, against the model's."""

from pathlib import Path

import pytest

from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.silicon.die_area import area_mm2
from phaze.validation.measured.measurement_columns import read_columns
from phaze.validation.measured.measurement_schemas import TABLES
from phaze.validation.sets.silicon_measurements import areas, breakdown, powers

PHOTO = """chip,component,area_mm2
A100 (GA100),cores,476
A100 (GA100),on_chip_interconnect,76
A100 (GA100),global_buffer_L2,119
A100 (GA100),memory_phy,58
A100 (GA100),memory_control,32
A100 (GA100),off_chip_interconnect_phy,21
A100 (GA100),other,40
A100 (GA100),moonlight,1
IPU Bow,cores,500
"""


def test_components_are_joined_to_parts_that_make_the_die(tmp_path: Path) -> None:
    path = tmp_path / "chip_area_breakdown.csv"
    path.write_text(PHOTO)
    judged = breakdown(read_columns(path, TABLES[path.stem]))
    assert judged.measured.tolist() == [552, 119, 90, 61]
    assert judged.excluded == {
        "a component that the model does not have": 1,
        "joined with another component of its part": 3,
        "no template of this chip": 1,
    }
    (predicted,) = judged.predicted.values()
    assert predicted.sum() == pytest.approx(area_mm2(to_table([load_architecture("a100")]))[0])
    assert predicted[:3] == pytest.approx([552, 119, 90], rel=0.1)


def test_a_power_that_the_clock_was_solved_from_is_not_judged(tmp_path: Path) -> None:
    path = tmp_path / "chip_specs.csv"
    path.write_text("chip,die_mm2,tdp_w\nA100 SXM 40GB,826,400\nL40S,608,350\nH200 SXM,814,700\n")
    columns = read_columns(path, TABLES[path.stem])
    assert powers(columns).measured.tolist() == [400]
    assert powers(columns).excluded == {
        "its clock follows from the figure": 1,
        "the energy of its products follows from the figure": 1,
    }
    assert areas(columns).measured.tolist() == [826, 608, 814]


def test_a_figure_that_the_table_does_not_vouch_for_is_not_judged(tmp_path: Path) -> None:
    path = tmp_path / "chip_specs.csv"
    unsure = "Gaudi2,826,600,die size recalled (low confidence)\nTrainium2,,500,TDP ~500 W recalled\n"
    path.write_text(f"chip,die_mm2,tdp_w,note\nA100 SXM 40GB,826,400,\n{unsure}")
    columns, recalled = read_columns(path, TABLES[path.stem]), {"recalled with low confidence": 1}
    assert areas(columns).measured.tolist() == [826]
    assert areas(columns).excluded == {**recalled, "not published": 1}
    assert powers(columns).measured.tolist() == [400, 600]
    assert powers(columns).excluded == recalled
