"""`dse report` and `dse trace`: what they write, where, and what they refuse."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from small_cases import DECODER

SPACE = """
schema_version: 1
name: four
axes:
  - {fields: [tensor_cores], values: [4, 8]}
  - {fields: [vector_cores], values: [1, 2]}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    (folder / "tiny.yaml").write_text(DECODER)
    (folder / "four.yaml").write_text(SPACE)
    return folder


@pytest.fixture
def run(home, dse, monkeypatch):
    """A copy of a run made once, in its working directory."""
    monkeypatch.chdir(home)
    if not (home / "once").exists():
        options = ("--workload", "tiny.yaml", "--space", "four.yaml", "--devices", 2, "--power", "300W")
        assert (
            dse("run", *options, "--strategy", "wham", "--designs", "per-stage", "--out", "once", "-q")[0]
            == 0
        )
    shutil.rmtree(home / "run", ignore_errors=True)
    shutil.copytree(home / "once", home / "run")
    return home / "run"


def test_both_write_into_the_run(run, dse):
    code, _, err = dse("report", run)
    assert (code, err.splitlines()[-1]) == (
        0,
        f"report: {run}/report.html",
    )  # above it progress, on a busy machine
    assert dse("trace", run)[::2] == (0, f"trace: {run}/trace.json\n")
    document = json.loads((run / "result.json").read_text())
    source = (run / "report.html").read_text()
    assert document["best"]["id"] in source
    for anchor in ("iteration", "operators", "roofline", "memory", "sensitivity", "per-stage", "search"):
        assert f'<section id="{anchor}"' in source
    events = json.loads((run / "trace.json").read_text())["traceEvents"]
    told = document["best"]["workloads"]["tiny"]["iteration_time_s"]
    assert max(e["ts"] + e.get("dur", 0) for e in events) / 1e6 == pytest.approx(told, abs=2e-9)


def test_plans_are_drawn_as_placements_are(home, dse, monkeypatch):
    monkeypatch.chdir(home)
    options = ("--workload", "tiny.yaml", "--space", "four.yaml", "--devices", 4, "--power", "300W")
    assert dse("run", *options, "--plans", "megatron", "--out", "planned", "-q")[0] == 0
    for words in (("report",), ("trace",), ("trace", "--format", "svg")):
        assert dse(words[0], "planned", *words[1:], "-q")[0] == 0
    source = (home / "planned" / "report.html").read_text()
    for anchor in ("iteration", "operators", "roofline", "memory"):
        assert f'<section id="{anchor}"' in source
    assert (home / "planned" / "trace.svg").read_text().startswith("<svg")
    events = json.loads((home / "planned" / "trace.json").read_text())["traceEvents"]
    document = json.loads((home / "planned" / "result.json").read_text())
    told = document["best"]["workloads"]["tiny"]["iteration_time_s"]
    assert max(e["ts"] + e.get("dur", 0) for e in events) / 1e6 == pytest.approx(told, abs=2e-9)
    assert {e["cat"] for e in events if e["ph"] == "X"} >= {"forward", "backward", "layer", "operator"}


def test_other_files_and_formats(run, dse, tmp_path):
    assert dse("trace", run / "result.json", "--out", tmp_path / "t.json.gz", "-q")[0] == 0
    assert json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))["traceEvents"]
    assert dse("trace", run, "--format", "svg", "--per-stage", "--out", tmp_path / "t.svg", "-q")[0] == 0
    assert (tmp_path / "t.svg").read_text().startswith("<svg")
    assert dse("trace", run, "--per-stage", "--out", tmp_path / "s.json", "-q")[0] == 0
    told = json.loads((run / "result.json").read_text())["wham"]["per_stage"]
    events = json.loads((tmp_path / "s.json").read_text())["traceEvents"]
    assert {stage["id"] for stage in told["stages"]} == {
        e["args"]["labels"].split(" x ")[1] for e in events if e["name"] == "process_labels"
    }
    ends = max(e["ts"] + e.get("dur", 0) for e in events)
    assert ends / 1e6 == pytest.approx(told["iteration_time_s"], abs=2e-9)
    assert dse("report", run / "result.json", "--out", tmp_path / "r.html", "-q")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "s.json", "t.json.gz", "t.svg"]


def test_a_changed_input_leaves_sections_out_of_the_report_and_ends_the_trace(run, dse, home):
    text = (home / "tiny.yaml").read_text()
    try:
        (home / "tiny.yaml").write_text(text.replace("layers: 4", "layers: 6"))
        code, _, err = dse("report", run, "--out", run / "r.html")
        assert code == 0
        assert "left out" in err
        assert "tiny.yaml has changed" in (run / "r.html").read_text()
        code, _, err = dse("trace", run)
        assert code == 2
        assert "tiny.yaml has changed since the run was made" in err
    finally:
        (home / "tiny.yaml").write_text(text)
    assert not (run / "trace.json").exists()


@pytest.mark.parametrize("verb", ["report", "trace"])
def test_no_run_no_file(run, dse, verb, tmp_path):
    result = json.loads((run / "result.json").read_text())
    broken = {
        "is missing": (run / "result.json").unlink,
        "is not valid JSON": lambda: (run / "result.json").write_text("{"),
        "has schema 'phaze-result/0'": lambda: (run / "result.json").write_text(
            json.dumps(result | {"schema": "phaze-result/0"})
        ),
        "is not a valid phaze-result/4: best": lambda: (run / "result.json").write_text(
            json.dumps(result | {"best": 1})
        ),
    }
    for sentence, damage in broken.items():
        (run / "result.json").write_text(json.dumps(result))
        damage()
        code, out, err = dse(verb, run, "--out", tmp_path / "file")
        assert (code, out) == (2, "")
        assert sentence in err
        assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_or_is_not_there(run, dse):
    assert dse("report", run, "--out", run / "no" / "r.html")[0] == 2
    code, _, err = dse("trace", run, "--workload", "tyni")
    assert code == 2
    assert "did you mean tiny?" in err
    document = json.loads((run / "result.json").read_text())
    document["wham"] = None
    (run / "result.json").write_text(json.dumps(document))
    code, _, err = dse("trace", run, "--per-stage")
    assert code == 2
    assert "no pipeline with a design per stage" in err


def test_a_request_that_makes_no_sense_is_told(dse, tmp_path):
    told = json.loads((Path(__file__).parents[2] / "data" / "documents" / "serving-1.json").read_text())
    told["request"]["max_ttft_s"] = "none"
    path = tmp_path / "serving.json"
    path.write_text(json.dumps(told))
    code, _, err = dse("report", str(path), "--out", str(tmp_path / "out.html"))
    assert code == 2
    assert "its request makes no sense" in err
    assert not (tmp_path / "out.html").exists()
