"""`dse run --plans` and the verbs that take its folder; `evaluate`, `compare` and `sweep` in the same model."""

from __future__ import annotations

import json

import pytest
from small_cases import DECODER

SPACE = """
schema_version: 1
name: four
axes:
  - {fields: [tensor_cores], values: [4, 8]}
  - {fields: [vector_cores], values: [1, 2]}
"""
PLANS = """
schema_version: 1
name: some
source: a test
microbatches: [1, 2]
chunks: [1, 2]
"""
TASK = ("--workload", "tiny.yaml", "--devices", 4, "--plans", "some.yaml")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    for name, text in (("tiny", DECODER), ("four", SPACE), ("some", PLANS)):
        (folder / f"{name}.yaml").write_text(text)
    return folder


@pytest.fixture
def run(home, dse, monkeypatch):
    """A run made once, in its working directory."""
    monkeypatch.chdir(home)
    if not (home / "run").exists():
        options = ("--space", "four.yaml", "--power", "300W", "--framework", "megatron-core-2024")
        assert dse("run", *TASK, *options, "--out", "run", "-q")[0] == 0
    return home / "run"


def told(run):
    return json.loads((run / "result.json").read_text())


def test_the_answer_names_the_plan_the_software_and_what_was_searched(run):
    document = told(run)
    result = document["best"]["workloads"]["tiny"]
    assert document["schema"] == "phaze-result/4"
    assert {"framework": "megatron-core-2024", "plans": "some"}.items() <= document["request"].items()
    assert {"framework megatron-core-2024", "plans some"} <= set(document["certificate"]["scope"])
    assert result["placement"]["plan"]["schedule"]
    assert document["certificate"]["plans_per_architecture"] > document["certificate"]["space_size"] / 4
    assert document["manifest"]["inputs_sha256"].keys() >= {"plans", "framework"}


def test_explain_certify_report_and_trace_take_it(run, dse, tmp_path):
    code, out, _ = dse("explain", run, "--json")
    assert code == 0
    assert json.loads(out)["throughput_samples_per_s"] == told(run)["certificate"]["objective_value"]
    code, out, _ = dse("certify", run, "--samples", 2, "--json")
    assert (code, json.loads(out)["passed"]) == (0, True)
    assert dse("report", run, "--out", tmp_path / "r.html", "-q")[0] == 0
    page = (tmp_path / "r.html").read_text()
    for anchor in ("placement", "iteration", "memory", "certificate"):
        assert f'<section id="{anchor}"' in page
    assert dse("trace", run, "--out", tmp_path / "t.json", "-q")[0] == 0
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert dse("trace", run, "--format", "svg", "--out", tmp_path / "t.svg", "-q")[0] == 0


def test_a_changed_space_of_plans_is_noticed(run, dse, home):
    text = (home / "some.yaml").read_text()
    try:
        (home / "some.yaml").write_text(text + "zero: [1]\n")
        code, _, err = dse("certify", run)
    finally:
        (home / "some.yaml").write_text(text)
    assert code == 2
    assert "some.yaml has changed since the run was made" in err


def test_other_verbs_say_the_same_of_the_winner(run, dse):
    design = told(run)["best"]
    same = (*TASK, "--framework", "megatron-core-2024", "--json")
    code, out, _ = dse("evaluate", "--arch", run, *same)
    assert code == 0
    assert json.loads(out)["best"]["workloads"] == design["workloads"]
    code, out, _ = dse("compare", "--arch", run, "a100", *same)
    assert code == 0
    assert json.loads(out)["designs"][str(run)]["workloads"] == design["workloads"]
    assert (
        told(run)["certificate"]["objective_value"] == design["workloads"]["tiny"]["throughput_samples_per_s"]
    )


def test_a_sweep_over_all_finds_the_same(run, dse, tmp_path):
    options = ("--space", "four.yaml", "--power", "300W", "--framework", "megatron-core-2024")
    more = ("--trials", 12, "--sampler", "random", "--out", tmp_path / "sweep", "--json", "-q")
    code, out, _ = dse("sweep", *TASK, *options, *more)
    assert code == 0
    best = max(
        design["workloads"]["tiny"]["throughput_samples_per_s"] for design in json.loads(out)["frontier"]
    )
    assert best == pytest.approx(told(run)["certificate"]["objective_value"], rel=1e-9)


@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_inference_has_plans_too(run, dse, tmp_path, mode):
    folder = tmp_path / mode
    options = ("--mode", mode, "--space", "four.yaml", "--power", "300W")
    assert dse("run", *TASK, *options, "--out", folder, "-q")[0] == 0
    result = told(folder)["best"]["workloads"]["tiny"]
    assert result["placement"]["plan"]["schedule"].startswith("forward")
    assert result["memory"]["gradients_bytes"] == result["memory"]["optimizer_bytes"] == 0
    assert dse("certify", folder)[0] == 0
    for verb in (("explain",), ("trace",), ("trace", "--format", "svg"), ("report",)):
        assert dse(verb[0], folder, *verb[1:], "-q")[0] == 0
    for anchor in ("iteration", "operators", "roofline", "memory"):
        assert f'<section id="{anchor}"' in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--framework", "megatron-croe-2024"), "no framework is named 'megatron-croe-2024'"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(run, dse, tmp_path, options, sentence):
    code, out, err = dse("run", *TASK, *options, "--out", tmp_path / "no", "-q")
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert not (tmp_path / "no" / "result.json").exists()


def test_no_plan_of_the_space_is_infeasible(run, dse, tmp_path):
    wide = ("--workload", "gpt3", "--devices", 1, "--plans", "some.yaml", "--space", "four.yaml")
    code, _, err = dse("run", *wide, "--out", tmp_path / "no", "-q")
    assert code == 3
    assert "smallest feasible" in err
