"""`dse plan pools`, as it is typed."""

from __future__ import annotations

import json

import pytest

import phaze
from phaze.testing.small_problem import DECODER

FLEET = """
schema_version: 1
name: two
pools:
  - {name: new, chip: a100, devices: 2, price: 3.6, zone: here}
  - {name: old, chip: v100, devices: 2, price: 1.8, zone: there}
links:
  - {between: [here, there], bandwidth: 10GB/s, latency: 1us, egress_price: 0.01, source: made up}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(DECODER)
    (tmp_path / "fleet.yaml").write_text(FLEET)
    return tmp_path


ALONE = ("--microbatch", "1", "--pipeline-parallel", "1", "--tensor-parallel", "1")
LINE = (
    "plan",
    "pools",
    "--fleet",
    "fleet.yaml",
    "--workload",
    "tiny.yaml",
    "--global-batch",
    "8",
    "--microbatch",
    "1",
)


@pytest.mark.parametrize("objective", ["throughput", "cost_per_sample"])
def test_a_plan_in_a_fleet(dse, folder, objective):
    code, out, err = dse(*LINE, "--objective", objective, "--json", "--out", "kept")
    assert code == 0, err
    document = json.loads(out)
    assert document["schema"] == "dse-fleet/1"
    assert sum(document["best"]["pools"].values()) <= 4
    assert document["certificate"]["lower_bound"] <= document["certificate"]["value"]
    code, out, _ = dse("replay", "kept", "-q")
    assert (code, out.split(".")[0]) == (0, "Same question, the same answer")
    assert dse("report", "kept")[0] == 0
    assert "two" in (folder / "kept" / "report.html").read_text()
    assert "Best plan" in dse(*LINE)[1]


def test_in_python(folder):
    found = phaze.plan_pools(workload="tiny.yaml", fleet="fleet.yaml", global_batch=8, microbatch=1)
    assert "Best plan" in repr(found)
    assert len(found.to_dataframe()) == 1 + len(found.document.others)
    assert found.certificate.gap >= 0


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ((*LINE, "--devices", "8"), 2, "--devices: the pools"),
        ((*LINE, "--objective", "speed"), 2, "--objective"),
        (("plan", "pools", "--fleet", "fleet.yaml"), 2, "--workload"),
        (("plan", "pools", "--fleet", "none.yaml", "--workload", "tiny.yaml"), 2, "none.yaml"),
        (("plan", "pools", "--fleet", "fleet.yaml", "--workload", "gpt3", *ALONE), 3, "cannot hold gpt3"),
    ],
)
def test_what_makes_no_sense(dse, folder, line, code, told):
    found, out, err = dse(*line)
    assert (found, out) == (code, "")
    assert told in err
    assert err.strip().count("\n") == 0
