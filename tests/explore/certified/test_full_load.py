"""A GPU never draws more than at full load: whole iterations, their bounds, and what is proven of them."""

from __future__ import annotations

import numpy as np
import pytest

from phaze.explore.answers.main_job import explore
from phaze.explore.evaluation.drawn_power import DrawnPower
from phaze.explore.evaluation.energy_and_memory import Measures
from phaze.explore.evaluation.evaluator import Evaluator
from phaze.explore.frontier.point_values import PointValues
from phaze.explore.frontier.search_axes import SearchAxes
from phaze.explore.request.design_metrics import metric
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Objective, PowerMeans, Task
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.space_file import parse_space
from phaze.scheduling.passes import SolveLimits
from phaze.workload.workload_loader import load_workload

EFFORT = SolveLimits(lambda: 1e6, 1e7)
DEVICES = 4
GPUS = """
schema_version: 1
name: gpus
base: h100
fixed: {int32_alus: 0, family: ampere}  # fast functions, cheap products: some plans reach the limit
axes:
  - {fields: [clock_hz], values: [0.2GHz, 0.6GHz, 1.5GHz]}
  - {fields: [vector_cores], values: [16, 132]}
  - {fields: [link_bandwidth_bytes_per_s], values: [20GB/s, 450GB/s]}
"""


@pytest.fixture(scope="module")
def space():
    return parse_space(GPUS, "gpus.yaml")


@pytest.fixture(scope="module")
def task(network):
    return Task(load_workload("gpt3-small"), DEVICES, network, 64, held={"microbatches": (8,)})


@pytest.fixture(scope="module")
def evaluator(task, space):
    return Evaluator(task, space.table())


@pytest.fixture(scope="module")
def points(task, evaluator):
    """Seconds of an iteration and watts of a device at every point under its fastest plan, (configs, A) each."""
    rows, measures = np.arange(len(evaluator.table)), Measures(evaluator)
    found = [measures.exact(config, rows, EFFORT) for config in evaluator.configs]
    seconds = np.array([one.iteration_s for one in found])
    joules = np.array([one.energy_per_sample_j for one in found]) * task.cluster.global_batch
    with np.errstate(invalid="ignore"):
        return seconds, joules / seconds / DEVICES


def test_no_plan_draws_more_than_full_load_and_some_reach_it(evaluator, points):
    watts, most_w = points[1], tdp_w(evaluator.table)
    kept = np.isfinite(watts)
    assert kept.any(axis=0).all()
    assert (watts[kept] <= np.broadcast_to(most_w, watts.shape)[kept] * (1 + 1e-12)).all()
    assert np.isclose(watts, most_w, rtol=1e-12).any()
    assert (watts[kept] < 0.99 * np.broadcast_to(most_w, watts.shape)[kept]).any()


def test_no_plan_spends_less_than_the_bound_and_bounds_turn_back(task, evaluator, points):
    """Joules follow from the time of a plan, and from these joules the longest time at which there may be fewer."""
    table, (seconds, watts) = evaluator.table, points
    rows, columns = np.arange(len(table)), {"tdp_w": tdp_w(table), "area_mm2": area_mm2(table)}
    values = PointValues(evaluator, columns, SearchAxes((metric("energy_per_sample"),)))
    for k, config in enumerate(evaluator.configs):
        kept = np.isfinite(seconds[k])
        given = np.where(kept, seconds[k], 1.0)
        joules = np.where(kept, watts[k], 1.0) * given * DEVICES / task.cluster.global_batch
        least = values.measures.least_energy_j(config, rows, given)
        assert (least[kept] <= joules[kept]).all()
        assert (values.give_up_s(config, rows, 1.0 / joules)[kept] >= seconds[k][kept]).all()
        np.testing.assert_allclose(values.give_up_s(config, rows, 1.0 / least), given, rtol=1e-6)


def test_the_least_energy_is_that_of_enumeration(task, space, points, resources):
    request = ExploreRequest(task, space, Budgets(), Objective.ENERGY_PER_SAMPLE)
    certificate = explore(request, resources=resources).document.certificate
    seconds, watts = points
    least = np.nanmin(watts * seconds * DEVICES / task.cluster.global_batch)
    assert certificate.optimal
    assert 1.0 / certificate.objective_value == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9, None])
def test_the_fastest_that_keeps_a_limit_is_that_of_enumeration(
    quantile, task, space, evaluator, points, resources
):
    """None: the limit is what the fastest chip draws at full load."""
    seconds, watts = points
    most_w = np.broadcast_to(tdp_w(evaluator.table), watts.shape)
    fastest = np.unravel_index(np.nanargmin(np.where(np.isfinite(seconds), seconds, np.inf)), seconds.shape)
    kept = np.isfinite(seconds)
    limit = float(most_w[fastest] if quantile is None else np.quantile(watts[kept], quantile))
    drawn = DrawnPower(Measures(evaluator), limit)
    for k, config in enumerate(evaluator.configs):
        allowed = kept[k] & (watts[k] <= limit)
        for work in (False, True):
            least = drawn.least_s(config, np.arange(len(evaluator.table)), work=work)
            assert (least[allowed] <= seconds[k][allowed]).all()
    budgets = Budgets(power_w=limit, power_means=PowerMeans.SUSTAINED)
    answer = explore(ExploreRequest(task, space, budgets), resources=resources).document
    best = task.cluster.global_batch / seconds[kept & (watts <= limit * (1 + 1e-12))].min()
    assert answer.certificate.optimal
    assert answer.certificate.objective_value == pytest.approx(best, rel=1e-9)
