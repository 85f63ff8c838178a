"""The general placement problem: a graph of layers, several device types, options per stage, a pipeline schedule.

Read from instances of format `dse-placement/2`, or made from a chain of format `dse-placement/1` with the same
answer; and what the solver answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from heapq import heapify, heappop, heappush

from phaze.solvers.placement.chain.chain_problem import Optimizer, PlacementProblem, PlacementStatus
from phaze.solvers.placement.json_document import Choice, InstanceError, Node, edge_ends, layers_by_id


class Schedule(StrEnum):
    """Pipeline schedule: the order in which a stage runs forward and backward passes of the microbatches."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved-1f1b"
    ZB_H1 = "zb-h1"
    ZB_H2 = "zb-h2"

    @property
    def zero_bubble(self) -> bool:
        """Weight gradients are computed late, to fill the bubble."""
        return self in {Schedule.ZB_H1, Schedule.ZB_H2}


class Recompute(StrEnum):
    """State of a microbatch that a stage keeps until its backward pass: all activations, or its inputs alone."""

    NONE = "none"
    FULL = "full"


class Transfers(StrEnum):
    """Cost of a tensor between stages: nothing; its receiver, behind earlier work; both ends, always."""

    HIDDEN = "hidden"
    OVERLAPPED = "overlapped"
    EXPOSED = "exposed"


class Reduced(StrEnum):
    """Whose gradient reduction counts: that of the stages nothing feeds, or that of every stage."""

    FIRST = "first"
    EVERY = "every"


@dataclass(frozen=True)
class DeviceType:
    """Devices of one kind."""

    name: str
    count: int
    memory_bytes: float


@dataclass(frozen=True)
class Model:
    """The layers on one device type at one tensor-parallel width, per device and microbatch.

    Layers are in topological order; `boundary_bytes` are in the order of the problem's edges.
    """

    device_type: int
    tensor_parallel: int
    forward_s: tuple[float, ...]
    input_gradient_s: tuple[float, ...]
    weight_gradient_s: tuple[float, ...]
    parameter_bytes: tuple[float, ...]
    activation_bytes: tuple[float, ...]
    is_tensor_parallel: tuple[bool, ...]
    boundary_bytes: tuple[float, ...]


@dataclass(frozen=True)
class Conventions:
    """Conventions of counting.

    `reduction_factor`: how often an all-reduce moves its bytes (2 for a ring; PHAZE charges 4).
    `in_flight_capped`: no stage holds more microbatches than there are.
    """

    transfers: Transfers
    reduced: Reduced
    reduction_factor: float
    in_flight_capped: bool


PHAZE = Conventions(Transfers.OVERLAPPED, Reduced.FIRST, 4.0, in_flight_capped=False)


@dataclass(frozen=True)
class GeneralProblem:
    """One instance of `dse-placement/2`.

    Layers are in topological order, among free ones the one listed first; edges are (source, target)
    positions. `optimizer_state_ratio`: bytes of optimizer states per byte of parameters. `virtual_stages`:
    stages per group of devices, 1 unless interleaved. `recompute`, `zero`: what each stage may choose from.
    """

    microbatches_per_batch: int
    link_bandwidth_bytes_per_s: float
    optimizer_state_ratio: float
    schedule: Schedule
    virtual_stages: int
    recompute: tuple[Recompute, ...]
    zero: tuple[int, ...]
    uniform_width: bool
    conventions: Conventions
    device_types: tuple[DeviceType, ...]
    layer_ids: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    models: tuple[Model, ...]


def with_phaze_conventions(problem: GeneralProblem) -> GeneralProblem:
    """The same instance as PHAZE counts: one width, first stage reduced, twice a ring, transfers overlapped."""
    return replace(problem, conventions=PHAZE, uniform_width=True)


@dataclass(frozen=True)
class GeneralStage:
    """One stage: its layer ids in topological order, its devices in one pipeline, and its options."""

    layers: tuple[int, ...]
    devices: int
    device_type: str
    tensor_parallel: int
    recompute: Recompute
    zero: int


@dataclass(frozen=True)
class GeneralResult:
    """The best plan, stages in topological order; all but status and runtime is None or empty if nothing fits.

    `depth`: stages on the longest path. `lower_bound_s` equals `time_per_batch_s`, since the optimum is
    proven; it is infinite if nothing fits.
    """

    status: PlacementStatus
    time_per_batch_s: float | None
    lower_bound_s: float
    num_stages: int | None
    depth: int | None
    data_parallel: int | None
    devices_used: int | None
    stages: tuple[GeneralStage, ...]
    runtime_s: float


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


def from_chain(problem: PlacementProblem) -> GeneralProblem:
    """The chain with PHAZE's conventions, one device type and one width for all stages."""
    return GeneralProblem(
        microbatches_per_batch=problem.microbatches_per_batch,
        link_bandwidth_bytes_per_s=problem.link_bandwidth_bytes_per_s,
        optimizer_state_ratio=1.0 if problem.optimizer is Optimizer.ADAM else 0.0,
        schedule=Schedule.ONE_F_ONE_B,
        virtual_stages=1,
        recompute=(Recompute.FULL if problem.activation_recomputation else Recompute.NONE,),
        zero=(0,),
        uniform_width=True,
        conventions=PHAZE,
        device_types=(DeviceType("device", problem.num_devices, problem.device_memory_bytes),),
        layer_ids=problem.layer_ids,
        edges=tuple(edge[:2] for edge in problem.models[0].edges),
        models=tuple(
            Model(
                device_type=0,
                tensor_parallel=model.tensor_parallel,
                forward_s=model.forward_s,
                input_gradient_s=model.backward_s,
                weight_gradient_s=(0.0,) * len(model.backward_s),
                parameter_bytes=model.parameter_bytes,
                activation_bytes=model.activation_bytes,
                is_tensor_parallel=model.is_tensor_parallel,
                boundary_bytes=tuple(edge[2] for edge in model.edges),
            )
            for model in problem.models
        ),
    )
