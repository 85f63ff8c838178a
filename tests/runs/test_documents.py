"""Documents of earlier versions, newer ones, and others: read, migrated, or refused with a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phaze.cost.kernels.fitted_constants import load_calibration
from phaze.errors import InputError
from phaze.hardware.architecture import load_architecture
from phaze.hardware.cluster_network import load_network
from phaze.hardware.spaces.space_file import load_space
from phaze.parallel.framework import load_framework
from phaze.runs.document_formats import ANSWERS, PLAN, RESULT, load_answer, load_document, read_plan
from phaze.runs.run_difference import compare_runs
from phaze.workload.workload_loader import load_workload

OLD = sorted((Path(__file__).parents[1] / "data" / "documents").glob("*.json"))
"""As earlier commits wrote them, white space and paths aside."""


def read(name):
    return json.loads(next(path for path in OLD if path.stem == name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_old_documents_become_new_ones_and_lose_nothing(path):
    old = json.loads(path.read_text(encoding="utf-8"))
    new = load_answer(path).model_dump(mode="json", by_alias=True)
    assert new["schema"] in {form.schema for form in ANSWERS}
    assert new["schema"] != old["schema"]
    assert contained(old | {"schema": new["schema"]}, new)


def contained(old, new):
    """Whether everything of one document stands in the other, plans in it being of their own version."""
    if isinstance(old, dict):
        return all(name == "schema" or contained(value, new[name]) for name, value in old.items())
    if isinstance(old, list):
        return len(old) == len(new) and all(map(contained, old, new))
    return old == new


def test_a_migrated_document_is_one_of_today(tmp_path):
    first = load_document(RESULT, OLD[[p.stem for p in OLD].index("result-1-first")])
    (tmp_path / "result.json").write_text(first.model_dump_json(by_alias=True))
    assert load_document(RESULT, tmp_path) == first
    assert compare_runs(first, first).same_answer


def test_a_newer_document_names_what_reads_it(tmp_path):
    document = read("plan-1") | {"schema": "dse-plan/17"}
    document["manifest"]["versions"]["phaze-dse"] = "4.2.0"
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(
        InputError, match=r"dse-plan/17, written by phaze-dse 4\.2\.0.*reads up to dse-plan/3"
    ):
        read_plan(tmp_path / "plan.json")
    del document["manifest"]
    with pytest.raises(InputError, match=r"read it with a later phaze-dse"):
        PLAN.read(document, "plan.json")


@pytest.mark.parametrize(
    "content",
    [
        {"schema": "phaze-sweep/1", "trials": 3, "infeasible": 0, "objectives": [], "frontier": []},
        {"schema": "phaze-result/1", "manifest": 3},
        {"schema": "dse-whatif/1", "points": [1], "varied": "devices"},
        {"schema": "phaze-result/0"},
        {"schema": "phaze-result/-1"},
        {"schema": "dse-plan/1.5"},
        {"schema": "somebody-elses/1"},
        {"schema": None},
        {},
        [],
        3,
    ],
    ids=str,
)
def test_what_cannot_be_read_is_refused_with_a_sentence(tmp_path, content):
    (tmp_path / "result.json").write_text(json.dumps(content))
    with pytest.raises(InputError) as refusal:
        load_answer(tmp_path)
    assert len(str(refusal.value).splitlines()) == 1


def test_answers_of_different_verbs_have_nothing_to_compare():
    plan, result = (load_answer(p) for p in OLD if p.stem in ("plan-1", "result-1-first"))
    with pytest.raises(InputError, match="different verbs"):
        compare_runs(plan, result)


@pytest.mark.parametrize(
    ("load_file", "known"),
    [
        (load_architecture, 1),
        (load_space, 1),
        (load_network, 2),
        (load_framework, 1),
        (load_calibration, 1),
        (lambda path: load_workload(str(path)), 1),
    ],
    ids=["architecture", "space", "network", "framework", "calibration", "workload"],
)
def test_files_for_a_later_version_are_refused_with_a_sentence(tmp_path, load_file, known):
    path = tmp_path / "later.yaml"
    path.write_text(f"schema_version: {known + 1}\nname: later\nfamily: decoder\n")
    with pytest.raises(
        InputError, match=rf"schema_version: must be {known}, found {known + 1}, for a later phaze-dse"
    ):
        load_file(path)
