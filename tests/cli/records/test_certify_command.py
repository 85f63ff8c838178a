"""`dse certify` on the command line: passes on a run as it was, exit code 5 after tampering."""

from __future__ import annotations

import json
import sys

import pytest
from small_cases import small_decoder

from phaze.cli import main as cli

SPACE = """
schema_version: 1
name: few
axes:
  - {fields: [tensor_cores], values: [1, 4]}
  - {fields: [vector_core_alus], values: [64, 1024]}
"""


def dse(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["dse", *map(str, arguments)])
    with pytest.raises(SystemExit) as leave:
        cli.main()
    return leave.value.code


@pytest.fixture
def phases(monkeypatch):
    """What a check tells of how far it is: phase, done, total."""
    told = []

    def update(self, stage, done, total, note):
        told.append((stage, done, total))

    monkeypatch.setattr("phaze.explore.request.search_progress.SilentProgress.update", update)
    return told


def check_phases(told, names):
    """Few phases, one after the other; in each the share that is done only grows, so that the rest can be told."""
    assert list(dict.fromkeys(stage for stage, _, _ in told)) == names
    for name in names:
        steps = [(done, total) for stage, done, total in told if stage == name]
        assert len({total for _, total in steps}) == 1
        assert [done for done, _ in steps] == sorted(done for done, _ in steps)
        assert all(0 <= done <= total for done, total in steps)


def test_a_run_and_a_tampered_one(monkeypatch, capfd, tmp_path, phases):
    small_decoder(tmp_path)
    (tmp_path / "few.yaml").write_text(SPACE)
    run = tmp_path / "run"
    words = ["run", "-w", tmp_path / "tiny.yaml", "--space", tmp_path / "few.yaml", "--devices", 4, "-q"]
    assert dse(monkeypatch, *words, "--time-limit", "10min", "--out", run) == 0
    capfd.readouterr()
    phases.clear()
    assert dse(monkeypatch, "certify", run, "--samples", 4, "--json", "-q") == 0
    check_phases(phases, ["checking the winner", "checking the document", "checking samples"])
    report = json.loads(capfd.readouterr().out)
    assert report["schema"] == "phaze-certify/1"
    assert report["passed"]
    document = json.loads((run / "result.json").read_text())
    document["certificate"]["upper_bound"] *= 0.9
    (run / "result.json").write_text(json.dumps(document))
    assert dse(monkeypatch, "certify", run, "--samples", 0, "-q") == 5
    assert "FAILS" in capfd.readouterr().out
    (tmp_path / "few.yaml").write_text(SPACE.replace("1024", "512"))
    assert dse(monkeypatch, "certify", run, "-q") == 2
    assert "has changed since the run" in capfd.readouterr().err


def test_a_run_over_other_axes(monkeypatch, capfd, tmp_path, phases):
    small_decoder(tmp_path)
    (tmp_path / "few.yaml").write_text(SPACE)
    run = tmp_path / "run"
    words = ["-w", tmp_path / "tiny.yaml", "--space", tmp_path / "few.yaml", "--devices", 4, "-q"]
    other = ["--objective", "energy_per_sample", "--axes", "throughput", "--time-limit", "10min"]
    assert dse(monkeypatch, "run", *words, *other, "--out", run) == 0
    phases.clear()
    assert dse(monkeypatch, "certify", run, "--samples", 4, "-q") == 0
    check_phases(phases, ["checking the frontier", "checking the document", "checking samples"])
    assert dse(monkeypatch, "replay", run, "-q") == 0
    assert dse(monkeypatch, "report", run, "-q") == 0
    capfd.readouterr()
    assert dse(monkeypatch, "explain", run, "--json", "-q") == 0
    assert json.loads(capfd.readouterr().out)["objective"] == "energy_per_sample"
    assert dse(monkeypatch, "pareto", run, "--format", "json") == 0
    exported = json.loads(capfd.readouterr().out)
    assert [axis["name"] for axis in exported["axes"]] == ["energy_per_sample", "throughput"]
    document = json.loads((run / "result.json").read_text())
    document["frontier"][-1]["energy_per_sample_j"] *= 0.5
    (run / "result.json").write_text(json.dumps(document))
    assert dse(monkeypatch, "certify", run, "--samples", 0, "-q") == 5
    assert "FAILS" in capfd.readouterr().out
