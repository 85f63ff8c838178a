"""Two runs side by side, a run repeated, the runs of a folder."""

import json

import pytest

from phaze.report.terminal.side_by_side import difference_blocks
from phaze.runs.run_difference import compare_runs
from phaze.runs.run_directory import write_run
from phaze.tolerances import SAME

NOTHING = {"id": ["a"], "tdp_w": [1.0]}
SPACE = """
schema_version: 1
name: few
axes:
  - {fields: [tensor_cores], values: [2, 4]}
  - {fields: [vector_cores], values: [1, 2]}
"""


def changed(document, **certificate):
    return document.model_copy(update={"certificate": document.certificate.model_copy(update=certificate)})


def test_a_run_does_not_differ_from_itself(document):
    found = compare_runs(document, document)
    assert found.same_question
    assert found.same_answer
    assert not found.versions


def test_every_kind_of_change_has_its_place(document):
    other = changed(document, upper_bound=document.certificate.upper_bound * 2)
    other = other.model_copy(update={"request": document.request | {"power_w": 1.0, "new": [1, 2]}})
    found = compare_runs(document, other)
    assert [c.name for c in found.answer] == ["certificate.upper_bound"]
    assert {c.name for c in found.asked} == {"power_w", "new[0]", "new[1]"}
    assert not found.same_question


def test_last_digits_do_not_count(document):
    bound = document.certificate.upper_bound
    assert compare_runs(document, changed(document, upper_bound=bound * (1 + SAME / 2))).same_answer
    assert not compare_runs(document, changed(document, upper_bound=bound * (1 + SAME * 4))).same_answer


@pytest.fixture
def space(tmp_path):
    path = tmp_path / "few.yaml"
    path.write_text(SPACE)
    return path


@pytest.fixture
def run(dse, tmp_path, space):
    out = tmp_path / "results" / "first"
    ask = (
        "--workload",
        "bert-base",
        "--devices",
        1,
        "--global-batch",
        2,
        "--space",
        space,
        "--out",
        out,
        "-q",
    )
    code, _, err = dse("run", *ask)
    assert code == 0, err
    return out


def test_replay_ends_in_the_same_answer_and_can_be_kept(dse, run, tmp_path):
    again = tmp_path / "results" / "again"
    code, out, _ = dse("replay", run, "--out", again, "-q")
    assert code == 0
    assert out.startswith("Same question, the same answer.")
    code, out, _ = dse("diff", run, again, "--json")
    found = json.loads(out)
    assert found["schema"] == "phaze-diff/1"
    assert found["asked"] == found["inputs"] == found["answer"] == []


def test_replay_notices_another_answer_and_another_input(dse, run, space):
    result = json.loads((run / "result.json").read_text())
    result["best"]["tdp_w"] *= 2
    (run / "result.json").write_text(json.dumps(result))
    code, out, _ = dse("replay", run, "-q")
    assert code == 5
    assert "best.tdp_w" in out
    space.write_text(SPACE.replace("[2, 4]", "[2, 4, 8]"))
    code, _, err = dse("replay", run, "-q")
    assert code == 2
    assert "has changed since the run was made" in err


def test_runs_of_a_folder(dse, tmp_path, document):
    folder = tmp_path / "results"
    for name in ("one", "two", "no-run"):
        (folder / name).mkdir(parents=True)
    write_run(folder / "one", document, NOTHING)
    (folder / "two" / "result.json").write_text('{"schema": "phaze-result/0"}')
    code, out, err = dse("runs", folder, "--json")
    assert code == 0
    assert [row["run"] for row in json.loads(out)] == ["one"]
    assert "has schema 'phaze-result/0'" in err
    code, out, _ = dse("runs", folder)
    assert "one" in out
    code, _, err = dse("runs", tmp_path / "nowhere")
    assert (code, "no such folder" in err) == (2, True)


def test_what_became_of_the_winner_is_said_in_units(document):
    best = document.best
    (name, result), *_ = best.workloads.items()
    faster = result.model_copy(update={"throughput_samples_per_s": 2 * result.throughput_samples_per_s})
    other = document.model_copy(
        update={"best": best.model_copy(update={"id": "tc1", "tdp_w": 300.0, "workloads": {name: faster}})}
    )
    told = [block for block in difference_blocks(compare_runs(document, other)) if isinstance(block, str)]
    assert told[:2] == ["Same question, different answers.", f"The winner is tc1 instead of {best.id}."]
    assert f"throughput on {name}: 30.0 samples/s -> 60.0 samples/s (+100 %)" in told
    assert "TDP: 398 W -> 300 W (-24.6 %)" in told
