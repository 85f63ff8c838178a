"""Every value of a result document once, changed: the re-check finds it, or says that it does not look at it."""

from __future__ import annotations

import copy
import json
import sys
from functools import cache

import pytest
from rechecks import Known, work_out_once
from small_cases import small_decoder

from phaze.cli import main as cli
from phaze.errors import InputError
from phaze.explore.recheck import common_recheck, document_recheck
from phaze.explore.recheck.certify_run import certify, question_changed
from phaze.explore.recheck.elementary_checks import leaves, path_text
from phaze.explore.recheck.several_recheck import SeveralWorkloads
from phaze.inputs.recorded.recorded_request import request_of
from phaze.runs.run_directory import load_designs, load_run

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
TIMES = {"strategy.history[].elapsed_s", "strategy.runtime_s"}
OTHERS = {
    f"cluster.choices[].{name}"
    for name in ("id", "status", "throughput_samples_per_s", "upper_bound_samples_per_s")
}
NETWORKS = {f"networks.choices[].{name}" for name in ("id", "objective_value", "status", "upper_bound")}
KINDS = {
    "plain": ("--power 400W --devices 4 --tokens 1e9", set()),
    "axes": ("--power 400W --devices 4 --axes throughput,energy_per_sample,tdp", set()),
    "random": ("--power 400W --devices 4 --strategy random --evaluations 3", TIMES),
    "wham": ("--power 400W --devices 4 --strategy wham --designs per-stage", TIMES),
    "pair": ("--power 400W --devices 4 --designs 2", set()),
    "workloads": ("--power 400W --devices 4 -w other.yaml", set()),
    "cluster": ("--cluster-power 2kW", OTHERS),
    "networks": ("--power 700W --devices 4 --space systems.yaml", NETWORKS),
    "robust": ("--power 400W --devices 4 --robust", set()),
}
"""Runs of every kind, by the options that make them, and what of each nothing can work out again."""
LONG = {"axes", "wham", "robust", "pair"}
"""Those that take a minute."""
OWN = (
    "certificate",
    "request",
    "frontier",
    *("cluster", "networks", "portfolio", "robustness", "strategy", "two_designs", "wham"),
)
"""Parts of a document that differ from kind to kind; all others are told and worked out as in a plain run."""
FIELDS = 3  # of each architecture, of forty that are all compared in the same way


@pytest.fixture(
    scope="module",
    params=[pytest.param(kind, marks=[pytest.mark.soak] * (kind in LONG)) for kind in KINDS],
)
def run(request, tmp_path_factory):
    """The folder of a run."""
    folder = tmp_path_factory.mktemp("falsified")
    small_decoder(folder)
    text = (folder / "tiny.yaml").read_text()
    (folder / "other.yaml").write_text(
        text.replace("name: tiny", "name: other").replace("layers: 4", "layers: 2")
    )
    (folder / "few.yaml").write_text(SPACE)
    (folder / "systems.yaml").write_text(
        SPACE.replace("few", "systems") + "network: {scale_up_devices: [2, 4]}\n"
    )
    words = f"run -w tiny.yaml --space few.yaml --time-limit 10min --plans phaze -q --no-cache --out {request.param}"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["dse", *words.split(), *KINDS[request.param][0].split()])
        with pytest.raises(SystemExit) as leave:
            cli.main()
    assert leave.value.code == 0
    return folder / request.param


@pytest.fixture(scope="module")
def judge(run):
    """Says whether a document with the folder's other files is refused, and what is not looked at.

    What is worked out again depends on nothing claimed but hardware and settings: once for each is enough.
    """
    known = Known()

    def judged(changed):
        (run / "result.json").write_text(json.dumps(changed))
        try:
            found = load_run(run)
        except InputError:
            return None
        return question_changed("run", found, 0) or certify("run", request, found, designs, 0, 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(run.parent)
        document = load_run(run)
        request, designs = request_of(document, run), load_designs(run)
        work_out_once(patch, known)
        several, reached = SeveralWorkloads, SeveralWorkloads.reached
        patch.setattr(several, "reached", lambda own, *rest: known.get(reached, rest, own, *rest))
        for home, name in (
            (common_recheck.robust_answer, "judge_robustness"),
            (common_recheck.StrategyCourse, "run"),
            (document_recheck.TwoDesignsAnswer, "answer"),
        ):
            work = getattr(
                home, name
            )  # what the document claims does not enter, but that the best is the best
            patch.setattr(home, name, lambda *a, work=work, **b: known.get(work, (), *a, **b))
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
def chosen(text, kind, everything):
    """Paths to falsify: one of each place, of hardware fields a few; or all."""
    found, fields = {}, {}
    for path, value in leaves(json.loads(text)):
        where = path_text(path)
        if value is None or (not everything and (where in found or (kind != "plain" and path[0] not in OWN))):
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
        paths = chosen(text, run.name, everything)  # of the plain run every third: the long tests take all
        for path in paths if everything or run.name != "plain" else paths[::3]:
            report = judge(changed(json.loads(text), path))
            if report is not None and report.passed and path_text(path) not in report.unchecked:
                yield path_text(path)
    finally:
        (run / "result.json").write_text(text)


def test_what_is_not_checked_is_short_and_said(run, judge):
    report = judge(json.loads((run / "result.json").read_text()))
    assert report.passed
    assert {name for name in report.unchecked if not name.startswith("manifest.versions.")} == (
        UNCHECKED | KINDS[run.name][1]
    )


def test_every_false_value_is_found(run, judge):
    own = len(chosen((run / "result.json").read_text(), run.name, False))
    assert own > (100 if run.name == "plain" else 30)
    assert list(missed(run, judge, everything=False)) == []


@pytest.mark.soak
@pytest.mark.parametrize("run", ["plain"], indirect=True)
def test_every_false_value_at_every_place_is_found(run, judge):
    assert list(missed(run, judge, everything=True)) == []


@pytest.mark.parametrize("run", ["plain"], indirect=True)
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
