"""Parts of a recount: passes, blocks, parameters, and how groups of layers and exchanges take turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from phaze.parallel.framework import Framework
from phaze.parallel.training.layer_costs import LayerPassCosts
from phaze.workload.parallel_degrees import Parallel


@dataclass
class RecountedPass:
    """Seconds of one pass of one microbatch through one chunk, by cause; `device_s` is all but waiting for the host."""

    kernels_s: float = 0.0
    vector_s: float = 0.0
    weight_s: float = 0.0
    exposed_s: dict[Parallel, float] = field(default_factory=lambda: dict.fromkeys(Parallel, 0.0))
    hidden_s: float = 0.0
    launched_s: float = 0.0
    gathered_s: float = 0.0
    reduced_s: float = 0.0
    moved_s: float = 0.0
    waited_s: float = 0.0

    @property
    def layers_s(self) -> float:
        """Layers alone."""
        return self.kernels_s + sum(self.exposed_s.values())

    @property
    def device_s(self) -> float:
        """Seconds with exchanges of weights and gradients, and transfers with the host."""
        return self.layers_s + self.gathered_s + self.reduced_s + self.moved_s

    @property
    def pass_s(self) -> float:
        """Seconds of the pass that the pipeline sees."""
        return self.device_s + self.waited_s

    def add(self, costs: LayerPassCosts, layer: int, framework: Framework, dispatch_s: float) -> None:
        """One layer more."""
        hidden = float(costs.hidden_s[layer])
        self.kernels_s += float(costs.kernels_s[layer]) * framework.stretch + framework.interference * hidden
        self.vector_s += float(costs.vector_s[layer]) * framework.stretch
        self.weight_s += float(costs.weight_s[layer]) * framework.stretch
        self.hidden_s += hidden
        self.launched_s += float(costs.launches[layer]) * dispatch_s
        for parallel, seconds in costs.exposed_s.items():
            self.exposed_s[parallel] += float(seconds[layer])

    def join(self, other: RecountedPass, times: int) -> None:
        """Sum with another pass that runs so many times, without exchanges between ranks and with hosts."""
        self.kernels_s += times * other.kernels_s
        self.vector_s += times * other.vector_s
        self.weight_s += times * other.weight_s
        self.hidden_s += times * other.hidden_s
        self.launched_s += times * other.launched_s
        for parallel, seconds in other.exposed_s.items():
            self.exposed_s[parallel] += times * seconds


@dataclass(frozen=True)
class RecountedGroup:
    """A group of layers, such as a transformer block: its layers, in order, and whether it repeats.

    `again`: places of its layers that run again, those together that start from one kept input. `sharded`: whether
    replicas divide its weights where others stay whole.
    """

    layers: tuple[int, ...]
    repeats: bool
    again: tuple[tuple[int, ...], ...]
    sharded: bool = False

    def __hash__(self) -> int:
        """By its layers, which are nearly always all that differs: groups are looked up a thousand times a plan."""
        return hash(self.layers)

    @property
    def once(self) -> list[int]:
        """Layers that keep what they save."""
        twice = {place for together in self.again for place in together}
        return [layer for place, layer in enumerate(self.layers) if place not in twice]


@dataclass(frozen=True)
class Parameters:
    """Parameters of a group of layers or a device: those of replicas, of experts, and those that tensor ranks keep."""

    shared: float = 0.0
    experts: float = 0.0
    replicated: float = 0.0

    def __add__(self, other: Parameters) -> Parameters:
        """Sum of both."""
        return Parameters(
            self.shared + other.shared, self.experts + other.experts, self.replicated + other.replicated
        )

    def __mul__(self, times: int) -> Parameters:
        """Of as many equal groups."""
        return Parameters(self.shared * times, self.experts * times, self.replicated * times)

    @property
    def total(self) -> float:
        """All."""
        return self.shared + self.experts + self.replicated


@dataclass(frozen=True)
class RecountedSync:
    """Seconds that follow the last microbatch of a device, and what of them ran beside computation."""

    reduction_s: float
    optimizer_s: float
    gather_s: float
    hidden_s: float

    @property
    def total_s(self) -> float:
        """Seconds by which an iteration is longer."""
        return self.reduction_s + self.optimizer_s + self.gather_s


def forward_s(
    repeats: Sequence[bool], compute_s: Sequence[float], gather_s: Sequence[float], _: Sequence[float]
) -> float:
    """A forward pass whose weights come one group ahead: a gather waits until the group before the last has computed.

    Groups that do not repeat are gathered at the start, together.
    """
    start = sum(g for g, repeated in zip(gather_s, repeats, strict=True) if not repeated)
    wire, time, ends = start, start, [0.0, 0.0]
    for repeated, compute, gather in zip(repeats, compute_s, gather_s, strict=True):
        if repeated:
            wire = max(wire, ends[-2]) + gather
            time = max(time, wire) + compute
            ends.append(time)
        else:
            time += compute
    return time


def backward_s(
    repeats: Sequence[bool],
    compute_s: Sequence[float],
    gather_s: Sequence[float],
    reduce_s: Sequence[float],
) -> float:
    """A backward pass, last group first: its weights are awaited, the next ones asked for, its gradients then reduced.

    Gradients of groups that do not repeat are reduced at the end, together.
    """
    ahead = [g for g, repeated in zip(gather_s, repeats, strict=True) if repeated]
    wire = arrived = ahead.pop() if ahead else 0.0
    time = 0.0
    for repeated, compute, reduce in zip(repeats[::-1], compute_s[::-1], reduce_s[::-1], strict=True):
        if repeated:
            time = max(time, arrived)
            if ahead:
                wire = arrived = max(wire, time) + ahead.pop()
        time += compute
        if repeated and reduce > 0:
            wire = max(wire, time) + reduce
    last = sum(r for r, repeated in zip(reduce_s, repeats, strict=True) if not repeated)
    return max(time, wire) + last


def through_s(
    compute_s: Sequence[float], inward_s: Sequence[float], outward_s: Sequence[float], *, drains: bool
) -> float:
    """Groups that come in over a link, compute and leave; of each stage of this at most two are under way.

    `drains`: until the last has left; otherwise until it has computed.
    """
    came, done, left = [0.0], [0.0, 0.0], [0.0, 0.0]
    for compute, inward, outward in zip(compute_s, inward_s, outward_s, strict=True):
        came.append(max(came[-1], done[-2]) + inward)
        done.append(max(done[-1], came[-1], left[-2]) + compute)
        left.append(max(left[-1], done[-1]) + outward)
    return max(done[-1], left[-1]) if drains else done[-1]
