"""Placement instances (`dse-placement/1`): a chain of layers, once per tensor-parallel width."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

FORMAT = "dse-placement/1"
Edge = tuple[int, int, float]


class InstanceError(ValueError):
    """The document is not a placement instance; the message starts with the JSON path at fault."""


class Optimizer(StrEnum):
    """What an optimizer keeps beside weights and gradients: SGD nothing, Adam one more copy."""

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


@dataclass(frozen=True)
class _Node:
    """A JSON value together with the path that leads to it."""

    value: object
    path: str

    def fail(self, must_be: str) -> InstanceError:
        return InstanceError(f"{self.path}: must be {must_be}, got {self.value!r}")

    def __getitem__(self, key: str) -> _Node:
        if not isinstance(self.value, Mapping):
            raise self.fail("an object")
        if key not in self.value:
            raise InstanceError(f"{self.path}: field {key!r} is missing")
        return _Node(self.value[key], f"{self.path}.{key}")

    def items(self) -> list[_Node]:
        if not isinstance(self.value, Sequence) or isinstance(self.value, str):
            raise self.fail("a list")
        return [_Node(value, f"{self.path}[{i}]") for i, value in enumerate(self.value)]

    def integer(self, minimum: int | None = None) -> int:
        kind = "an integer" if minimum is None else f"an integer of at least {minimum}"
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.fail(kind)
        if minimum is not None and self.value < minimum:
            raise self.fail(kind)
        return self.value

    def number(self, *, positive: bool = False) -> float:
        kind = "a finite number above 0" if positive else "a finite number of at least 0"
        if not isinstance(self.value, int | float) or isinstance(self.value, bool):
            raise self.fail(kind)
        try:
            number = float(self.value)
        except OverflowError as error:
            raise self.fail(kind) from error
        if not math.isfinite(number) or number < 0 or (positive and number == 0):
            raise self.fail(kind)
        return number

    def boolean(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.fail("true or false")
        return self.value


def read_problem(document: object) -> PlacementProblem:
    """The instance in a parsed JSON document; fields beside the format's are ignored.

    Raises:
        InstanceError: the document is malformed; the message names the JSON path.
    """
    root = _Node(document, "$")
    if root["format"].value != FORMAT:
        raise root["format"].fail(repr(FORMAT))
    models = root["models"].items()
    if not models:
        raise root["models"].fail("a list of at least one model")
    layer_ids = _topological_order(models[0])
    problem = PlacementProblem(
        num_devices=root["num_devices"].integer(1),
        device_memory_bytes=root["device_memory_bytes"].number(),
        link_bandwidth_bytes_per_s=root["link_bandwidth_bytes_per_s"].number(positive=True),
        microbatches_per_batch=root["microbatches_per_batch"].integer(1),
        activation_recomputation=root["activation_recomputation"].boolean(),
        optimizer=_optimizer(root["optimizer"]),
        layer_ids=layer_ids,
        models=tuple(_read_model(model, layer_ids) for model in models),
    )
    _check_models_agree(problem, models)
    return problem


def _optimizer(node: _Node) -> Optimizer:
    if not isinstance(node.value, str) or node.value not in list(Optimizer):
        raise node.fail(" or ".join(repr(str(o)) for o in Optimizer))
    return Optimizer(node.value)


def _layer_ids(model: _Node) -> dict[int, _Node]:
    """The layer objects by id, each id once."""
    by_id: dict[int, _Node] = {}
    for layer in model["layers"].items():
        identity = layer["id"].integer()
        if identity in by_id:
            raise layer["id"].fail(f"unique (it is the id of {by_id[identity].path} too)")
        by_id[identity] = layer
    if not by_id:
        raise model["layers"].fail("a list of at least one layer")
    return by_id


def _edge_ends(edge: _Node, known: Mapping[int, object]) -> tuple[int, int]:
    source, target = edge["source"].integer(), edge["target"].integer()
    for end in ("source", "target"):
        if edge[end].integer() not in known:
            raise edge[end].fail("the id of a layer")
    if source == target:
        raise InstanceError(f"{edge.path}: layer {source} has an edge to itself")
    return source, target


def _topological_order(model: _Node) -> tuple[int, ...]:
    """Layer ids in the order of the path through all layers, which every instance must have."""
    layers = _layer_ids(model)
    successors: dict[int, set[int]] = {identity: set() for identity in layers}
    for edge in model["edges"].items():
        source, target = _edge_ends(edge, layers)
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


def _read_model(model: _Node, layer_ids: tuple[int, ...]) -> WidthModel:
    layers = _layer_ids(model)
    if set(layers) != set(layer_ids):
        odd = sorted(set(layers) ^ set(layer_ids))
        raise InstanceError(
            f"{model.path}.layers: must have the ids of the first model; they differ in {odd}"
        )
    position = {identity: i for i, identity in enumerate(layer_ids)}
    ordered = [layers[identity] for identity in layer_ids]
    edges = []
    for edge in model["edges"].items():
        source, target = _edge_ends(edge, layers)
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


def _check_models_agree(problem: PlacementProblem, nodes: Sequence[_Node]) -> None:
    """Widths are distinct and all models have the first one's edges (their bytes may differ)."""
    seen: set[int] = set()
    expected = [edge[:2] for edge in problem.models[0].edges]
    for model, node in zip(problem.models, nodes, strict=True):
        if model.tensor_parallel in seen:
            raise node["tensor_parallel_width"].fail("different in every model")
        seen.add(model.tensor_parallel)
        if [edge[:2] for edge in model.edges] != expected:
            raise InstanceError(f"{node.path}.edges: must join the same layers as those of $.models[0]")
