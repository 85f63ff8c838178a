"""A re-check of a run over any axes passes on a good run, and finds every lie in a bad one."""

from __future__ import annotations

from contextlib import suppress

import pytest
from small_cases import StopsSoon

from phaze.errors import OutOfTimeError
from phaze.explore.answers.main_job import explore
from phaze.explore.recheck.certify_run import certify
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Objective, Task
from phaze.hardware.spaces.space_file import load_space

AXES = {
    "throughput": ("energy_per_sample", "tdp"),
    "energy_per_sample": ("throughput", "tdp"),
    "tdp": ("throughput", "cost_per_chip", "mfu", "carbon_per_million_tokens"),
}
SPACE = """
schema_version: 1
name: dozen
axes:
  - {fields: [tensor_cores], values: [1, 4]}
  - {fields: [tensor_core_rows], values: [64, 128, 256]}
  - {fields: [vector_core_alus], values: [64, 1024]}
"""


ALIKE = pytest.mark.parametrize("run", ["energy_per_sample"], indirect=True)
"""Of lies that are judged alike whatever the objective."""


@pytest.fixture(scope="module", params=AXES)
def run(request, tiny, network, resources, tmp_path_factory):
    """A request and its answer."""
    path = tmp_path_factory.mktemp("spaces") / "dozen.yaml"
    path.write_text(SPACE)
    asked = ExploreRequest(
        Task(tiny, 4, network),
        load_space(path),
        Budgets(power_w=300.0),
        objective=Objective(request.param),
        axes=AXES[request.param],
        min_throughput=20.0,
        time_limit_s=600.0,
    )
    return asked, explore(asked, resources=resources)


def checked(run, samples=0, **changes):
    asked, answer = run
    names = list(answer.designs)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*answer.designs.values(), strict=True)]
    return certify("run", asked, answer.document.model_copy(update=changes), rows, samples, 0)


def failed(report):
    return {check.name for check in report.checks if not check.passed}


def changed(record, **factors):
    return record.model_copy(update={name: getattr(record, name) * f for name, f in factors.items()})


def test_a_good_run_passes(run):
    report = checked(run, samples=4)
    assert not failed(report)
    assert report.passed
    assert len(report.samples) == 4
    assert any(sample.value > 0 for sample in report.samples)


def first_answer(asked, resources):
    """What is known as soon as anything is."""
    for looks in range(1, 100, 4):
        with suppress(OutOfTimeError):
            return explore(asked, clock=StopsSoon(looks), resources=resources)
    raise AssertionError


def test_a_run_that_was_stopped_early_passes(run, resources):
    answer = first_answer(run[0], resources)
    several = len(run[1].document.frontier) > 1  # the only point of a frontier is the first that is found
    assert answer.document.certificate.frontier_complete != several
    assert not failed(checked((run[0], answer), samples=4))


def test_a_lowered_bound_and_a_false_objective_are_found(run):
    certificate = run[1].document.certificate
    assert "bound, gap and optimality agree" in failed(
        checked(run, certificate=changed(certificate, upper_bound=0.9))
    )
    assert "objective value is the winner's" in failed(
        checked(run, certificate=changed(certificate, objective_value=0.9))
    )


@ALIKE
def test_a_winner_that_does_better_than_it_can_is_found(run):
    best = run[1].document.best
    for figure in ("throughput_samples_per_s", "energy_per_iteration_j", "memory_bytes"):
        result = changed(best.workloads["tiny"], **{figure: 1.001})
        report = checked(run, best=best.model_copy(update={"workloads": {"tiny": result}}))
        assert any(name.startswith(f"{figure.split('_')[0]} of the winner") for name in failed(report))


@ALIKE
def test_points_of_the_frontier_that_cannot_be_reached_are_found(run):
    asked, answer = run
    points = list(answer.document.frontier)
    points[-1] = changed(points[-1], throughput_samples_per_s=1.01, tdp_w=0.99, memory_bytes=0.99)
    columns = dict(answer.designs)
    for name in ("throughput_samples_per_s", "tdp_w", "memory_bytes"):
        columns[name] = columns[name].copy()
        columns[name][-1] = getattr(points[-1], name)
    liar = (asked, type(answer)(answer.document.model_copy(update={"frontier": points}), columns))
    assert "the design table holds the frontier" in failed(checked(run, frontier=points))
    assert "every point of the frontier is reached" in failed(checked(liar))


@ALIKE
def test_a_point_missing_from_the_frontier_is_found(run):
    asked, answer = run
    points = answer.document.frontier
    kept = [i for i in range(len(points)) if i != len(points) // 2]
    document = answer.document.model_copy(update={"frontier": [points[i] for i in kept]})
    liar = (asked, type(answer)(document, {name: column[kept] for name, column in answer.designs.items()}))
    assert "no sampled point is missing from the frontier" in failed(checked(liar, samples=12))


@ALIKE
def test_a_frontier_outside_the_space_is_found(run):
    points = list(run[1].document.frontier)
    points[0] = points[0].model_copy(update={"architecture": points[0].architecture | {"tensor_cores": 5}})
    assert "all designs are in the space and within budget" in failed(checked(run, frontier=points))


@ALIKE
def test_wrong_counts_are_found(run):
    certificate = run[1].document.certificate
    wrong = certificate.model_copy(update={"pruned": certificate.pruned - 1})
    assert "counts" in failed(checked(run, certificate=wrong))
