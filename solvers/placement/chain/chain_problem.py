"""Placement instances (`dse-placement/1`): a chain of layers, once per tensor-parallel width; and their answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from phaze.solvers.placement.json_document import InstanceError, Node, edge_ends, layers_by_id


class PlacementStatus(StrEnum):
    """Both answers are proofs: the search is exhaustive."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"


@dataclass(frozen=True)
class Stage:
    """One pipeline stage: its layer ids in topological order and its devices in one pipeline."""

    layers: tuple[int, ...]
    devices: int


@dataclass(frozen=True)
class PlacementResult:
    """The best plan, first stage first; every field but status and runtime is None or empty if nothing fits.

    `lower_bound_s` equals `time_per_batch_s`, since the optimum is proven; it is infinite if nothing fits.
    """

    status: PlacementStatus
    time_per_batch_s: float | None
    lower_bound_s: float
    num_stages: int | None
    data_parallel: int | None
    tensor_parallel: int | None
    stages: tuple[Stage, ...]
    runtime_s: float


FORMAT = "dse-placement/1"
# Stages are tabulated by first and last layer.
MOST_LAYERS = 4096
Edge = tuple[int, int, float]


class Optimizer(StrEnum):
    """Optimizer, by its state beside weights and gradients: SGD has none, Adam one more copy."""

    SGD = "SGD"
    ADAM = "Adam"


@dataclass(frozen=True)
class WidthModel:
    """The layers at one tensor-parallel width, per device and microbatch, in topological order.

    Edges are (source position, target position, bytes of the tensor).
    """

    tensor_parallel: int
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    parameter_bytes: tuple[float, ...]
    activation_bytes: tuple[float, ...]
    is_tensor_parallel: tuple[bool, ...]
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class PlacementProblem:
    """One instance: the layers (ids in topological order), the cluster and the batch."""

    num_devices: int
    device_memory_bytes: float
    link_bandwidth_bytes_per_s: float
    microbatches_per_batch: int
    activation_recomputation: bool
    optimizer: Optimizer
    layer_ids: tuple[int, ...]
    models: tuple[WidthModel, ...]


def read_problem(document: object) -> PlacementProblem:
    """The instance in a parsed JSON document; fields beside the format's are ignored.

    Raises:
        InstanceError: the document is malformed; the message names the JSON path.
    """
    root = Node(document, "$")
    if root["format"].value != FORMAT:
        raise root["format"].fail(repr(FORMAT))
    models = root["models"].items()
    if not models:
        raise root["models"].fail("a list of at least one model")
    layer_ids = _topological_order(models[0])
    if len(layer_ids) > MOST_LAYERS:
        raise InstanceError(f"$.models[0].layers: must be at most {MOST_LAYERS}, got {len(layer_ids)} layers")
    problem = PlacementProblem(
        num_devices=root["num_devices"].integer(1),
        device_memory_bytes=root["device_memory_bytes"].number(),
        link_bandwidth_bytes_per_s=root["link_bandwidth_bytes_per_s"].number(positive=True),
        microbatches_per_batch=root["microbatches_per_batch"].integer(1),
        activation_recomputation=root["activation_recomputation"].boolean(),
        optimizer=root["optimizer"].choice(Optimizer),
        layer_ids=layer_ids,
        models=tuple(_read_model(model, layer_ids) for model in models),
    )
    _check_models_agree(problem, models)
    return problem


def _topological_order(model: Node) -> tuple[int, ...]:
    """Layer ids in the order of the path through all layers, which every instance must have."""
    layers = layers_by_id(model)
    successors: dict[int, set[int]] = {identity: set() for identity in layers}
    for edge in model["edges"].items():
        source, target = edge_ends(edge, layers)
        successors[source].add(target)
    in_degree = Counter(target for targets in successors.values() for target in targets)
    ready = [identity for identity in layers if not in_degree[identity]]
    order: list[int] = []
    while ready:
        order.append(ready.pop())
        for target in successors[order[-1]]:
            in_degree[target] -= 1
            if not in_degree[target]:
                ready.append(target)
    if len(order) < len(layers):
        stuck = sorted(set(layers) - set(order))
        raise InstanceError(f"{model.path}.edges: must have no cycle; layers on or behind one: {stuck}")
    for first, second in pairwise(order):
        if second not in successors[first]:
            raise InstanceError(
                f"{model.path}.edges: must hold a path through all layers; "
                f"nothing orders layers {first} and {second} next to each other"
            )
    return tuple(order)


def _read_model(model: Node, layer_ids: tuple[int, ...]) -> WidthModel:
    layers = layers_by_id(model)
    if set(layers) != set(layer_ids):
        odd = sorted(set(layers) ^ set(layer_ids))
        raise InstanceError(
            f"{model.path}.layers: must have the ids of the first model; they differ in {odd}"
        )
    position = {identity: i for i, identity in enumerate(layer_ids)}
    ordered = [layers[identity] for identity in layer_ids]
    edges = []
    for edge in model["edges"].items():
        source, target = edge_ends(edge, layers)
        edges.append((position[source], position[target], edge["boundary_bytes"].number()))
    return WidthModel(
        tensor_parallel=model["tensor_parallel_width"].integer(1),
        forward_s=tuple(layer["forward_latency_s"].number() for layer in ordered),
        backward_s=tuple(layer["backward_latency_s"].number() for layer in ordered),
        parameter_bytes=tuple(layer["parameter_bytes"].number() for layer in ordered),
        activation_bytes=tuple(layer["activation_bytes"].number() for layer in ordered),
        is_tensor_parallel=tuple(layer["is_tensor_parallel"].boolean() for layer in ordered),
        edges=tuple(sorted(edges)),
    )


def _check_models_agree(problem: PlacementProblem, nodes: Sequence[Node]) -> None:
    """Widths are distinct and all models have the first one's edges (their bytes may differ)."""
    seen: set[int] = set()
    expected = [edge[:2] for edge in problem.models[0].edges]
    for model, node in zip(problem.models, nodes, strict=True):
        if model.tensor_parallel in seen:
            raise node["tensor_parallel_width"].fail("different in every model")
        seen.add(model.tensor_parallel)
        if [edge[:2] for edge in model.edges] != expected:
            raise InstanceError(f"{node.path}.edges: must join the same layers as those of $.models[0]")
