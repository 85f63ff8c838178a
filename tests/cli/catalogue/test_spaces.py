"""`dse spaces show` counts, `dse spaces new` writes a file that loads."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from phaze.cli.main import app
from phaze.errors import InputError
from phaze.hardware.silicon.die_area import area_mm2, exceeds_reticle, exceeds_shoreline
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.space_file import load_space, new_space_text, parse_space


@pytest.fixture
def dse(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments):
        return CliRunner().invoke(app, ["spaces", *arguments], catch_exceptions=False).stdout

    return call


def test_the_counts_are_those_of_the_budgets(dse):
    options = ("--power", "400W", "--area", "600mm2", "--power-density", "0.5W/mm2", "--tdp-margin", "1.1")
    shown = json.loads(dse("show", "one-clock", *options, "--json"))
    table = load_space("one-clock").table()
    area, power = area_mm2(table), tdp_w(table, 1.1)
    over = {
        "power": power > 400,
        "area": area > 600,
        "power_density": power / area > 0.5,
        "reticle": exceeds_reticle(table, area),
        "shoreline": exceeds_shoreline(table, area),
        "heat": np.zeros(len(table), dtype=bool),  # nothing says what cools them
    }
    fits = ~np.logical_or.reduce(list(over.values()))
    assert (shown["grid_size"], shown["architectures"]) == (1_417_500, 1_417_500)
    assert shown["over_budget"] == {name: mask.sum() for name, mask in over.items()}
    assert shown["within_budgets"] == fits.sum() > 0
    assert shown["all"]["area_mm2"] == {"smallest": area.min(), "largest": area.max()}
    assert shown["within"]["tdp_w"] == {"smallest": power[fits].min(), "largest": power[fits].max()}
    assert [axis["fields"] for axis in shown["axes"]][-1] == ["global_buffer_bytes_per_cycle"]


def test_nothing_within_the_budgets_has_no_range(dse):
    shown = json.loads(dse("show", "one-clock", "--power", "1W", "--fix", "tensor_cores=8", "--json"))
    assert (shown["architectures"], shown["within_budgets"], shown["within"]) == (157_500, 0, None)


def test_the_tables_name_axes_and_counts(dse):
    text = " ".join(dse("show", "phaze", "--fix", "tensor_cores=8").split())
    assert "combinations of all axes 5,824" in text
    assert "vector_core_alus as tensor_core_columns" in text
    assert "searched with 3 memory sizes: 32GiB, 64GiB, 80GiB." in text


def test_the_file_itself(dse):
    assert dse("show", "default", "--yaml").startswith("schema_version: 1\nname: default\n")


def test_a_new_file_loads_and_is_not_overwritten(dse, tmp_path):
    assert "dse spaces show mine.yaml" in dse("new", "mine")
    space = load_space(tmp_path / "mine.yaml")
    assert space.name == "mine"
    assert f"{space.size} architectures" in space.description
    text = " ".join(dse("show", "mine.yaml").split())
    assert "450GB/s, 900GB/s where hbm_stacks = 6, else 300GB/s" in text
    assert "global_buffer_bytes_per_cycle as tensor_core_rows x 32" in text
    assert "where global_buffer_bytes >= 4MiB * tensor_cores" in text
    with pytest.raises(InputError, match=r"mine\.yaml exists; give another name"):
        dse("new", "mine")
    with pytest.raises(InputError, match="cannot be written"):
        dse("new", "nowhere/mine")
    with pytest.raises(InputError, match="'3 x' is not a name"):
        dse("new", "3 x")


def test_a_new_space_knows_every_form():
    text = new_space_text("mine")
    assert parse_space(text, "mine.yaml").name == "mine"
    for form in (
        "values:",
        "powers_of_two:",
        "range:",
        "geometric:",
        "same_as:",
        "times:",
        "when:",
        "otherwise:",
    ):
        assert form in text
    for form in ("where:", "hbm_capacities:", "stages:", "fixed:", "base:"):
        assert form in text
