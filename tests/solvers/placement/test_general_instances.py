"""`dse-placement/2`: the page's example, PHAZE's rules on chains, malformed instances, limits."""

import copy
import json
import math
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from general_cases import random_model, random_problem
from phaze.solvers.placement import InstanceError, place, read_problem
from phaze.solvers.placement.general import (
    TooLargeError,
    from_chain,
    place_general,
    read_general_problem,
    with_phaze_conventions,
)
from phaze.solvers.placement.general.fewest_devices_dp import Pipelines
from phaze.solvers.placement.general.general_problem import DeviceType, Recompute
from phaze.solvers.placement.general.layer_levels import find_levels

ROOT = Path(__file__).parents[3]
INSTANCES = sorted((ROOT / "tests" / "data" / "placement").glob("*.json"))
PAGE = (ROOT / "docs" / "formats" / "placement-2.md").read_text(encoding="utf-8")
EXAMPLE = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])


def changed(steps, value):
    """The example with one value replaced."""
    document = copy.deepcopy(EXAMPLE)
    place = document
    for step in steps[:-1]:
        place = place[step]
    place[steps[-1]] = value
    return document


def test_the_example_of_the_page():
    result = place_general(read_general_problem(EXAMPLE))
    assert (result.time_per_batch_s, result.depth, result.data_parallel, result.devices_used) == (
        43.5,
        2,
        4,
        8,
    )
    found = [(stage.layers, stage.recompute, stage.zero) for stage in result.stages]
    assert found == [((0, 2), Recompute.FULL, 1), ((1, 3), Recompute.NONE, 1)]


def test_the_example_with_less_memory_takes_one_stage_per_layer_and_with_less_still_does_not_fit():
    tight = replace(read_general_problem(EXAMPLE), device_types=(DeviceType("chip", 8, 75.0),))
    assert place_general(tight).time_per_batch_s == 50.0
    result = place_general(replace(tight, device_types=(DeviceType("chip", 8, 60.0),)))
    assert (result.status, result.stages, result.time_per_batch_s) == ("infeasible", (), None)
    assert math.isinf(result.lower_bound_s)


@pytest.mark.parametrize("path", INSTANCES, ids=lambda path: path.stem)
def test_a_chain_under_phaze_rules_is_solved_as_by_place(path):
    chain = read_problem(json.loads(path.read_text()))
    expected, found = place(chain), place_general(from_chain(chain))
    assert found.status == expected.status
    if expected.time_per_batch_s is not None:
        assert found.time_per_batch_s == pytest.approx(expected.time_per_batch_s, rel=1e-12)
        assert (found.num_stages, found.data_parallel) == (expected.num_stages, expected.data_parallel)
        assert {stage.tensor_parallel for stage in found.stages} == {expected.tensor_parallel}
        assert found.devices_used == found.data_parallel * sum(stage.devices for stage in expected.stages)


def test_phaze_rules_are_those_of_format_1():
    chain = read_problem(json.loads(INSTANCES[5].read_text()))
    general = from_chain(chain)
    mine = replace(
        general,
        conventions=replace(general.conventions, reduction_factor=2.0, in_flight_capped=True),
        uniform_width=False,
    )
    assert mine != general
    assert with_phaze_conventions(mine) == general


@pytest.mark.parametrize("seed", range(10))
def test_more_memory_devices_or_choices_never_take_longer(seed):
    problem = random_problem(random.Random(seed), layers=(3, 6), shape="any", widths=(1, 2))
    before = place_general(problem).time_per_batch_s or math.inf
    (device,) = problem.device_types
    for more in (
        replace(problem, device_types=(replace(device, memory_bytes=2 * device.memory_bytes),)),
        replace(problem, device_types=(replace(device, count=device.count + 1),)),
        replace(problem, recompute=tuple(Recompute), zero=(0, 1)),
        replace(problem, link_bandwidth_bytes_per_s=2 * problem.link_bandwidth_bytes_per_s),
    ):
        assert (place_general(more).time_per_batch_s or math.inf) <= before * (1 + 1e-12)


