"""A re-check passes on a good run, and finds every lie in a bad one."""

from __future__ import annotations

import pytest
from rechecks import Known, work_out_once

from phaze.errors import InputError
from phaze.explore.answers.main_job import explore
from phaze.explore.documents.result_document import Asked
from phaze.explore.recheck.certify_run import certify as checked
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Task
from phaze.hardware.spaces.space_file import load_space
from phaze.inputs.recorded.recorded_request import asked_of_run
from phaze.parallel.plan_choices import load_plans

WHOLE_ANSWERS = True  # runners-up serve as false winners
SPACE = """
schema_version: 1
name: few
axes:
  - {fields: [tensor_cores], values: [1, 2, 4, 8]}
  - {fields: [tensor_core_rows], values: [64, 128, 256]}
  - {fields: [tensor_core_columns], values: [64, 128, 256]}
  - {fields: [vector_core_alus], values: [64, 256, 1024]}
"""


@pytest.fixture(scope="module")
def run(tiny, network, tmp_path_factory):
    """A request and its answer."""
    path = tmp_path_factory.mktemp("spaces") / "few.yaml"
    path.write_text(SPACE)
    request = ExploreRequest(
        Task(tiny, 4, network, plans=load_plans("phaze")),
        load_space(path),
        Budgets(power_w=250.0),
        time_limit_s=600.0,
    )
    return request, explore(request)


@pytest.fixture(scope="module", autouse=True)
def once():
    """Re-checks of this module differ in claims alone."""
    with pytest.MonkeyPatch.context() as patch:
        work_out_once(patch, Known())
        yield


def certify(run, document=None, samples=0):
    request, answer = run
    names = list(answer.designs)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*answer.designs.values(), strict=True)]
    return checked("run", request, document or answer.document, rows, samples, 0)


def failed(report):
    return {check.name for check in report.checks if not check.passed}


def test_a_good_run_passes(run):
    report = certify(run, samples=6)
    assert report.passed
    assert not failed(report)
    assert report.samples
    assert len({sample.id for sample in report.samples}) == len(report.samples)


def test_a_lowered_objective_is_found(run):
    document = run[1].document
    lower = document.certificate.objective_value * 0.9
    changed = document.certificate.model_copy(update={"objective_value": lower})
    report = certify(run, document.model_copy(update={"certificate": changed}))
    assert "objective value is the winner's" in failed(report)


def test_a_lowered_bound_is_found(run):
    document = run[1].document
    bound = document.certificate.upper_bound * 0.9
    changed = document.certificate.model_copy(update={"upper_bound": bound})
    report = certify(run, document.model_copy(update={"certificate": changed}))
    assert "bound, gap and optimality agree" in failed(report)


def test_a_step_missing_from_the_frontier_is_found(run):
    document = run[1].document
    last = len(document.frontier) - 1
    assert last > 3
    for missing in (0, last // 2, last):  # each is judged alike
        left = [point for i, point in enumerate(document.frontier) if i != missing]
        report = certify(run, document.model_copy(update={"frontier": left}))
        assert "no evaluated design is missing from the frontier" in failed(report)


def test_a_worse_design_that_claims_to_win_is_found(run):
    document = run[1].document
    second = document.next_best[0]
    value = second.workloads["tiny"].throughput_samples_per_s
    changed = document.certificate.model_copy(update={"objective_value": value, "upper_bound": value})
    report = certify(run, document.model_copy(update={"best": second, "certificate": changed}))
    assert "no evaluated design is better" in failed(report)


def test_wrong_counts_are_found(run):
    document = run[1].document
    c = document.certificate
    changed = c.model_copy(update={"over_budget": c.over_budget + 1, "pruned": c.pruned - 1})
    assert "counts" in failed(certify(run, document.model_copy(update={"certificate": changed})))


def typed(document, *line):
    """The manifest of a run that tells its command line alone."""
    return document.manifest.model_copy(update={"command": list(line), "asked": None})


def test_a_run_from_before_plans_were_searched_is_refused(document, tmp_path):
    with pytest.raises(InputError, match="under 1F1B pipelines alone"):
        asked_of_run(typed(document, "dse", "run", "-w", "gpt3", "--power", "400W"), tmp_path)
    asked = Asked(verb="run", options={"workload": ["gpt3"], "plans": None, "framework": None})
    with pytest.raises(InputError, match="ask again with dse run"):
        asked_of_run(document.manifest.model_copy(update={"asked": asked}), tmp_path)
    with pytest.raises(InputError, match="was not made by dse run"):
        asked_of_run(typed(document, "dse", "sweep", "-w", "gpt3"), tmp_path)


def test_software_that_was_named_had_the_plans_of_the_default(document, tmp_path):
    options = {"workload": ["gpt3"], "plans": None, "framework": "exposed"}
    manifest = document.manifest.model_copy(
        update={"asked": Asked(verb="run", options=options), "inputs_sha256": {}}
    )
    assert asked_of_run(manifest, tmp_path).plans == "full"


def test_a_changed_input_is_refused(document, tmp_path):
    asked = Asked(verb="run", options={"workload": ["gpt3"], "plans": "full", "framework": "ideal"})
    manifest = document.manifest.model_copy(update={"asked": asked, "inputs_sha256": {"workload": "0" * 64}})
    with pytest.raises(InputError, match="has changed since the run"):
        asked_of_run(manifest, tmp_path)
    lost = Asked(verb="run", options={**asked.options, "workload": [str(tmp_path / "gone.yaml")]})
    with pytest.raises(InputError, match="is missing"):
        asked_of_run(manifest.model_copy(update={"asked": lost}), tmp_path)
