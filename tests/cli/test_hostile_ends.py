"""Ends that are nobody's bug: what the system refuses, invalid files that are shown, numbers that are none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from phaze.explore.documents.result_document import Certificate, FrontierPoint
from phaze.hardware.architecture import load_architecture, to_table
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.space_file import parse_space
from phaze.runs.run_directory import table_columns

SPACE = "schema_version: 1\nname: x\nbase: tpuv4\naxes: [{fields: [hbm_stacks], values: [2, 4, 6]}]\n"


def shell(line):
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m phaze.cli.main {line}"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(("ends", "words"), [(">/dev/full", "No space left"), (">&-", "Bad file descriptor")])
def test_a_stdout_that_takes_nothing_is_one_sentence(ends, words):
    code, err = shell(f"archs list {ends}")
    assert code == 2
    assert err.startswith("dse: cannot write the answer: ")
    assert words in err
    assert err.count("\n") == 1


def test_a_closed_stderr_changes_no_exit_code():
    assert shell("archs list 2>&-")[0] == 0
    assert shell("archs show nonsense 2>&-")[0] == 2


def test_a_name_that_is_no_text_is_refused():
    code, err = shell("archs show $'\\xff.yaml'")
    assert code == 2
    assert "not a name in UTF-8" in err


@pytest.mark.parametrize(
    "verb", ["networks show", "frameworks show", "spaces show --yaml", "workloads show --yaml"]
)
def test_files_that_are_not_valid_are_not_shown(dse, tmp_path, verb):
    (file := tmp_path / "x.yaml").write_text("schema_version: 1\nname: x\nnonsense: 1\n")
    code, out, err = dse(*verb.split(), file)
    assert (code, out) == (2, "")
    assert str(file) in err


@pytest.mark.parametrize(
    "option",
    [
        *("--pue nan", "--pue -1", "--gap nan", "--gap inf", "--cluster-overhead nan"),
        *("--volume 0.5", "--rent 0", "--electricity-price 0", "--carbon-intensity -0.1"),
        *("--carbon-intensity atlantis", "--economics nothing.yaml"),
    ],
)
def test_numbers_that_are_none_are_refused_even_where_they_are_not_used(dse, option):
    code, _, err = dse("run", "-w", "gpt3", *option.split())
    assert code == 2
    assert option.split()[-1 if "yaml" in option else 0] in err


@pytest.mark.parametrize("figure", ["published_tdp_w: -1", "published_area_mm2: 0", 'name: "a\\nb"'])
def test_architectures_that_cannot_be(dse, tmp_path, figure):
    lines = (
        ["schema_version: 1", "base: a100"] + ([] if figure.startswith("name") else ["name: x"]) + [figure]
    )
    (file := tmp_path / "x.yaml").write_text("\n".join(lines))
    code, _, err = dse("archs", "show", file)
    assert code == 2
    assert figure.partition(":")[0] in err


@pytest.mark.parametrize("name", ["../../outside", "/tmp/outside"])
def test_the_folder_of_an_export_is_named_after_the_chip_but_stays_here(dse, tmp_path, monkeypatch, name):
    (inside := tmp_path / "inside").mkdir()
    monkeypatch.chdir(inside)
    (inside / "x.yaml").write_text(f"schema_version: 1\nbase: a100\nname: {name}\n")
    assert dse("archs", "export", "x.yaml")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


@pytest.mark.parametrize(("field", "value"), [("mfu", 18.17), ("mfu", float("nan")), ("memory_bytes", -22e9)])
def test_what_is_physically_impossible_is_no_document(document, field, value):
    point = document.frontier[0].model_dump()
    with pytest.raises(ValueError, match=field):
        FrontierPoint(**point | {field: value})
    assert FrontierPoint(**point | {"mfu": 1 + 1e-12, "energy_per_sample_j": -1e-19}).mfu == 1.0


def test_a_bound_above_the_objective_by_rounding_alone_proves_it(document):
    claimed = document.certificate.model_dump()
    value = claimed["objective_value"]
    near = Certificate(**claimed | {"optimal": False, "upper_bound": value * (1 + 4e-16), "gap": 4e-16})
    assert (near.optimal, near.gap, near.upper_bound) == (True, 0.0, value)
    far = {"optimal": False, "upper_bound": value * (1 + 1e-6), "gap": 1e-6}
    assert Certificate(**claimed | far).optimal is False


def test_a_point_like_the_base_chip_is_that_chip():
    space, chip = parse_space(SPACE, "x"), load_architecture("tpuv4")
    point = space.architecture(1)
    assert point.fields == chip.fields
    assert tdp_w(space.table())[1] == tdp_w(to_table([chip]))[0]
    assert space.completed({"hbm_stacks": 4}) == dict(chip.fields)
    each = (
        chip.fields["hbm_bandwidth_bytes_per_s"] / chip.fields["hbm_stacks"]
    )  # bandwidth grows with its stacks
    others = [space.architecture(row).fields for row in (0, 2)]
    assert [one["hbm_bandwidth_bytes_per_s"] for one in others] == [
        each * one["hbm_stacks"] for one in others
    ]


def test_the_columns_of_a_table_do_not_follow_the_order_of_its_rows():
    rows = [
        {"tdp_w": 1.0, "id": "a", "hbm_stacks": 2},
        {"id": "b", "hbm_stacks": 4, "tdp_w": 2.0, "mfu": 0.5},
    ]
    assert (
        list(table_columns(rows)) == list(table_columns(rows[::-1])) == ["id", "mfu", "tdp_w", "hbm_stacks"]
    )