def test_only_the_edges_order_the_layers():
    document = copy.deepcopy(EXAMPLE)
    document["models"][0]["layers"].reverse()
    document["models"][0]["edges"].reverse()
    assert read_general_problem(document).layer_ids == (0, 2, 1, 3)
    assert place_general(read_general_problem(document)).time_per_batch_s == 43.5


def test_every_width_is_tried_at_every_degree():
    """Of the degrees of two microbatches, 4 to 6, sharding fits at 6 alone, and at the first width alone."""
    problem = random_problem(random.Random(0), layers=(1, 1), widths=(1, 2), zero=(3,), uniform_width=True)
    narrow, wide = problem.models
    problem = replace(
        problem,
        microbatches_per_batch=7,
        optimizer_state_ratio=6.0,
        device_types=(DeviceType("type0", 6, 135.0),),
        models=(
            replace(narrow, parameter_bytes=(60.0,), activation_bytes=(0.0,)),
            replace(wide, parameter_bytes=(70.0,), activation_bytes=(0.0,)),
        ),
    )
    result = place_general(problem)
    assert (result.data_parallel, result.stages[0].tensor_parallel) == (6, 1)


def wide(count):
    """Layers without any edge: every set of them is an upset."""
    rng = random.Random(0)
    return replace(
        random_problem(rng, layers=(count, count)), edges=(), models=(random_model(rng, count, [], 0, 1),)
    )


def levels_of(problem):
    return find_levels(len(problem.layer_ids), problem.edges)


def test_levels_of_known_graphs():
    rng = random.Random(0)
    chain = levels_of(random_problem(rng, layers=(100, 100)))
    assert (chain.upsets, len(chain.before), chain.stages, chain.splits) == (101, 5050, 5050, ())
    free = levels_of(wide(4))
    # Pairs of a set and a larger one: each layer is in neither, in the larger or in both.
    assert (free.upsets, len(free.before), free.stages) == (2**4, 3**4 - 2**4, 2**4 - 1)


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (wide(40), "too many ways to cut the graph: the exact search takes 20000 upsets"),
        (wide(13), "too many ways to cut the graph: the exact search takes 1000000 levels"),
        (
            replace(
                random_problem(random.Random(0), layers=(60, 60), types=4),
                device_types=tuple(DeviceType(name, 10**5, 1e9) for name in "abcd"),
                microbatches_per_batch=1,
            ),
            "too many states",
        ),
        (
            replace(
                random_problem(random.Random(0), zero=(0, 1)),
                device_types=(DeviceType("a", 10**9, 1e9),),
                microbatches_per_batch=10**9,
            ),
            "too many data-parallel degrees",
        ),
    ],
    ids=["upsets", "levels", "states", "degrees"],
)
def test_beyond_a_limit_there_is_one_error(problem, words):
    with pytest.raises(TooLargeError, match=words):
        place_general(problem)


LAYERS = ("models", 0, "layers")


