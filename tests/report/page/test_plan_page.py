"""The pages of a plan and of a sweep: whole, escaped, and with the plan played again as the document says."""

from __future__ import annotations

import json

import numpy as np
import pytest

from phaze.api.drawn_runs import replayed_plan
from phaze.explore.documents.plan_document import PlanDocument
from phaze.explore.documents.sweep_document import SweepDocument
from phaze.inputs.options.plan_options import PlanOptions
from phaze.inputs.plan_inputs import plan_answer
from phaze.report.figures.plan_figures import PlanContents
from phaze.report.page.answer_pages import plan_page, sweep_page
from phaze.testing.figure_contract import HOSTILE, Markup

OPTIONS = PlanOptions(
    arch="a100",
    workload=["bert-base"],
    devices=8,
    global_batch=32,
    **{"tensor_parallel": 1, "pipeline_parallel": 4, "microbatch": 2, "schedule": "zb-h1", "zero": 1},
)


@pytest.fixture(scope="module")
def plan():
    """A fixed plan of a small model."""
    return plan_answer(OPTIONS)


def test_a_plan_is_played_again_as_it_was(plan):
    played = replayed_plan(plan)
    assert played.iteration.iteration_s == pytest.approx(plan.best.iteration_time_s, rel=1e-9)
    assert len(played.timeline.orders) == len(played.iteration.memory) == 4
    assert played.timeline.makespan_s < plan.best.iteration_time_s
    assert max(m.total_bytes for m in played.iteration.memory) == plan.best.memory_bytes


def test_the_page_of_a_plan_is_whole(plan):
    found = Markup(plan_page(PlanContents("plan", plan, replayed_plan(plan))))
    assert {
        "time",
        "iteration",
        "operators",
        "roofline",
        "memory",
        "certificate",
        "assumptions",
        "repeat",
    } <= set(found.values("id"))
    words = "".join(found.texts)
    assert "backward: gradients of weights" in words
    assert "None" not in words
    assert [link for link in found.values("href", "src") if not link.startswith("#")] == []


def test_a_plan_that_comes_to_another_time_is_not_drawn(plan):
    other = plan.best.model_copy(update={"iteration_time_s": 2 * plan.best.iteration_time_s})
    reason = replayed_plan(plan.model_copy(update={"best": other}))
    assert "another one than in the document" in reason
    page = plan_page(PlanContents("plan", plan, reason))
    assert "another one than in the document" in page
    assert 'id="iteration"' not in page


def test_names_in_a_plan_stay_names(plan):
    told = json.loads(plan.model_dump_json(by_alias=True))
    told["request"] |= {"workloads": [HOSTILE], "architecture": HOSTILE, "framework": HOSTILE}
    told["certificate"]["scope"].append(HOSTILE)
    evil = PlanDocument.model_validate(told)
    reason = replayed_plan(evil)
    assert isinstance(reason, str)
    found = Markup(plan_page(PlanContents(HOSTILE, evil, reason)))
    assert found.handlers == []
    assert found.names.count("script") == 2


def test_report_takes_plans_and_sweeps(dse, plan, tmp_path, document):
    from phaze.runs.run_directory import table_columns, write_answer, write_tables

    (tmp_path / "plan.json").write_text(plan.model_dump_json(by_alias=True))
    code, _, err = dse("report", tmp_path / "plan.json")
    assert (code, "plan.html" in err) == (0, True)
    assert (tmp_path / "plan.html").read_text().startswith("<!DOCTYPE html>")
    folder = tmp_path / "sweep"
    folder.mkdir()
    rows = [
        row(name, speed, power)
        for name, speed, power in (("a", 1.0, 100.0), ("<b>", 3.0, 200.0), ("c", 2.0, 300.0))
    ]
    write_tables(folder, table_columns(rows), rows[:2])
    edge = [document.best.model_copy(update={"id": name}) for name in ("a", "<b>")]
    found = SweepDocument(
        request={},
        trials=3,
        infeasible=0,
        objectives=["throughput"],
        frontier=edge,
        manifest=document.manifest,
    )
    write_answer(folder, found)
    code, _, err = dse("report", folder)
    assert (code, "report.html" in err) == (0, True)
    assert "&lt;b&gt;" in (folder / "report.html").read_text()
    (folder / "designs.csv").unlink()
    code, _, err = dse("report", folder)
    assert (code, "designs.csv is missing" in err) == (2, True)


def row(name, speed, power):
    return {
        "id": name,
        "tdp_w": power,
        "area_mm2": 2 * power,
        "throughput_samples_per_s": speed,
        "energy_per_sample_j": np.nan,
        "mfu": 0.5,
        "memory_bytes": 2**30,
    }


def test_a_sweep_tells_its_frontier(document):
    rows = [row("a", 1.0, 100.0), row("b", 3.0, 200.0), row("c", 2.0, 300.0)]
    found = Markup(sweep_page("s", document.manifest, rows, ("a", "b")))
    words = "".join(found.texts)
    assert "2 designs of 3 that fit are beaten by no other" in words
    assert "The fastest is b" in words
    assert {"frontier", "repeat"} <= set(found.values("id"))
