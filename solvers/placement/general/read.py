"""Placement instances of format `dse-placement/2`."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from phaze.solvers.placement.general.problem import (
    Conventions,
    DeviceType,
    GeneralProblem,
    Model,
    Recompute,
    Reduced,
    Schedule,
    Transfers,
)
from phaze.solvers.placement.reading import Choice, InstanceError, Node, edge_ends, layers_by_id

FORMAT = "dse-placement/2"
# Numbers of the model may be large: this factor of their products may not.
_LARGEST_FACTOR = 1000


def read_general_problem(document: object) -> GeneralProblem:
    """The instance in a parsed JSON document; fields beside the format's are ignored.

    Raises:
        InstanceError: the document is malformed; the message names the JSON path.
    """
    root = Node(document, "$")
    if root["format"].value != FORMAT:
        raise root["format"].fail(repr(FORMAT))
    kind = root["schedule"]["kind"].choice(Schedule)
    interleaved = kind is Schedule.INTERLEAVED
    choices = root["choices"]
    types = _device_types(root["device_types"])
    models = _entries(root["models"])
    order = _topological_order(models[0])
    edges = tuple(edge[:2] for edge in _edges(models[0], order))
    return GeneralProblem(
        microbatches_per_batch=root["microbatches_per_batch"].integer(1),
        link_bandwidth_bytes_per_s=root["link_bandwidth_bytes_per_s"].number(positive=True),
        optimizer_state_ratio=root["optimizer_state_ratio"].number(),
        schedule=kind,
        virtual_stages=root["schedule"]["virtual_stages"].integer(2) if interleaved else 1,
        recompute=_recompute(choices["recompute"], kind),
        zero=_zero(choices["zero"]),
        uniform_width=choices["uniform_width"].boolean(),
        conventions=_conventions(root["conventions"]),
        device_types=types,
        layer_ids=order,
        edges=edges,
        models=_models(models, types, order, edges),
    )


def _entries(node: Node) -> list[Node]:
    """A list that is not empty."""
    entries = node.items()
    if not entries:
        raise node.fail("a list of at least one entry")
    return entries


def _conventions(node: Node) -> Conventions:
    factor = node["reduction_factor"].number()
    if factor > _LARGEST_FACTOR:
        raise node["reduction_factor"].fail(f"at most {_LARGEST_FACTOR}")
    return Conventions(
        transfers=node["transfers"].choice(Transfers),
        reduced=node["reduced_stages"].choice(Reduced),
        reduction_factor=factor,
        in_flight_capped=node["in_flight_capped"].boolean(),
    )


def _device_types(node: Node) -> tuple[DeviceType, ...]:
    types: list[DeviceType] = []
    for entry in _entries(node):
        name = entry["name"].text()
        if name in {known.name for known in types}:
            raise entry["name"].fail("different for every device type")
        types.append(DeviceType(name, entry["count"].integer(1), entry["memory_bytes"].number()))
    return tuple(types)


def _recompute(node: Node, schedule: Schedule) -> tuple[Recompute, ...]:
    chosen = _subset(node, Recompute)
    if schedule.zero_bubble and chosen != (Recompute.NONE,):
        # A late weight gradient needs all activations: nothing would be saved.
        raise node.fail("['none'] in a zero-bubble schedule")
    return chosen


def _subset(node: Node, kind: type[Choice]) -> tuple[Choice, ...]:
    """The words of a kind that are listed, in the order of the kind."""
    listed = {entry.choice(kind) for entry in _entries(node)}
    return tuple(word for word in kind if word in listed)


def _zero(node: Node) -> tuple[int, ...]:
    return tuple(sorted({entry.integer(0, 3) for entry in _entries(node)}))


def _topological_order(model: Node) -> tuple[int, ...]:
    """Layer ids such that all edges lead forwards; of several free layers the one listed first comes first."""
    layers = list(layers_by_id(model))
    position = {identity: i for i, identity in enumerate(layers)}
    successors: list[list[int]] = [[] for _ in layers]
    waiting = [0] * len(layers)
    for edge in model["edges"].items():
        source, target = edge_ends(edge, position)
        successors[position[source]].append(position[target])
        waiting[position[target]] += 1
    ready = [v for v in range(len(layers)) if not waiting[v]]
    heapify(ready)
    order: list[int] = []
    while ready:
        order.append(heappop(ready))
        for target in successors[order[-1]]:
            waiting[target] -= 1
            if not waiting[target]:
                heappush(ready, target)
    if len(order) < len(layers):
        stuck = sorted(layers[v] for v in set(range(len(layers))) - set(order))
        raise InstanceError(f"{model.path}.edges: must have no cycle; layers on or behind one: {stuck}")
    return tuple(layers[v] for v in order)


def _edges(model: Node, order: tuple[int, ...]) -> list[tuple[int, int, float]]:
    """(source position, target position, bytes), sorted."""
    position = {identity: i for i, identity in enumerate(order)}
    found = []
    for edge in model["edges"].items():
        source, target = edge_ends(edge, position)
        found.append((position[source], position[target], edge["boundary_bytes"].number()))
    return sorted(found)


def _models(
    nodes: Sequence[Node],
    types: tuple[DeviceType, ...],
    order: tuple[int, ...],
    edges: tuple[tuple[int, int], ...],
) -> tuple[Model, ...]:
    """All models, each with a device type and width of its own, and the layers and edges of the first one."""
    names = [known.name for known in types]
    models: list[Model] = []
    for node in nodes:
        if node["device_type"].text() not in names:
            raise node["device_type"].fail(f"the name of a device type ({', '.join(names)})")
        model = _model(node, names.index(node["device_type"].text()), order, edges)
        if any(
            (model.device_type, model.tensor_parallel) == (m.device_type, m.tensor_parallel) for m in models
        ):
            raise node["tensor_parallel_width"].fail("different in every model of a device type")
        models.append(model)
    return tuple(models)


def _model(node: Node, device_type: int, order: tuple[int, ...], edges: tuple[tuple[int, int], ...]) -> Model:
    layers = layers_by_id(node)
    if set(layers) != set(order):
        odd = sorted(set(layers) ^ set(order))
        raise InstanceError(f"{node.path}.layers: must have the ids of the first model; they differ in {odd}")
    found = _edges(node, order)
    if tuple(edge[:2] for edge in found) != edges:
        raise InstanceError(f"{node.path}.edges: must join the same layers as those of $.models[0]")
    ordered = [layers[identity] for identity in order]
    return Model(
        device_type=device_type,
        tensor_parallel=node["tensor_parallel_width"].integer(1),
        forward_s=tuple(layer["forward_latency_s"].number() for layer in ordered),
        input_gradient_s=tuple(layer["input_gradient_latency_s"].number() for layer in ordered),
        weight_gradient_s=tuple(layer["weight_gradient_latency_s"].number() for layer in ordered),
        parameter_bytes=tuple(layer["parameter_bytes"].number() for layer in ordered),
        activation_bytes=tuple(layer["activation_bytes"].number() for layer in ordered),
        is_tensor_parallel=tuple(layer["is_tensor_parallel"].boolean() for layer in ordered),
        boundary_bytes=tuple(edge[2] for edge in found),
    )