@pytest.mark.parametrize(
    ("steps", "value", "path"),
    [
        (["format"], "dse-placement/3", "$.format"),
        (["microbatches_per_batch"], 0, "$.microbatches_per_batch"),
        (["microbatches_per_batch"], 10**10, "$.microbatches_per_batch"),
        (["link_bandwidth_bytes_per_s"], 0, "$.link_bandwidth_bytes_per_s"),
        (["optimizer_state_ratio"], -1, "$.optimizer_state_ratio"),
        (["schedule", "kind"], "2f2b", "$.schedule.kind"),
        (["schedule"], {"kind": "interleaved-1f1b", "virtual_stages": 1}, "$.schedule.virtual_stages"),
        (["schedule"], {"kind": "interleaved-1f1b"}, "$.schedule"),
        (["schedule"], {"kind": "zb-h1"}, "$.choices.recompute"),
        (["choices", "recompute"], [], "$.choices.recompute"),
        (["choices", "recompute"], ["some"], "$.choices.recompute[0]"),
        (["choices", "zero"], [0, 4], "$.choices.zero[1]"),
        (["choices", "uniform_width"], 1, "$.choices.uniform_width"),
        (["conventions", "transfers"], "free", "$.conventions.transfers"),
        (["conventions", "reduced_stages"], "last", "$.conventions.reduced_stages"),
        (["conventions", "reduction_factor"], math.nan, "$.conventions.reduction_factor"),
        (["conventions", "in_flight_capped"], None, "$.conventions.in_flight_capped"),
        (["device_types"], [], "$.device_types"),
        (["device_types", 0, "name"], "", "$.device_types[0].name"),
        (["device_types", 0, "count"], 2.5, "$.device_types[0].count"),
        (["device_types"], EXAMPLE["device_types"] * 2, "$.device_types[1].name"),
        (["models"], [], "$.models"),
        (["models"], EXAMPLE["models"] * 2, "$.models[1].tensor_parallel_width"),
        (["models", 0, "device_type"], "chap", "$.models[0].device_type"),
        ([*LAYERS, 1, "id"], 3, "$.models[0].layers[3].id"),
        ([*LAYERS, 1, "input_gradient_latency_s"], -1, "$.models[0].layers[1].input_gradient_latency_s"),
        ([*LAYERS, 1, "forward_latency_s"], 1e308, "$.models[0].layers[1].forward_latency_s"),
        ([*LAYERS, 2, "is_tensor_parallel"], "no", "$.models[0].layers[2].is_tensor_parallel"),
        (["models", 0, "edges", 0, "target"], 9, "$.models[0].edges[0].target"),
        (["models", 0, "edges", 0, "source"], 3, "$.models[0].edges"),
        (["models", 0, "edges", 0, "boundary_bytes"], math.inf, "$.models[0].edges[0].boundary_bytes"),
    ],
)
def test_malformed(steps, value, path):
    with pytest.raises(InstanceError) as error:
        read_general_problem(changed(steps, value))
    assert str(error.value).startswith(f"{path}:")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("field", ["layers", "edges"])
def test_models_differ_in_figures_alone(field):
    document = copy.deepcopy(EXAMPLE)
    document["models"].append({**copy.deepcopy(document["models"][0]), "tensor_parallel_width": 2})
    assert len(read_general_problem(document).models) == 2
    document["models"][1][field].pop()
    with pytest.raises(InstanceError, match=rf"^\$\.models\[1\]\.{'edges' if field == 'edges' else ''}"):
        read_general_problem(document)


@pytest.mark.parametrize("name", sorted(EXAMPLE))
def test_missing_field(name):
    with pytest.raises(InstanceError, match=f"field '{name}' is missing"):
        read_general_problem({key: value for key, value in EXAMPLE.items() if key != name})


def random_chain(layers, types, widths, device_count):
    """A chain of random layers on devices that differ in speed, with every option open."""
    rng = random.Random(layers)
    edges = [(v, v + 1) for v in range(layers - 1)]
    problem = random_problem(rng, layers=(layers, layers), types=types, widths=widths)
    return replace(
        problem,
        microbatches_per_batch=64,
        edges=tuple(edges),
        recompute=tuple(Recompute),
        zero=(0, 1, 2, 3),
        device_types=tuple(DeviceType(f"type{i}", device_count, 2000.0) for i in range(types)),
    )


@pytest.mark.parametrize(
    ("problem", "most"),
    [(random_chain(100, 1, (1, 2, 4), 256), 2000), (random_chain(60, 2, (1, 2), 12), 500)],
    ids=["100 layers", "two device types"],
)
def test_long_chains_with_every_option_take_few_runs_of_the_program(problem, most, monkeypatch):
    runs = []
    original = Pipelines.__init__

    def counted(self, fleet, deepest, depth):
        runs.append(depth)
        original(self, fleet, deepest, depth)

    monkeypatch.setattr(Pipelines, "__init__", counted)
    assert place_general(problem).time_per_batch_s > 0
    assert len(runs) < most
