"""Verbs that look at runs again, as functions: they take folders and results alike, and say what `dse` says."""

from __future__ import annotations

import gzip
import json
import pydoc

import pytest

import phaze
from phaze.errors import InputError


@pytest.fixture(scope="module")
def alone(asked):
    """The same answer as `found`, kept nowhere."""
    return phaze.explore(**asked, power=600.0)


def test_a_winner_is_taken_where_an_architecture_is(asked, found):
    taken = {"workload": asked["workload"], "devices": 4}
    best = found.best.workloads["tiny"].iteration_time_s
    for winner in (found, found.best, found.folder, f"{found.folder}:{found.best.id}"):
        assert phaze.evaluate(winner, **taken).result.iteration_time_s == best
        assert phaze.plan(winner, **taken).best.iteration_time_s == pytest.approx(best, rel=1e-12)
    evaluated = phaze.evaluate(found.frontier[0], **taken)
    assert evaluated.result.throughput_samples_per_s == found.frontier[0].throughput_samples_per_s
    rows = phaze.compare([evaluated, found, "h100"], **taken).designs
    assert list(rows) == [evaluated.design.id, found.best.id, "h100"]


def test_what_varies_is_a_mapping_or_a_text(asked, found):
    varied = phaze.whatif(found, asked["workload"], devices=4, vary={"devices": [2, 4]})
    told = phaze.whatif(found, asked["workload"], devices=4, vary="devices=2,4")
    assert [one.plan.best for one in varied.points] == [one.plan.best for one in told.points]
    assert [point.value for point in varied.points] == ["2", "4"]
    assert varied.points[1].plan.best.iteration_time_s == found.best.workloads["tiny"].iteration_time_s
    with pytest.raises(InputError, match="takes one"):
        phaze.whatif(found, asked["workload"], vary={"devices": [2], "zero": [1]})


def test_serving_is_planned_as_the_command_does(dse):
    planned = phaze.plan_serving("h100", "llama3-8b", devices=1, max_tpot="50ms")
    words = ("--arch", "h100", "--workload", "llama3-8b", "--devices", 1, "--max-tpot", "50ms")
    document = json.loads(dse("plan", "serving", *words, "--json")[1])
    assert document["best"] == planned.document.model_dump(mode="json")["best"]
    assert len(planned.to_dataframe()) == len(planned.best.pools)
    assert "output tokens/s" in repr(planned)


def test_a_plan_is_exported_from_a_result_and_a_folder(asked, tmp_path):
    planned = phaze.plan("h100", "gpt2-xl", devices=8, out=tmp_path / "plan")
    assert phaze.export(planned) == phaze.export(tmp_path / "plan")
    assert "--tensor-model-parallel-size" in phaze.export(planned)
    with pytest.raises(InputError, match="target"):
        phaze.export(planned, target="mgatron")


def test_a_result_at_hand_is_certified_and_explained_as_its_folder_is(found, alone):
    kept, here = phaze.certify(found.folder, samples=1), phaze.certify(alone, samples=1)
    assert kept.passed
    assert [check.name for check in here.checks] == [check.name for check in kept.checks]
    assert phaze.explain(alone).explanation == phaze.explain(found.folder).explanation


def test_a_false_claim_is_found_in_a_result_at_hand(alone):
    best = alone.best.model_copy(update={"tdp_w": alone.best.tdp_w * 1.01})
    document = alone.document.model_copy(update={"best": best})
    false = type(alone)(document, alone.answer, alone.request)
    report = phaze.certify(false, samples=0)
    assert not report.passed
    assert "FAILS" in repr(report)


def test_frontiers_are_saved_by_suffix(found, alone, dse, tmp_path):
    front = phaze.pareto(alone, "tdp,throughput")
    assert [point["id"] for point in front.points] == [point.id for point in found.frontier]
    assert front.points.columns == phaze.pareto(found.folder).points.columns
    for form in ("csv", "json", "svg", "html", "parquet"):
        assert front.save(tmp_path / f"front.{form}").stat().st_size > 0
    told = dse("pareto", found.folder, "--format", "csv")[1]
    assert phaze.pareto(found.folder).save(tmp_path / "same.csv").read_text() == told
    with pytest.raises(InputError, match=r"\.csv"):
        front.save(tmp_path / "front.txt")


def test_pages_and_traces_are_written_where_asked(found, alone, tmp_path):
    page = phaze.report(alone, tmp_path / "page.html")
    assert alone.best.id in page.read_text()
    assert phaze.report(found) == found.folder / "report.html"
    events = json.loads(gzip.decompress(phaze.trace(alone, tmp_path / "trace.json.gz").read_bytes()))
    assert events["traceEvents"]
    assert phaze.trace(found.folder, tmp_path / "trace.svg").read_text().startswith("<svg")
    with pytest.raises(InputError, match="give out"):
        phaze.report(alone)


def test_runs_are_compared_and_asked_again(found, alone):
    assert phaze.diff(found.folder, alone).same_answer
    again = phaze.replay(found.folder)
    assert again.same_question
    assert again.same_answer


def test_what_is_no_run_is_refused(asked, found):
    planned = phaze.plan(found, asked["workload"], devices=4)
    for verb in (phaze.certify, phaze.explain):
        with pytest.raises(InputError, match="was not made"):
            verb(planned)
    with pytest.raises(InputError, match="was not made"):
        phaze.trace(planned, "trace.json")
    with pytest.raises(InputError, match="of type int"):
        phaze.certify(3)


def test_help_tells_of_the_function_first():
    page = pydoc.plain(pydoc.render_doc(phaze.report))
    assert "Write a run as one HTML file" in page
    assert "Find the best architecture" in pydoc.plain(pydoc.render_doc(phaze.explore))[:400]
