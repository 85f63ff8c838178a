"""Documents that were changed by hand so that they no longer speak of one thing are refused with one sentence."""

from __future__ import annotations

import json
import sys

import pytest
from small_cases import small_decoder

from phaze.cli import main as cli
from phaze.errors import InputError
from phaze.inputs.recorded.recorded_request import asked_of_run, request_of
from phaze.runs.run_directory import load_run

SPACE = "schema_version: 1\nname: few\naxes:\n  - {fields: [tensor_cores], values: [4]}\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run."""
    folder = tmp_path_factory.mktemp("changed")
    small_decoder(folder)
    (folder / "few.yaml").write_text(SPACE)
    words = "dse run -w tiny.yaml --space few.yaml --devices 1 --plans phaze --time-limit 1h -q --no-cache --out run"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", words.split())
        with pytest.raises(SystemExit) as leave:
            cli.main()
    assert leave.value.code == 0
    return folder / "run"


def changed(run, tmp_path, change):
    """A copy of the run with another document."""
    document = json.loads((run / "result.json").read_text())
    change(document)
    (tmp_path / "result.json").write_text(json.dumps(document))
    return tmp_path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["best"]["workloads"].clear(), "do not speak of the same workloads"),
        (lambda d: d.update(next_best=[d["best"] | {"workloads": {}}]), "do not speak of the same workloads"),
        (lambda d: d["best"]["workloads"]["tiny"]["placement"].update(stages=[]), "at least one stage"),
        (lambda d: d["best"]["workloads"]["tiny"].update(throughput_samples_per_s=0), "above 0, found 0"),
        (lambda d: d["best"]["workloads"]["tiny"].update(devices=0), "above 0, found 0"),
        (lambda d: d["best"].update(tdp_w=0.0), "above 0, found 0.0"),
        (lambda d: d["frontier"][0].update(area_mm2=-1.0), "above 0, found -1.0"),
    ],
)
def test_a_document_that_contradicts_itself_is_not_read(run, tmp_path, change, words):
    with pytest.raises(InputError, match=words):
        load_run(changed(run, tmp_path, change))


def renamed(document):
    document["best"]["workloads"]["other"] = document["best"]["workloads"].pop("tiny")


def without_plan(document):
    document["best"]["workloads"]["tiny"]["placement"]["plan"] = None


@pytest.mark.parametrize(
    ("change", "words"), [(renamed, "asked about tiny and answers for other"), (without_plan, "has no plan")]
)
def test_a_run_that_tells_of_something_else_is_not_worked_out_again(
    run, tmp_path, change, words, monkeypatch
):
    monkeypatch.chdir(run.parent)
    folder = changed(run, tmp_path, change)
    with pytest.raises(InputError, match=words):
        request_of(load_run(folder), folder)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("devices", "x"),
        ("gap", None),
        ("axes", 3),
        ("objective", None),
        ("mode", 4),
        ("weight", 1.5),
        ("fix", 7),
    ],
)
def test_options_of_a_wrong_type_in_a_manifest_are_named(run, option, value):
    manifest = load_run(run).manifest
    options = manifest.asked.options | {option: value}
    changed = manifest.model_copy(update={"asked": manifest.asked.model_copy(update={"options": options})})
    with pytest.raises(InputError, match=f"its manifest was changed: {option} is "):
        asked_of_run(changed, run)
