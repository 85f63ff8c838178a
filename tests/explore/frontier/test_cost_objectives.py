"""The cheapest and the cleanest architecture of a small space are those that evaluating all of it finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_cases import FEW_ARRAYS

from phaze.explore.answers.main_job import explore
from phaze.explore.evaluation.energy_and_memory import Measures
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.evaluation.sample_costs import SampleCosts
from phaze.explore.request.explore_request import ExploreRequest, Objective, Task
from phaze.hardware.economics.economic_figures import Economics
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.space_file import load_space
from phaze.scheduling.passes import SolveLimits

EFFORT = SolveLimits(lambda: 1e6, 1e7)
OWN = Economics()
CASES = {
    "cost_per_sample": OWN,
    "cost_per_million_tokens": OWN.changed(
        volume_chips=100, electricity_usd_per_kwh=1.0, wafer_usd={"N7": 1e6}
    ),
    "carbon_per_sample": OWN,
    "carbon_per_million_tokens": OWN.changed(carbon_intensity_kg_per_kwh="iceland", host_kg=0, host_w=0),
}
RENTED = OWN.changed(rent_usd_per_device_hour=2.5)


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    path = tmp_path_factory.mktemp("spaces") / "few.yaml"
    path.write_text(FEW_ARRAYS)
    return load_space(path)


@pytest.fixture(scope="module")
def measured(tiny, network, space):
    """Seconds and joules of a sample at every point of the space, (configs, A) each, and its table."""
    task = Task(tiny, 16, network)
    evaluator = Evaluator(task, space.table())
    rows, measures = np.arange(len(evaluator.table)), Measures(evaluator)
    found = [measures.exact(config, rows, EFFORT) for config in evaluator.configs]
    seconds = np.array([one.iteration_s for one in found]) / task.cluster.global_batch
    return task, evaluator.table, seconds, np.array([one.energy_per_sample_j for one in found])


def costs(measured, economics, column):
    """A column of money or carbon at every point."""
    task, table, seconds, joules = measured
    each = SampleCosts.of(replace(task, economics=economics), table, area_mm2(table), tdp_w(table))
    rows = np.arange(len(table))
    return np.array([each.columns(rows, s, j)[column] for s, j in zip(seconds, joules, strict=True)])


def answer(measured, space, objective, economics):
    task = replace(measured[0], economics=economics)
    return explore(ExploreRequest(task, space, objective=Objective(objective))).document


@pytest.mark.parametrize(("objective", "economics"), CASES.items(), ids=CASES)
def test_the_best_by_money_or_carbon_is_that_of_enumeration(objective, economics, measured, space):
    document = answer(measured, space, objective, economics)
    unit = "usd" if objective.startswith("cost") else "kg"
    least = costs(measured, economics, f"{objective}_{unit}").min()
    assert document.certificate.optimal
    assert document.certificate.gap == 0.0
    assert 1.0 / document.certificate.objective_value == pytest.approx(least, rel=1e-9)
    told = document.best.workloads["tiny"].cost
    assert getattr(told, f"{objective}_{unit}") == pytest.approx(least, rel=1e-9)
    (point,) = (point for point in document.frontier if point.id == document.best.id)
    assert getattr(point, f"{objective}_{unit}") == pytest.approx(least, rel=1e-9)
    assert told.cost_per_sample_usd == sum(told.cost_parts_usd.values())
    assert told.carbon_per_sample_kg == sum(told.carbon_parts_kg.values())
    assert told.energy_per_sample_j == sum(told.energy_parts_j.values())


def test_by_rent_the_cheapest_is_the_fastest(measured, space):
    document = answer(measured, space, "cost_per_sample", RENTED)
    fastest = answer(measured, space, "throughput", OWN)
    assert document.certificate.optimal
    assert document.best.id == fastest.best.id
    per_sample = 16 * 2.5 / 3600 / fastest.best.workloads["tiny"].throughput_samples_per_s
    assert 1.0 / document.certificate.objective_value == pytest.approx(per_sample, rel=1e-9)
