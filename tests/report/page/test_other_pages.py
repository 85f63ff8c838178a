"""Pages of comparisons, of one thing varied, of serving, and of several runs: whole, true to the document, escaped."""

from __future__ import annotations

import json

import pytest

from phaze.errors import InputError
from phaze.explore.documents.compare_document import CompareDocument
from phaze.explore.documents.plan_document import WhatIfDocument
from phaze.inputs.options.plan_options import PlanOptions
from phaze.inputs.plan_inputs import plan_answer
from phaze.report.page.other_pages import compare_page, runs_page, serving_page, whatif_page
from phaze.testing.figure_contract import HOSTILE, Markup, hostile

PLAN = PlanOptions(
    arch="a100", workload=["bert-base"], devices=8, global_batch=32, tensor_parallel=1, pipeline_parallel=4
)


@pytest.fixture(scope="module")
def plan():
    return plan_answer(PLAN)


@pytest.fixture(scope="module")
def serving(dse_json):
    return dse_json(
        "plan", "serving", "--arch", "a100", "--workload", "gpt2-xl", "--devices", "1", "--prompt", "64"
    )


@pytest.fixture(scope="module")
def dse_json():
    from typer.testing import CliRunner

    from phaze.cli.main import app

    def asked(*words):
        return CliRunner().invoke(app, [*words, "--json"]).stdout

    return asked


def read(source):
    """The page, whole and with nothing from elsewhere; its texts in one."""
    found = Markup(source)
    assert len(found.values("id")) == len(set(found.values("id")))
    links = found.values("href", "src")
    assert [link for link in links if not link.startswith("#")] == []
    assert {link[1:] for link in links} <= set(found.values("id"))
    assert found.handlers == []
    assert "None" not in "".join(found.texts)
    return found, " ".join(" ".join(found.texts).split())


def compared(document):
    designs = {"fast": document.best, "slow": document.next_best[0]}
    return CompareDocument(
        request={"architectures": ["fast", "slow", "big"]},
        designs=designs,
        infeasible={"big": "big: does not fit in 80 GiB"},
        manifest=document.manifest,
    )


def test_a_comparison_tells_the_fastest_and_who_cannot(document):
    _, words = read(compare_page("cmp", compared(document)))
    speeds = [
        next(iter(d.workloads.values())).throughput_samples_per_s for d in compared(document).designs.values()
    ]
    assert f"{max(speeds) / min(speeds):.3g}"[:3] in words
    assert "fast is the fastest" in words
    assert "does not fit in 80 GiB" in words


def test_a_comparison_of_nothing_that_runs(document):
    nothing = compared(document).model_copy(update={"designs": {}})
    assert "None of the architectures" in compare_page("cmp", nothing)


def test_one_thing_varied(plan):
    slower = plan.model_copy(
        update={
            "best": plan.best.model_copy(
                update={"throughput_samples_per_s": plan.best.throughput_samples_per_s / 2}
            )
        }
    )
    points = [
        {"value": "8", "plan": plan},
        {"value": "4", "plan": slower},
        {"value": "1", "plan": None, "reason": "needs 99 GiB"},
    ]
    document = WhatIfDocument(varied="devices", points=points, manifest=plan.manifest)
    found, words = read(whatif_page("w", document))
    assert "The fastest is devices 8" in words
    assert "2.00 x as fast as with 4" in words
    assert "needs 99 GiB" in words
    assert {"values", "time", "plans", "assumptions", "repeat"} <= set(found.values("id"))
    nothing = document.model_copy(update={"points": document.points[2:], "manifest": None})
    assert "No value leaves a plan that fits" in read(whatif_page("w", nothing))[1]


def test_serving(serving):
    from phaze.explore.documents.serving_document import ServingDocument

    document = ServingDocument.model_validate_json(serving)
    found, words = read(serving_page("s", document))
    assert f"The best policy is {document.best.policy} :" in words
    assert {"latency", "replicas", "assumptions", "repeat"} <= set(found.values("id"))
    assert "no target given" in words


def test_names_stay_names(document, plan, serving):
    from phaze.explore.documents.serving_document import ServingDocument

    evil = hostile(document)
    chips = compared(evil).model_copy(
        update={"designs": {HOSTILE: evil.best}, "infeasible": {HOSTILE: HOSTILE}}
    )
    told = json.loads(serving)
    told["request"] |= {"workload": HOSTILE, "architecture": HOSTILE}
    varied = WhatIfDocument(varied=HOSTILE, points=[{"value": HOSTILE, "plan": plan}], manifest=plan.manifest)
    for source in (
        compare_page(HOSTILE, chips),
        whatif_page(HOSTILE, varied),
        serving_page(HOSTILE, ServingDocument.model_validate(told)),
        runs_page({HOSTILE: evil, "other": document}),
    ):
        found = Markup(source)
        assert "img" not in found.names
        assert found.handlers == []


def test_several_runs_side_by_side(document):
    other = document.model_copy(
        update={"best": document.next_best[0], "request": {**document.request, "power_w": 300.0}}
    )
    found, words = read(runs_page({"one": document, "two": other}))
    assert "one has the fastest winner" in words
    assert "400 W" in words
    assert "300 W" in words
    assert sum("one: " in text for text in found.texts) >= len(document.frontier)


def test_report_takes_several_runs_and_every_verb(dse, document, tmp_path):
    from phaze.runs.run_directory import write_answer

    later = document.model_copy(update={"best": document.next_best[0]})
    for name, answer in (("a", document), ("b", later), ("c", compared(document))):
        (tmp_path / name).mkdir()
        write_answer(tmp_path / name, answer)
    code, _, err = dse("report", tmp_path / "a", tmp_path / "b")
    assert (code, "--out" in err) == (2, True)
    out = tmp_path / "both.html"
    assert dse("report", tmp_path / "a", tmp_path / "b", "--out", out)[0] == 0
    assert "2 runs side by side" in out.read_text()
    code, _, err = dse("report", tmp_path / "a", tmp_path / "c", "--out", out)
    assert (code, "holds no others" in err) == (2, True)
    code, _, err = dse("report", tmp_path / "a", tmp_path / "a", "--out", out)
    assert (code, "named twice" in err) == (2, True)
    assert dse("report", tmp_path / "c")[0] == 0
    assert "is the fastest" in (tmp_path / "c" / "report.html").read_text()


def test_python_writes_several_runs(document, tmp_path):
    import phaze
    from phaze.runs.run_directory import write_answer

    later = document.model_copy(update={"best": document.next_best[0]})
    for name, answer in (("a", document), ("b", later)):
        (tmp_path / name).mkdir()
        write_answer(tmp_path / name, answer)
    out = phaze.report([tmp_path / "a", tmp_path / "b"], tmp_path / "both.html")
    assert "2 runs side by side" in out.read_text()
    with pytest.raises(InputError, match="give out"):
        phaze.report([tmp_path / "a", tmp_path / "b"])
