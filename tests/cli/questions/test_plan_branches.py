"""`--plans branches` as it is typed: what is told, drawn, exported and refused."""

from __future__ import annotations

import json

import pytest

from phaze.explore.documents.plan_record import StrategyRecord
from phaze.explore.evaluation.planned_iteration import strategy_of

PIPELINE = (
    "--pipeline-parallel",
    "4",
    "--data-parallel",
    "1",
    "--tensor-parallel",
    "1",
    "--microbatch",
    "4",
    "--schedule",
    "1f1b",
)
CLIP = ("--arch", "h100", "--workload", "clip-vit-b32", "--devices", "4", "--global-batch", "32", *PIPELINE)


@pytest.fixture
def planned(dse):
    code, out, err = dse("plan", *CLIP, "--plans", "branches", "--json")
    assert code == 0, err
    return json.loads(out)


def test_towers_run_side_by_side_and_faster_than_one_after_the_other(dse, planned):
    record = planned["best"]["strategy"]
    assert sum(record["blocks"]) == 60
    assert record["feeds"] == [[3], [3], [4], []]
    assert strategy_of(StrategyRecord.model_validate(record)).branches
    assert any("branches side by side" in one for one in planned["certificate"]["scope"])
    code, out, err = dse("plan", *CLIP, "--plans", "any", "--json")
    assert code == 0, err
    chain = json.loads(out)["best"]
    assert chain["strategy"]["feeds"] is None
    assert planned["best"]["iteration_time_s"] < chain["iteration_time_s"]


def test_the_line_of_a_plan_says_how_deep_it_is(dse):
    code, out, _ = dse("plan", *CLIP, "--plans", "branches")
    assert code == 0
    assert "branches side by side, 3 stages deep" in " ".join(out.split())


@pytest.mark.parametrize("framework", ["exposed", "ideal"])
def test_pages_and_bubbles_show_it(dse, tmp_path, framework):
    asked = (*CLIP, "--plans", "branches", "--framework", framework)
    code, _, err = dse("plan", *asked, "--out", str(tmp_path / "P"))
    assert code == 0, err
    code, _, err = dse("report", str(tmp_path / "P"), "--out", str(tmp_path / "report.html"))
    assert code == 0, err
    assert "branches side by side, 3 stages deep" in (tmp_path / "report.html").read_text(encoding="utf-8")
    code, out, err = dse("whatif", "bubbles", *asked, "--json")
    assert code == 0, err
    assert len(json.loads(out)["points"][0]["plan"]["best"]["bubbles"]["stages"]) == 4


def test_no_recipe_is_written(dse, planned, tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(planned), encoding="utf-8")
    code, _, err = dse("plan", "export", str(tmp_path / "plan.json"))
    assert code == 2
    assert "branches of this plan run side by side" in " ".join(err.split())


def test_software_that_runs_chains_keeps_to_them(dse):
    code, out, err = dse(
        "plan",
        *CLIP[:6],
        "--global-batch",
        "32",
        "--plans",
        "branches",
        "--framework",
        "megatron-core-2024",
        "--json",
    )
    assert code == 0, err
    assert json.loads(out)["best"]["strategy"]["feeds"] is None


def test_searches_over_chips_refuse_it(dse):
    code, _, err = dse(
        "run", "--workload", "clip-vit-b32", "--devices", "2", "--power", "300W", "--plans", "branches"
    )
    assert code == 2
    assert "runs branches side by side" in " ".join(err.split())
