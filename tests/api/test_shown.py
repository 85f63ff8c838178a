"""Tables of results: as text, as HTML, as data frames."""

from __future__ import annotations

import builtins

import pytest

import phaze
from phaze.errors import InputError
from phaze.testing.figure_contract import Markup


def test_the_text_is_short_and_starts_with_the_answer(found):
    lines = repr(found).splitlines()
    assert lines[0].startswith("The best accelerator for tiny on 4 devices is")
    assert len(lines) < 20
    assert max(map(len, lines)) <= 80


def test_the_html_has_a_row_for_each_point(found):
    seen = Markup(found._repr_html_()).names
    assert seen.count("table") == 1
    assert seen.count("tr") == 1 + len(found.frontier)
    assert seen.count("th") == 6


@pytest.mark.parametrize("part", ["frontier", "designs", "next_best", "comparison"])
def test_the_tables_of_a_search(found, part):
    table = getattr(found, part)
    frame = table.to_dataframe()
    assert len(frame) == len(table) == len(list(table)) > 0
    assert Markup(table._repr_html_()).names.count("tr") == 1 + min(len(table), 10)
    assert max(map(len, repr(table).splitlines())) <= 80


def test_figures_of_a_frame_are_those_of_the_rows(found):
    frame = found.to_dataframe()
    assert list(frame["tdp_w"]) == [point.tdp_w for point in found.frontier]
    assert list(frame["tensor_cores"]) == [p.architecture["tensor_cores"] for p in found.frontier]
    assert found.designs[-1]["id"] == found.designs.to_dataframe()["id"].iloc[-1]
    assert [row["id"] for row in found.designs[:2]] == list(found.designs.to_dataframe()["id"][:2])


def test_one_architecture_shows_its_placement(asked):
    told = phaze.evaluate("a100", asked["workload"], devices=4)
    assert "model FLOPs utilisation" in repr(told)
    assert Markup(told._repr_html_()).names.count("table") == 2
    (row,) = told.to_dataframe().to_dict("records")
    assert row["iteration_time_s"] == told.result.iteration_time_s
    parts = [value for name, value in row.items() if name.startswith("time.")]
    assert sum(parts) == pytest.approx(row["iteration_time_s"])


def test_names_from_files_are_escaped(asked, tmp_path):
    bad = tmp_path / "<b>[red]&.yaml"
    bad.write_text(asked["workload"].read_text())
    told = phaze.compare(["a100", "edge"], bad, devices=1)
    assert "&lt;b&gt;[red]&amp;" in told._repr_html_()
    assert "<b>[red]&" in repr(told)


def test_a_plan_shows_its_proof(asked):
    told = phaze.plan("a100", asked["workload"], devices=4, pipeline_parallel=2)
    assert "Proved best of" in repr(told)
    Markup(told._repr_html_())
    assert list(told.to_dataframe()["pipeline_parallel"]) == [2] * len(told.plans)


def test_without_pandas_the_line_that_installs_it_is_told(found, monkeypatch):
    real = builtins.__import__

    def missing(name, *rest):
        if name == "pandas":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InputError, match=r"pip install '\.\[pandas\]'"):
        found.to_dataframe()
