"""Every value of a result document once, changed: the re-check finds it, or says that it does not look at it."""

from __future__ import annotations

import copy
import json
import sys
from functools import cache

import pytest
from small_cases import small_decoder

from phaze.cli import main as cli
from phaze.cli.rerun import request_of
from phaze.errors import InputError
from phaze.explore.certifying import throughput_power, whole
from phaze.explore.certifying.certify import certify, question_changed
from phaze.explore.certifying.leaves import leaves, told
from phaze.runs.directory import load_designs, load_run

WHOLE_ANSWERS = True  # runners-up and known chips are falsified, too
SPACE = """
schema_version: 1
name: few
axes:
  - {fields: [tensor_cores], values: [1, 4]}
  - {fields: [vector_core_alus], values: [64, 1024]}
"""
UNCHECKED = {
    *("manifest.command[]", "manifest.started_utc", "manifest.wall_time_s"),
    *(f"manifest.machine.{name}" for name in ("cores", "memory_bytes", "platform")),
}
NOT_ASKED = {"cluster", "portfolio", "robustness", "strategy", "wham"}
FIELDS = 3  # of each architecture, of forty that are all compared in the same way


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run."""
    folder = tmp_path_factory.mktemp("falsified")
    small_decoder(folder)
    (folder / "few.yaml").write_text(SPACE)
    words = ["run", "-w", folder / "tiny.yaml", "--space", folder / "few.yaml", "--power", "400W", "-q"]
    words += [
        "--devices",
        4,
        "--tokens",
        "1e9",
        "--time-limit",
        "10min",
        "--plans",
        "phaze",
        "--out",
        folder / "run",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["dse", *map(str, words)])
        with pytest.raises(SystemExit) as leave:
            cli.main()
    assert leave.value.code == 0
    return folder / "run"


@pytest.fixture(scope="module")
def judge(run):
    """Says whether a document with the folder's other files is refused, and what is not looked at.

    What is worked out again depends on nothing claimed but hardware and settings: once for each is enough.
    """
    document = load_run(run)
    request, designs = request_of(document, run), load_designs(run)
    beside = whole.comparisons(request, document.best, whole.DesignBuilder(request.task, 1.0))
    kept = {}

    def once(work):
        """`work`, which is not done twice for arguments that look the same."""

        def recalled(*arguments, **options):
            key = work.__name__, repr([*arguments, options])
            if key not in kept:
                kept[key] = work(*arguments, **options)
            return kept[key]

        return recalled

    def judged(changed):
        (run / "result.json").write_text(json.dumps(changed))
        try:
            found = load_run(run)
        except InputError:
            return None
        return question_changed("run", found, 0) or certify("run", request, found, designs, 0, 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole, "comparisons", lambda *_: beside)
        patch.setattr(whole, "placed", once(whole.placed))
        patch.setattr(throughput_power, "evaluate", once(throughput_power.evaluate))
        yield judged


def falsified(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.001 if value else 0.001
    return value + "x" if isinstance(value, str) else "x"


def changed(tree, path):
    tree = copy.deepcopy(tree)
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = falsified(parent[path[-1]])
    return tree


@cache
def chosen(text, everything):
    """Paths to falsify: one of each place, of hardware fields a few; or all."""
    found, fields = {}, {}
    for path, value in leaves(json.loads(text)):
        where = told(path)
        if value is None or (not everything and where in found):
            continue
        if "architecture" in path and not everything:
            owner = path[: path.index("architecture")]
            fields[owner] = fields.get(owner, 0) + 1
            if fields[owner] > FIELDS:
                continue
        found[path if everything else where] = path
    return tuple(found.values())


def missed(run, judge, *, everything):
    text = (run / "result.json").read_text()
    try:
        for path in chosen(text, everything):
            report = judge(changed(json.loads(text), path))
            if report is not None and report.passed and told(path) not in report.unchecked:
                yield told(path)
    finally:
        (run / "result.json").write_text(text)


def test_what_is_not_checked_is_short_and_said(run, judge):
    report = judge(json.loads((run / "result.json").read_text()))
    assert report.passed
    assert {name for name in report.unchecked if not name.startswith("manifest.versions.")} == (
        UNCHECKED | NOT_ASKED
    )


def test_every_false_value_is_found(run, judge):
    assert len(chosen((run / "result.json").read_text(), False)) > 100
    assert list(missed(run, judge, everything=False)) == []


@pytest.mark.soak
def test_every_false_value_at_every_place_is_found(run, judge):
    assert list(missed(run, judge, everything=True)) == []


def test_a_question_that_was_changed_is_found_before_anything_else(run, dse):
    text = (run / "result.json").read_text()
    document = json.loads(text)
    document["manifest"]["asked"]["options"]["power"] = "390W"
    document["request"]["power_w"] = 390.0
    try:
        (run / "result.json").write_text(json.dumps(document))
        code, out, err = dse("certify", run, "--samples", 0, "-q", "--json")
    finally:
        (run / "result.json").write_text(text)
    assert code == 5
    assert not err
    assert [check["name"] for check in json.loads(out)["checks"]] == [
        "the question is the one that was asked"
    ]
