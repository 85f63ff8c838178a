"""`dse solve placement`: published instances, the worked example, brute force."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import PLACEMENT
from phaze.solvers.placement import PlacementStatus, PlanError, Stage, place, plan_time, read_problem
from phaze.solvers.placement.chain import chain_search
from placement_oracle import exhaustive, instances

INSTANCES = sorted((Path(__file__).parents[2] / "data" / "placement").glob("*.json"))


def test_the_forty_public_instances_are_here():
    assert len(INSTANCES) == 40


@pytest.mark.parametrize("path", INSTANCES, ids=lambda path: path.stem)
def test_public_instance(path):
    document = json.loads(path.read_text())
    result = place(read_problem(document))
    if document["expected"] is None:
        assert result.status is PlacementStatus.INFEASIBLE
        assert result.time_per_batch_s is None
        assert math.isinf(result.lower_bound_s)
        return
    assert result.status is PlacementStatus.OPTIMAL
    assert result.time_per_batch_s == pytest.approx(document["expected"]["time_per_batch_s"], rel=1e-9)
    found = {
        "tensor_parallel": result.tensor_parallel,
        "data_parallel": result.data_parallel,
        "num_stages": result.num_stages,
    }
    assert found in document["tied_optima"]


@pytest.mark.parametrize("path", INSTANCES[:12] + INSTANCES[37:], ids=lambda path: path.stem)
def test_the_checker_reads_the_reference_plan_as_the_reference_does(path):
    document = json.loads(path.read_text())
    stages = [Stage(tuple(s["layers"]), s["devices"]) for s in document["reference_run"]["stages"]]
    expected = document["expected"]
    found = plan_time(read_problem(document), expected["tensor_parallel"], expected["data_parallel"], stages)
    assert found == pytest.approx(expected["time_per_batch_s"], rel=1e-9)


def test_worked_example():
    result = place(read_problem(PLACEMENT))
    assert result.time_per_batch_s == 53.25
    assert result.stages == (Stage((0,), 1), Stage((1, 2), 1))
    assert (result.data_parallel, result.num_stages) == (2, 2)


def test_worked_example_with_half_the_memory_does_not_fit():
    result = place(read_problem({**PLACEMENT, "device_memory_bytes": 150}))
    assert result.status is PlacementStatus.INFEASIBLE
    assert result.stages == ()


def test_equal_times_take_fewest_devices_then_fewest_stages():
    free = {"forward_latency_s": 0, "backward_latency_s": 0, "parameter_bytes": 0}
    layers = [{**layer, **free} for layer in PLACEMENT["models"][0]["layers"]]
    model = {**PLACEMENT["models"][0], "layers": layers}
    result = place(read_problem({**PLACEMENT, "device_memory_bytes": 1000, "models": [model]}))
    assert (result.time_per_batch_s, result.num_stages, result.data_parallel) == (0.0, 1, 1)


@pytest.mark.parametrize(
    ("width", "degree", "stages", "message"),
    [
        (2, 1, [((0,), 1), ((1, 2), 1)], "no tensor-parallel width"),
        (1, 1, [((0,), 1), ((2, 1), 1)], "every layer once"),
        (1, 5, [((0,), 1), ((1, 2), 1)], "out of range"),
        (1, 1, [((0,), 2), ((1, 2), 1)], "runs on 1 devices"),
        (1, 4, [((0,), 1), ((1, 2), 1)], "more devices"),
        (1, 1, [((0, 1, 2), 1)], "memory"),
    ],
)
def test_the_checker_refutes(width, degree, stages, message):
    plan = [Stage(layers, devices) for layers, devices in stages]
    with pytest.raises(PlanError, match=message):
        plan_time(read_problem(PLACEMENT), width, degree, plan)


@settings(max_examples=200, deadline=None)
@given(instances(), st.sampled_from([1, 20, 32_768]))
def test_equal_to_exhaustive_search(document, chunk):
    problem = read_problem(document)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain_search, "CHUNK", chunk)
        result, expected = place(problem), exhaustive(problem)
    if math.isinf(expected):
        assert result.status is PlacementStatus.INFEASIBLE
    else:
        assert result.time_per_batch_s == pytest.approx(expected, rel=1e-12, abs=1e-12)
