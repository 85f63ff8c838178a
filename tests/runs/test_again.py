"""Answers that are kept, from the command line and from Python, and asked again."""

from __future__ import annotations

import json

import pytest
from small_cases import DECODER

import phaze
from phaze.hardware.architecture import load_architecture
from phaze.hardware.cluster_network import load_network
from phaze.runs.design_table import column
from phaze.runs.document_formats import load_answer
from phaze.runs.run_directory import load_designs

SPACE = """
schema_version: 1
name: few
base: h100
fixed: {hbm_stacks: 2, hbm_sites_on_die: 2}
axes:
  - {fields: [tensor_cores], values: [2, 4]}
  - {fields: [vector_cores], values: [1, 2]}
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(DECODER)
    (tmp_path / "few.yaml").write_text(SPACE)
    return tmp_path


ASK = {"workload": "tiny.yaml", "devices": 2, "global_batch": 4}
LINE = ("--workload", "tiny.yaml", "--devices", 2, "--global-batch", 4)
LINES = {
    "evaluate": ("evaluate", "--arch", "h100", *LINE),
    "plan": ("plan", "--arch", "h100", *LINE),
    "compare": ("compare", "--arch", "h100", "a100", *LINE),
    "whatif": ("whatif", "--arch", "h100", *LINE, "--vary", "devices=1,2"),
    "whatif failures": ("whatif", "failures", "--arch", "h100", *LINE, "--domain", "1,2"),
    "plan serving": (
        "plan",
        "serving",
        "--arch",
        "h100",
        "-w",
        "tiny.yaml",
        "--devices",
        2,
        "--prompt",
        64,
        "--output-tokens",
        32,
    ),
    "sweep": ("sweep", "--space", "few.yaml", "--trials", 4, *LINE),
}


@pytest.mark.parametrize("verb", LINES)
def test_what_a_verb_keeps_can_be_asked_again(dse, files, verb):
    code, out, err = dse(*LINES[verb], "--out", "kept", "--json")
    assert code == 0, err
    assert (files / "kept" / "result.json").read_text() == out
    manifest = json.loads((files / "kept" / "manifest.json").read_text())
    assert manifest == json.loads(out)["manifest"]
    assert manifest["asked"]["verb"] == verb
    assert manifest["machine"]["cores"] >= 1
    assert "workload" in manifest["inputs_sha256"]
    code, out, err = dse("replay", "kept", "-q")
    assert (code, out.split(".")[0]) == (0, "Same question, the same answer"), err
    named = "tiny.yaml" if verb == "plan serving" else "tiny"  # serving tells a workload as it was asked for
    code, out, _ = dse("runs", ".", "--json")
    assert [(row["run"], row["verb"], row["workloads"]) for row in json.loads(out)] == [("kept", verb, named)]
    (files / "tiny.yaml").write_text(DECODER.replace("layers: 4", "layers: 3"))
    code, _, err = dse("replay", "kept", "-q")
    assert (code, "tiny.yaml has changed since" in err) == (2, True)


def test_what_python_keeps_can_be_asked_again(dse, files):
    phaze.explore(**ASK, space="few.yaml", out="explored")
    phaze.sweep(**ASK, space="few.yaml", trials=4, out="swept")
    phaze.evaluate("h100", **ASK, out="evaluated")
    phaze.plan("h100", **ASK, out="planned")
    phaze.compare(["h100", "a100"], **ASK, out="compared")
    for name in ("explored", "swept", "evaluated", "planned", "compared"):
        assert load_answer(files / name).manifest.command == []
        code, out, err = dse("replay", name, "-q", "--out", f"{name}-again")
        assert (code, out.split(".")[0]) == (0, "Same question, the same answer"), err
        assert load_answer(files / f"{name}-again").manifest.asked == load_answer(files / name).manifest.asked
    assert load_answer(files / "explored").manifest.inputs_sha256.keys() == {
        *("workload", "network", "space", "space base h100", "plans", "framework")
    }
    assert (files / "explored" / "log.txt").read_text().endswith("  ended\n")
    for name in ("explored", "swept"):
        assert all(column(key) for row in load_designs(files / name) for key in row)


def test_objects_of_python_are_named_where_a_run_cannot_be_repeated(dse, files):
    phaze.evaluate(load_architecture("h100"), **ASK, network=load_network("default"), out="kept")
    code, _, err = dse("replay", "kept", "-q")
    assert (code, "a Python object" in err) == (2, True)


def test_a_folder_that_holds_something_is_refused_before_the_work(dse, files):
    code, _, err = dse(*LINES["evaluate"], "--out", files)
    assert (code, "is not empty" in err) == (2, True)
