"""`dse explain RUN` finds its way back from a run directory to what was asked."""

from __future__ import annotations

import io
import json
import sys

import pytest
from rich.console import Console
from small_cases import DECODER

from phaze.cli import main as cli
from phaze.explore.documents.explanation_document import Explanation
from phaze.report.terminal.explanation_tables import print_explanation

SPACE = """
schema_version: 1
name: six
axes:
  - {fields: [tensor_cores], values: [1, 4, 8]}
  - {fields: [vector_cores], values: [1, 4]}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explained")
    (folder / "tiny.yaml").write_text(DECODER)
    (folder / "six.yaml").write_text(SPACE)
    return folder


def call(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["dse", *map(str, arguments)])
    with pytest.raises(SystemExit) as leave:
        cli.main()
    return leave.value.code


@pytest.fixture
def run(folder, monkeypatch):
    """A run, made once, with the working directory as it was."""
    monkeypatch.chdir(folder)
    if not (folder / "run").exists():
        options = ("--workload", "tiny.yaml", "--space", "six.yaml", "--devices", "1", "--power", "300W")
        assert call(monkeypatch, "run", *options, "--out", "run", "-q") == 0
    return folder / "run"


def test_it_explains_the_winner_in_eighty_columns(run, monkeypatch, capfd):
    capfd.readouterr()
    assert call(monkeypatch, "explain", "run", "--json", "-q") == 0
    explanation = Explanation.model_validate_json(capfd.readouterr().out)
    result = json.loads((run / "result.json").read_text())
    assert explanation.id == result["best"]["id"]
    told = result["best"]["workloads"]["tiny"]["throughput_samples_per_s"]
    assert explanation.throughput_samples_per_s == pytest.approx(told)
    assert {n.axis for n in explanation.neighbours} == {"tensor_cores", "vector_cores"}
    console = Console(file=io.StringIO(), width=80, highlight=False)
    print_explanation(explanation, console)
    text = console.file.getvalue()
    assert max(len(line) for line in text.splitlines()) <= 80
    for title in ("One step along each axis", "What the layers wait for", "What each parameter is worth"):
        assert title in text


def test_a_changed_input_is_refused(run, monkeypatch, capfd):
    text = (run.parent / "tiny.yaml").read_text()
    (run.parent / "tiny.yaml").write_text(text + "# later\n")
    assert call(monkeypatch, "explain", "run") == 2
    assert "tiny.yaml has changed" in capfd.readouterr().err
    (run.parent / "tiny.yaml").write_text(text)


def test_a_run_of_another_origin_is_refused(run, monkeypatch, capfd, tmp_path):
    result = json.loads((run / "result.json").read_text())
    result["manifest"] |= {"command": [], "asked": None}
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert call(monkeypatch, "explain", tmp_path) == 2
    assert "was not made by dse run" in capfd.readouterr().err


def test_a_folder_without_a_run_is_refused(tmp_path, monkeypatch, capfd):
    assert call(monkeypatch, "explain", tmp_path) == 2
    assert "no run at" in capfd.readouterr().err
