"""Malformed placement instances: one clear sentence that starts with the JSON path."""

import copy
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phaze.solvers.placement import InstanceError, PlacementStatus, place, read_problem


def layer(identity):
    return {
        "id": identity,
        "forward_latency_s": 1.0,
        "backward_latency_s": 2.0,
        "parameter_bytes": 4.0,
        "activation_bytes": 3,
        "is_tensor_parallel": True,
    }


def edge(source, target):
    return {"source": source, "target": target, "boundary_bytes": 1.0}


def document():
    models = [
        {
            "tensor_parallel_width": width,
            "layers": [layer(7), layer(-1), layer(3)],
            "edges": [edge(3, 7), edge(-1, 3)],
        }
        for width in (1, 2)
    ]
    return {
        "format": "dse-placement/1",
        "num_devices": 4,
        "device_memory_bytes": 100,
        "link_bandwidth_bytes_per_s": 10,
        "microbatches_per_batch": 7,
        "activation_recomputation": False,
        "optimizer": "Adam",
        "models": models,
    }


def test_only_the_edges_define_the_order():
    assert read_problem(document()).layer_ids == (-1, 3, 7)


@pytest.mark.parametrize(
    ("steps", "value", "path"),
    [
        (["format"], "dse-placement/9", "$.format"),
        (["num_devices"], 0, "$.num_devices"),
        (["num_devices"], 2.5, "$.num_devices"),
        (["num_devices"], True, "$.num_devices"),
        (["num_devices"], 2**70, "$.num_devices"),
        (["num_devices"], 10**400, "$.num_devices"),
        (["microbatches_per_batch"], 2**63, "$.microbatches_per_batch"),
        (["models", 0, "tensor_parallel_width"], 2**64, "$.models[0].tensor_parallel_width"),
        (["link_bandwidth_bytes_per_s"], 1e-320, "$.link_bandwidth_bytes_per_s"),
        (["models", 0, "layers", 0, "forward_latency_s"], 1e308, "$.models[0].layers[0].forward_latency_s"),
        (["device_memory_bytes"], math.nan, "$.device_memory_bytes"),
        (["device_memory_bytes"], 10**400, "$.device_memory_bytes"),
        (["link_bandwidth_bytes_per_s"], 0, "$.link_bandwidth_bytes_per_s"),
        (["microbatches_per_batch"], -1, "$.microbatches_per_batch"),
        (["activation_recomputation"], 1, "$.activation_recomputation"),
        (["optimizer"], "LAMB", "$.optimizer"),
        (["optimizer"], ["SGD"], "$.optimizer"),
        (["models"], [], "$.models"),
        (["models"], {"0": 1}, "$.models"),
        (["models", 0], 3, "$.models[0]"),
        (["models", 0, "layers"], [], "$.models[0].layers"),
        (["models", 1, "tensor_parallel_width"], 1, "$.models[1].tensor_parallel_width"),
        (["models", 1, "tensor_parallel_width"], 0, "$.models[1].tensor_parallel_width"),
        (["models", 0, "layers", 1, "id"], 7, "$.models[0].layers[1].id"),
        (["models", 0, "layers", 1, "id"], "a", "$.models[0].layers[1].id"),
        (["models", 1, "layers", 2, "forward_latency_s"], -1.0, "$.models[1].layers[2].forward_latency_s"),
        (
            ["models", 1, "layers", 2, "backward_latency_s"],
            math.inf,
            "$.models[1].layers[2].backward_latency_s",
        ),
        (["models", 0, "layers", 0, "parameter_bytes"], None, "$.models[0].layers[0].parameter_bytes"),
        (["models", 0, "layers", 0, "activation_bytes"], "3", "$.models[0].layers[0].activation_bytes"),
        (["models", 0, "layers", 0, "is_tensor_parallel"], "no", "$.models[0].layers[0].is_tensor_parallel"),
        (["models", 0, "edges", 1, "target"], 5, "$.models[0].edges[1].target"),
        (["models", 0, "edges", 1, "source"], 5, "$.models[0].edges[1].source"),
        (["models", 0, "edges", 1, "source"], 3, "$.models[0].edges[1]"),
        (["models", 0, "edges", 1, "boundary_bytes"], -2, "$.models[0].edges[1].boundary_bytes"),
        (["models", 0, "edges"], [edge(3, 7), edge(-1, 3), edge(7, -1)], "$.models[0].edges"),
        (["models", 0, "edges"], [edge(-1, 3), edge(-1, 7)], "$.models[0].edges"),
        (["models", 0, "edges"], [edge(-1, 3)], "$.models[0].edges"),
        (["models", 1, "edges"], [edge(3, 7), edge(-1, 3), edge(-1, 7)], "$.models[1].edges"),
        (["models", 1, "layers"], [layer(7), layer(-1), layer(4)], "$.models[1].layers"),
    ],
)
def test_malformed(steps, value, path):
    broken = copy.deepcopy(document())
    place = broken
    for step in steps[:-1]:
        place = place[step]
    place[steps[-1]] = value
    with pytest.raises(InstanceError) as error:
        read_problem(broken)
    assert str(error.value).startswith(f"{path}:")


@pytest.mark.parametrize("name", sorted(document()))
def test_missing_field(name):
    broken = document()
    del broken[name]
    with pytest.raises(InstanceError, match=f"field '{name}' is missing"):
        read_problem(broken)


@pytest.mark.parametrize("value", [None, [], "text"])
def test_not_an_object(value):
    with pytest.raises(InstanceError, match="must be an object"):
        read_problem(value)


def test_too_many_layers_to_tabulate():
    long, count = document(), 5000
    for model in long["models"]:
        model["layers"] = [layer(i) for i in range(count)]
        model["edges"] = [edge(i, i + 1) for i in range(count - 1)]
    with pytest.raises(InstanceError, match=r"^\$\.models\[0\]\.layers: must be at most 4096, got 5000"):
        read_problem(long)


VALUES = [
    10**400,
    -1,
    -(10**400),
    1e-320,
    1e308,
    2**70,
    2**31 - 1,
    0,
    0.5,
    math.nan,
    -math.inf,
    "",
    "7",
    [],
    {},
]
VALUES += [None, True, [[]], [0, 1], 1e100, 1e-100]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_change_is_refused_with_a_path_or_solved(data):
    changed = document()
    places = list(_places(changed))
    for _ in range(data.draw(st.integers(1, 2))):
        parent, key = data.draw(st.sampled_from(places))
        parent[key] = data.draw(st.sampled_from(VALUES))
    try:
        problem = read_problem(changed)
    except InstanceError as error:
        assert str(error).startswith("$")
    else:
        result = place(problem)
        assert (result.status is PlacementStatus.OPTIMAL) == (result.time_per_batch_s is not None)


def _places(node):
    """Every (container, key) of a document."""
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        yield node, key
        if isinstance(value, dict | list):
            yield from _places(value)
