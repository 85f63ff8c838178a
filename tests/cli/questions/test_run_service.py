"""`dse run --serve`: the chip of a service, its run directory, and what is refused."""

from __future__ import annotations

import json

import pytest
from test_plan_serving import SERVED

import phaze
from phaze.errors import InputError

FEW = """
schema_version: 1
name: few
axes:
  - {fields: [tensor_cores], values: [2, 4]}
  - {fields: [tensor_core_rows, tensor_core_columns], values: [[128, 128]]}
  - fields: [hbm_generation, hbm_stacks]
    values: [[HBM2e, 4], [HBM3, 6]]
"""


@pytest.fixture
def run(dse, tmp_path):
    model, space = tmp_path / "served.yaml", tmp_path / "few.yaml"
    model.write_text(SERVED)
    space.write_text(FEW)

    def call(*options):
        sizes = ("--prompt", 256, "--output-tokens", 32, "--devices", 2)
        where = ("-w", model, "--space", space, "--out", tmp_path / "run", "--quiet", "--no-disaggregate")
        return dse("run", *where, *sizes, *options)

    return call


def test_the_chip_of_a_service_and_its_plan_again(run, dse, tmp_path):
    code, out, _ = run("--serve", "concurrency=8", "--ttft", "1s", "--tpot", "20ms", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["certificate"]["optimal"]
    assert told["certificate"]["objective_value"] == told["best"]["tokens_per_s"]
    assert told["request"]["clients"] == 8
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == told
    again = ("--concurrency", 8, "--max-ttft", "1s", "--max-tpot", "20ms", "--json", "--no-disaggregate")
    sizes = ("--prompt", 256, "--output-tokens", 32, "--devices", 2)
    code, out, _ = dse(
        "plan", "serving", "-a", tmp_path / "run", "-w", tmp_path / "served.yaml", *sizes, *again
    )
    assert code == 0
    planned = json.loads(out)["best"]
    assert planned["tokens_per_s"] == pytest.approx(told["best"]["tokens_per_s"], rel=1e-9)
    code, out, _ = dse("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert code == 0
    page = (tmp_path / "page.html").read_text()
    assert told["chip"]["id"] in page
    assert "no point is better than" in page


PAIR = """
schema_version: 1
name: pair
axes:
  - {fields: [tensor_cores], values: [1, 5]}
  - {fields: [tensor_core_rows], values: [64, 256]}
  - {fields: [hbm_stacks], values: [2, 4]}
"""


@pytest.fixture(scope="module")
def two_chips(tmp_path_factory):
    """A run for one chip and for two, as a document."""
    folder = tmp_path_factory.mktemp("pair")
    (folder / "served.yaml").write_text(SERVED)
    (folder / "pair.yaml").write_text(PAIR)
    phaze.explore_service(
        folder / "served.yaml",
        space=folder / "pair.yaml",
        serve="saturated",
        objective="cost_per_million_tokens",
        prompt=256,
        output_tokens=32,
        devices=3,
        designs="2",
        disaggregate=True,
        out=folder / "run",
    )
    return folder / "run"


def test_two_chips_are_told_and_planned_again(two_chips, dse, tmp_path):
    told = json.loads((two_chips / "result.json").read_text())
    pair = told["two_chips"]
    assert pair["optimal"]
    assert pair["gain"] > 0
    assert told["request"]["designs"] == 2
    cost = pair["cost"]["cost_per_million_tokens_usd"]
    assert cost == pytest.approx(1 / pair["objective_value"])
    assert cost < told["cost"]["cost_per_million_tokens_usd"]
    code, _, _ = dse("report", two_chips, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert code == 0
    assert all(chip["id"] in page for chip in pair["chips"])
    assert "its design and mask sets" in page


def test_certify_works_a_service_and_its_pair_out_again(two_chips, dse, tmp_path):
    code, out, _ = dse("certify", two_chips, "--samples", 3, "--json")
    report = json.loads(out)
    assert (code, report["passed"]) == (0, True)
    assert len(report["samples"]) == 3
    assert not [path for path in report["unchecked"] if path.startswith(("best", "cost", "chip", "request"))]
    told = json.loads((two_chips / "result.json").read_text())
    for place, wrong in (
        (("best", "tokens_per_s"), 1.01),
        (("certificate", "objective_value"), 1.01),
        (("certificate", "upper_bound"), 0.9),
        (("certificate", "space_size"), 2),
        (("next_best", 0, "objective_value"), 2.0),
        (("two_chips", "objective_value"), 1.01),
        (("two_chips", "gain"), 2.0),
        (("two_chips", "upper_bound"), 0.99),
        (("two_chips", "cost", "cost_per_million_tokens_usd"), 0.9),
        (("two_chips", "second_design", "saved_per_million_tokens_usd"), 1.1),
        (("two_chips", "chips", 0, "tdp_w"), 0.5),
        (("two_chips", "best", "pools", 1, "batch"), 2.0),
    ):
        changed = json.loads(json.dumps(told))
        *path, last = place
        within = changed
        for key in path:
            within = within[key]
        within[last] *= wrong
        (tmp_path / "result.json").write_text(json.dumps(changed))
        code, out, _ = dse("certify", tmp_path / "result.json", "--samples", 0, "--json")
        assert (code, json.loads(out)["passed"]) == (5, False), place


def test_two_chips_in_words(run):
    code, out, _ = run("--serve", "saturated", "--designs", "2", "--disaggregate")
    assert code == 0
    assert "A second chip" in " ".join(out.split())
    assert "pairs of pools" in " ".join(out.split())


def test_an_engine_counts(run, tmp_path):
    """Fewer tokens than without, and `dse plan serving` has the same under that engine."""
    code, out, _ = run("--serve", "concurrency=8", "--json")
    assert code == 0
    free = json.loads(out)["best"]["tokens_per_s"]
    code, out, _ = run("--serve", "concurrency=8", "--engine", "vllm", "--json", "--out", tmp_path / "engine")
    assert code == 0
    told = json.loads(out)
    assert told["certificate"]["optimal"]
    assert told["request"]["engine"] == "vllm"
    assert told["best"]["tokens_per_s"] < free


def test_the_answer_in_words(run):
    code, out, _ = run("--serve", "rate=20", "--objective", "cost_per_million_tokens")
    assert code == 0
    assert "no other design or plan" in " ".join(out.split())
    assert "USD per million output tokens" in " ".join(out.split())


@pytest.mark.parametrize(
    ("options", "said", "ends"),
    [
        (("--serve", "rate=-1"), "'rate=-1' is not a load: write saturated", 2),
        (("--serve", "often"), "--serve 'often' is not a load", 2),
        (("--serve", "rate=3"), "a rate fixes the throughput", 2),
        (("--serve", "saturated", "--strategy", "random"), "--strategy is not for a service", 2),
        (("--tpot", "5ms"), "--prompt is for a service: give --serve", 2),
        (("--serve", "saturated", "--engine", "vlm"), "vlm", 2),
        (("--serve", "saturated", "--designs", "2"), "leave out --no-disaggregate", 2),
        (("--serve", "concurrency=4", "--designs", "2", "--disaggregate"), "not for clients", 2),
        (("--serve", "saturated", "--designs", "per-stage"), "--designs per-stage is not for a service", 2),
        (("--serve", "saturated", "--tpot", "1ns"), "time per output token", 3),
        (("--serve", "saturated", "--power", "1W"), "keeps the budgets", 3),
    ],
)
def test_refusals(run, tmp_path, options, said, ends):
    code, out, err = run(*options)
    assert (code, out) == (ends, "")
    assert said in " ".join(err.split())
    assert not (tmp_path / "run" / "result.json").exists()


def test_from_python_and_what_the_result_is_taken_for(run, tmp_path):
    code, out, _ = run("--serve", "concurrency=8", "--json")
    assert code == 0
    told = json.loads(out)
    found = phaze.explore_service(
        tmp_path / "served.yaml",
        space=tmp_path / "few.yaml",
        serve="concurrency=8",
        prompt=256,
        output_tokens=32,
        devices=2,
        disaggregate=False,
        out=tmp_path / "kept",
    )
    assert found.chip.id == told["chip"]["id"]
    assert found.best.tokens_per_s == told["best"]["tokens_per_s"]
    assert found.certificate.optimal
    assert [one.id for one in found.next_best] == [one["id"] for one in told["next_best"]]
    assert found.chip.id in repr(found)
    assert phaze.diff(found, tmp_path / "kept").same_answer
    assert phaze.evaluate(found, "gpt3-small", devices=2, global_batch=8).design.tdp_w == pytest.approx(
        found.chip.tdp_w
    )
    assert phaze.report(found, tmp_path / "page.html").is_file()
    with pytest.raises(InputError, match="objective 'area' is not known"):
        phaze.explore_service("gpt3-small", objective="area")
