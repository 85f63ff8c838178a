"""The public instances with proven optima, and faults of the format."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from phaze.solvers.scheduling import (
    InstanceError,
    Method,
    Mode,
    Operator,
    ScheduleProblem,
    Status,
    read_instance,
    schedule,
)

FOLDER = Path(__file__).parents[2] / "data" / "scheduling"
SMALL = sorted(FOLDER.glob("small-*.json"))
LARGER = sorted(set(FOLDER.glob("*.json")) - set(SMALL))


def load(path):
    return json.loads(path.read_text())


@pytest.mark.parametrize("method", [Method.EXACT, Method.ILP])
@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_small_instances_to_proven_optimality(path, method):
    document = load(path)
    result = schedule(read_instance(document), method, time_limit_s=60.0)
    expected = document["expected"]["best_known_makespan_s"]
    assert result.status is Status.OPTIMAL
    assert result.makespan_s == pytest.approx(expected, rel=1e-6)
    assert result.lower_bound_s == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("path", LARGER, ids=lambda path: path.stem)
def test_larger_instances_to_proven_optimality(path):
    document = load(path)
    result = schedule(read_instance(document), time_limit_s=30.0)
    assert result.optimal
    assert result.makespan_s == pytest.approx(document["expected"]["best_known_makespan_s"], rel=1e-9)


@pytest.mark.parametrize("path", [*SMALL, *LARGER], ids=lambda path: path.stem)
def test_critical_path_method_brackets_the_optimum(path):
    document = load(path)
    result = schedule(read_instance(document), Method.CRITICAL_PATH)
    expected = document["expected"]["best_known_makespan_s"]
    assert result.lower_bound_s <= expected * (1 + 1e-9)
    assert expected * (1 - 1e-9) <= result.makespan_s <= expected * 1.3


def test_time_limit_gives_incumbent_and_bound():
    document = load(FOLDER / "small-14-n12-tc2-vc2.json")
    for method in (Method.EXACT, Method.ILP):
        result = schedule(read_instance(document), method, time_limit_s=0.0)
        expected = document["expected"]["best_known_makespan_s"]
        assert result.status is Status.FEASIBLE
        assert result.lower_bound_s < expected <= result.makespan_s
        assert result.gap == pytest.approx(1 - result.lower_bound_s / result.makespan_s)


def _set(*keys_then_value):
    *keys, last, value = keys_then_value

    def change(document):
        for key in keys:
            document = document[key]
        document[last] = value

    return change


def _delete(*keys):
    def change(document):
        for key in keys[:-1]:
            document = document[key]
        del document[keys[-1]]

    return change


FAULTS = [
    (_set("ops", 3, "latency_s", -1.0), "ops[3].latency_s"),
    (_set("ops", 3, "latency_s", float("nan")), "ops[3].latency_s"),
    (_set("ops", 0, "parallel_latency_s", "fast"), "ops[0].parallel_latency_s"),
    (_set("ops", 2, "parallel_latency_s", float("inf")), "ops[2].parallel_latency_s"),
    (_set("ops", 1, "unit", "GPU"), "ops[1].unit"),
    (_set("ops", 1, "id", 0), "ops[1].id"),
    (_delete("ops", 4, "latency_s"), "ops[4].latency_s"),
    (_set("edges", 0, [0, 99]), "edges[0][1]"),
    (_set("edges", 0, [1]), "edges[0]"),
    (_set("edges", [[1, 4], [4, 5], [5, 1]]), "edges"),
    (_set("num_tensor_cores", 0), "num_tensor_cores"),
    (_set("num_vector_cores", 1.5), "num_vector_cores"),
    (_set("core_pairing", "yes"), "core_pairing"),
    (_set("format", "dse-schedule/9"), "format"),
    (_delete("ops"), "ops"),
]


@pytest.mark.parametrize(("change", "path"), FAULTS)
def test_malformed_instance_names_the_place(change, path):
    document = copy.deepcopy(load(SMALL[0]))
    change(document)
    with pytest.raises(InstanceError) as caught:
        read_instance(document)
    assert caught.value.path == path
    assert str(caught.value).startswith(path)


MODES = {
    "format": "dse-schedule/2",
    "units": {"TC": 4, "VC": 2, "LINK": 1},
    "unblocked": ["LINK"],
    "bandwidth_bytes_per_s": 8e9,
    "ops": [
        {"id": "a", "units": ["TC", "VC"], "latency_s": 3.0, "parallel_latency_s": None},
        {
            "id": "b",
            "units": ["TC"],
            "parallel_latency_s": 1.0,
            "modes": [
                {"cores": 2, "latency_s": 2.0, "bandwidth_bytes_per_s": 4e9},
                {"cores": 4, "latency_s": 1.5},
            ],
        },
        {"id": 3, "units": ["LINK"], "latency_s": 1.0},
    ],
    "edges": [["a", 3]],
}


def test_format_2_says_everything():
    assert read_instance(MODES) == ScheduleProblem(
        operators=(
            Operator("a", ("TC", "VC"), 3.0),
            Operator("b", ("TC",), None, 1.0, (Mode(2, 2.0, 4e9), Mode(4, 1.5))),
            Operator("3", ("LINK",), 1.0),
        ),
        edges=(("a", "3"),),
        capacity={"TC": 4, "VC": 2, "LINK": 1},
        unblocked=frozenset({"LINK"}),
        bandwidth=8e9,
    )


@pytest.mark.parametrize("path", SMALL[::4], ids=lambda path: path.stem)
def test_format_2_without_modes_means_what_format_1_means(path):
    document = load(path)
    ops = [{**op, "units": op["unit"].split("+")} for op in document["ops"]]
    for op in ops:
        del op["unit"]
    again = {
        "format": "dse-schedule/2",
        "units": {"TC": document["num_tensor_cores"], "VC": document["num_vector_cores"]},
        "core_pairing": document["core_pairing"],
        "ops": ops,
        "edges": document["edges"],
    }
    assert read_instance(again) == read_instance(document)


MODES_FAULTS = [
    (_set("units", "TC", 0), "units.TC"),
    (_set("units", "TC", 2**70), "units.TC"),
    (_set("units", "VC", True), "units.VC"),
    (_set("units", "TC7", 1), "units.TC7"),
    (_set("units", {}), "unblocked[0]"),
    (_delete("units"), "units"),
    (_set("units", [4, 2]), "units"),
    (_set("unblocked", ["LINK", "HBM"]), "unblocked[1]"),
    (_set("unblocked", "LINK"), "unblocked"),
    (_set("unblocked", ["LINK", "TC"]), "ops[1].parallel_latency_s"),
    (_set("bandwidth_bytes_per_s", -1.0), "bandwidth_bytes_per_s"),
    (_set("bandwidth_bytes_per_s", float("nan")), "bandwidth_bytes_per_s"),
    (_set("bandwidth_bytes_per_s", None), "ops[1].modes[0].bandwidth_bytes_per_s"),
    (_set("bandwidth_bytes_per_s", 3e9), "ops[1].modes[0].bandwidth_bytes_per_s"),
    (_set("core_pairing", True), "ops[1].modes"),
    (_set("core_pairing", 1), "core_pairing"),
    (_set("ops", 0, "units", ["TC", "GPU"]), "ops[0].units"),
    (_set("ops", 0, "units", ["TC", 1]), "ops[0].units[1]"),
    (_set("ops", 0, "units", []), "ops[0].units"),
    (_set("ops", 0, "latency_s", None), "ops[0]"),
    (_set("ops", 0, "latency_s", True), "ops[0].latency_s"),
    (_set("ops", 0, "latency_s", float("inf")), "ops[0].latency_s"),
    (_set("ops", 0, "latency", 1.0), "ops[0].latency"),
    (_set("ops", 1, "id", "a"), "ops[1].id"),
    (_set("ops", 1, "modes", {}), "ops[1].modes"),
    (_set("ops", 1, "modes", 0, 7), "ops[1].modes[0]"),
    (_set("ops", 1, "modes", 0, "cores", 5), "ops[1].modes[0].cores"),
    (_set("ops", 1, "modes", 0, "cores", 0), "ops[1].modes[0].cores"),
    (_set("ops", 1, "modes", 0, "cores", None), "ops[1].modes[0].cores"),
    (_delete("ops", 1, "modes", 1, "latency_s"), "ops[1].modes[1].latency_s"),
    (_set("ops", 1, "modes", 1, "latency_s", -0.5), "ops[1].modes[1].latency_s"),
    (_set("ops", 1, "modes", 1, "bandwidth", 1.0), "ops[1].modes[1].bandwidth"),
    (_set("edges", 0, ["a", "c"]), "edges[0][1]"),
    (_set("edges", [["a", "b"], ["b", "a"]]), "edges"),
    (_set("time_limit", 3), "time_limit"),
]


@pytest.mark.parametrize(("change", "path"), MODES_FAULTS)
def test_malformed_format_2_names_the_place(change, path):
    document = copy.deepcopy(MODES)
    change(document)
    with pytest.raises(InstanceError) as caught:
        read_instance(document)
    assert caught.value.path == path
    assert "\n" not in str(caught.value)


def test_format_2_pairs_only_units_that_exist():
    document = {**MODES, "core_pairing": True, "units": {"TC": 1}, "unblocked": [], "ops": [], "edges": []}
    with pytest.raises(InstanceError, match="core_pairing: pairs cores of the units TC and VC"):
        read_instance(document)


@pytest.mark.parametrize("document", [None, [], "text", 3])
def test_not_an_object(document):
    with pytest.raises(InstanceError, match="expected an object"):
        read_instance(document)
