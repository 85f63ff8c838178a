"""The certificate is true: brute force over small spaces finds nothing that the search missed."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from brute_force import brute_force, check
from small_cases import StopsSoon

from phaze.errors import InfeasibleError, OutOfTimeError
from phaze.explore.answers.main_job import explore
from phaze.explore.request.explore_request import Budgets, ExploreRequest, Objective, Task
from phaze.hardware.silicon.die_area import area_mm2
from phaze.hardware.silicon.package_power import tdp_w
from phaze.hardware.spaces.space_file import parse_space

SPACE = """
schema_version: 1
name: few
fixed: {global_buffer_bytes_per_cycle: 1024}
axes:
  - {fields: [tensor_cores], values: [1, 6]}
  - {fields: [tensor_core_rows], values: [64, 256]}
  - fields: [vector_cores, vector_core_alus]
    values: [[1, 64], [3, 1024]]
  - fields: [hbm_generation, hbm_stacks]
    values: [[HBM2e, 4], [HBM3, 6]]
"""

GPUS = """
schema_version: 1
name: gpus
base: a100
axes:
  - {fields: [simt], values: [true, false]}
  - {fields: [tensor_cores, vector_cores], values: [[432, 108], [16, 4]]}
  - fields: [clock_hz, hbm_stacks]
    values: [[0.9GHz, 2], [1.29GHz, 5]]
"""


@pytest.fixture(scope="module")
def space():
    """16 architectures of very different balance."""
    return parse_space(SPACE, "few.yaml")


@pytest.fixture(scope="module")
def task(tiny, network):
    return Task(tiny, 16, network)


@pytest.fixture(scope="module")
def everything(task, space):
    """The space within 300 W, evaluated one by one."""
    return brute_force(task, space, 300.0)


@pytest.fixture(scope="module")
def answer(task, space, resources):
    return explore(ExploreRequest(task, space, Budgets(power_w=300.0)), resources=resources)


def test_optimum_and_frontier_equal_brute_force(answer, everything):
    check(answer, everything)


def test_also_where_devices_do_not_divide(tiny, space, network):
    task = Task(tiny, 6, network)
    answer = explore(ExploreRequest(task, space, Budgets(power_w=150.0)))
    check(answer, brute_force(task, space, 150.0))


def test_also_among_gpus(tiny, network):
    space = parse_space(GPUS, "gpus.yaml")
    task = Task(tiny, 16, network)
    answer = explore(ExploreRequest(task, space, Budgets(power_w=400.0)))
    check(answer, brute_force(task, space, 400.0))


def test_rows_of_the_design_table_stand_on_their_own(answer, everything):
    alone = {name: throughput for _, throughput, name in everything}
    best = answer.document.certificate.objective_value
    for name, throughput in zip(
        answer.designs["id"], answer.designs["throughput_samples_per_s"], strict=True
    ):
        # A row lists the best point that was evaluated; points that could not matter were not.
        assert throughput <= alone[name] * (1 + 1e-9)
        assert alone[name] <= best * (1 + 1e-9)


def test_a_larger_budget_is_never_worse(task, space, resources):
    def optimum(**budgets):
        request = ExploreRequest(task, space, Budgets(**budgets))
        certificate = explore(request, resources=resources).document.certificate
        assert certificate.optimal
        return certificate.objective_value

    for budget, needed in (("power_w", tdp_w(space.table())), ("area_mm2", area_mm2(space.table()))):
        amounts = np.quantile(needed, (0.05, 0.3, 0.6))
        values = [optimum(**{budget: float(amount)}) for amount in amounts]
        assert values == sorted(values)
        assert values[0] < values[-1]


def test_every_objective_is_certified_by_the_same_frontier(task, space, everything, resources):
    expected = {
        Objective.THROUGHPUT_PER_TDP: max(throughput / tdp for tdp, throughput, _ in everything),
        Objective.TDP: 1 / min(tdp for tdp, _, _ in everything),
    }
    for objective, value in expected.items():
        request = ExploreRequest(task, space, Budgets(power_w=300.0), objective)
        certificate = explore(request, resources=resources).document.certificate
        assert certificate.optimal
        assert certificate.objective_value == pytest.approx(value, rel=1e-9)


def test_a_gap_is_kept_and_told(task, space, answer, resources):
    exact = answer.document.certificate
    request = ExploreRequest(task, space, Budgets(power_w=300.0), gap=0.2)
    loose = explore(request, resources=resources).document.certificate
    assert loose.objective_value <= exact.objective_value * (1 + 1e-12)
    assert loose.upper_bound >= exact.objective_value * (1 - 1e-12)
    assert loose.gap <= 0.2 + 1e-9


def test_an_impossible_budget_names_the_smallest_that_would_do(task, space, resources):
    with pytest.raises(InfeasibleError) as caught:
        explore(ExploreRequest(task, space, Budgets(power_w=5.0)))
    (shortfall,) = caught.value.shortfalls
    assert shortfall.limit == 5.0
    assert shortfall.levers
    enough = ExploreRequest(task, space, Budgets(power_w=shortfall.demand * (1 + 1e-9)))
    again = explore(enough, resources=resources)
    assert again.document.best.tdp_w == pytest.approx(shortfall.demand)


def test_an_interrupted_search_keeps_a_valid_bound(task, space, answer, resources):
    request = ExploreRequest(task, space, Budgets(power_w=300.0))
    truth = answer.document.certificate.objective_value

    def first():
        for looks in range(1, 100, 8):
            with suppress(OutOfTimeError):
                return explore(request, clock=StopsSoon(looks), resources=resources).document.certificate
        raise AssertionError

    certificate = first()
    assert not certificate.frontier_complete
    assert certificate.upper_bound >= truth * (1 - 1e-12)
    assert certificate.objective_value <= truth * (1 + 1e-12)


def test_lowering_the_clock_only_adds_designs(task, space, resources):
    fixed, slowed = (
        explore(ExploreRequest(task, space, Budgets(power_w=200.0, dvfs=dvfs)), resources=resources)
        for dvfs in (False, True)
    )
    assert slowed.document.certificate.optimal
    assert slowed.document.certificate.over_budget < fixed.document.certificate.over_budget
    gain = slowed.document.certificate.objective_value / fixed.document.certificate.objective_value
    assert gain >= 1
    assert slowed.designs["tdp_w"].max() <= 200.0
