"""The mixed pipeline: a chain of L layers, K device types, a type for every stage; its answers and their evaluation.

Any number of devices of each type may be had. The evaluation of a plan is independent: it shares nothing with
the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from phaze.solvers.arrays import Floats, Integers
from phaze.solvers.placement.chain.chain_checker import PlanError
from phaze.solvers.placement.chain.chain_problem import PlacementStatus
from phaze.solvers.placement.stage_costs import interval_sums


class Goal(StrEnum):
    """Objective to minimise: seconds per batch, or joules per device, which are seconds times the mean power."""

    TIME = "time"
    ENERGY = "energy"


@dataclass(frozen=True, slots=True)
class MixedStage:
    """Layers `first` to `last`, inclusive, on devices of one type (by number)."""

    first: int
    last: int
    device_type: int


@dataclass(frozen=True)
class MixedChain:
    """Costs of every stage on every type; loads in s per microbatch.

    `inner_s` (K, L, L): a stage of layers i..j that is not the last one, at [k, i, j], not read below the
    diagonal. `last_s` (K, L): a last stage of layers i.., infinite where it does not fit in memory. `deepest`
    (G, L, L): largest index from the end (last stage: 1) at which an inner stage fits in memory, 0 if at none;
    types of the same memory share it, `group` (K,) says which is whose. `weight` (L,): parameters, or whatever
    else costs time once per batch. `power_w` (K,): of one device.
    """

    inner_s: Floats
    last_s: Floats
    deepest: Integers
    group: Integers
    weight: Floats
    power_w: Floats

    def __post_init__(self) -> None:
        """Check shapes. ValueError where they do not fit together."""
        types, layers = self.last_s.shape
        given = (self.inner_s.shape, self.deepest.shape[1:], self.group.shape, self.weight.shape)
        if given != ((types, layers, layers), (layers, layers), (types,), (layers,)):
            raise ValueError(f"shapes {given} do not fit {types} types and {layers} layers")
        if self.power_w.shape != (types,) or not (self.group < len(self.deepest)).all():
            raise ValueError("every type needs a power and a group of the same memory")

    @property
    def types(self) -> int:
        """Number of device types K."""
        return len(self.power_w)

    @property
    def layers(self) -> int:
        """Number of layers L."""
        return len(self.weight)

    @cached_property
    def stage_weight(self) -> Floats:
        """Weight of the stage of layers i..j at [i, j], (L, L)."""
        return interval_sums(self.weight)

    def per_group(self, cost: Floats) -> Floats:
        """Least cost (K, L, L) over the types of each group, (G, L, L)."""
        return np.stack([cost[self.group == g].min(axis=0) for g in range(len(self.deepest))])


@dataclass(frozen=True)
class Line:
    """One pipeline of exactly `stages` stages: seconds = slots x max(load) + max(weight x rate) + latency.

    `rate_s` (K,): seconds per unit of weight on each type.
    """

    chain: MixedChain
    stages: int
    slots: float
    rate_s: Floats
    latency_s: float

    def seconds(self, load_s: float, once_s: float) -> float:
        """Time of a batch from the largest load and the largest of what stages do once."""
        return self.slots * load_s + once_s + self.latency_s

    @cached_property
    def once_s(self) -> Floats:
        """Seconds of the stage of layers i..j once per batch on each type, (K, L, L)."""
        return self.rate_s[:, None, None] * self.chain.stage_weight


@dataclass(frozen=True)
class MixedResult:
    """The best plan: `value` in s (time) or J per device (energy), which no plan is proven to beat.

    `line`: its position among the lines asked for, -1 if no plan keeps the limits. `lines_solved`, `solved`:
    lines that their bound did not rule out, and runs of the dynamic program.
    """

    status: PlacementStatus
    value: float
    lower_bound: float
    gap: float
    time_s: float
    mean_power_w: float
    line: int
    stages: tuple[MixedStage, ...]
    lines_solved: int
    solved: int
    runtime_s: float


def mixed_plan_value(line: Line, goal: Goal, stages: Sequence[MixedStage]) -> float:
    """Seconds per batch of a plan, or joules per device. Raises PlanError that names the rule it breaks."""
    chain = line.chain
    covered = [layer for stage in stages for layer in range(stage.first, stage.last + 1)]
    if covered != list(range(chain.layers)) or any(stage.last < stage.first for stage in stages):
        raise PlanError(f"the stages do not cover {chain.layers} layers once in order")
    if len(stages) != line.stages:
        raise PlanError(f"{len(stages)} stages, not {line.stages}")
    loads, once, powers = [], [], []
    for depth, stage in zip(range(len(stages), 0, -1), stages, strict=True):
        k, i, j = stage.device_type, stage.first, stage.last
        if depth > 1 and chain.deepest[chain.group[k]][i][j] < depth:
            raise PlanError(f"layers {i} to {j} do not fit in memory {depth} stages from the end")
        load = chain.inner_s[k][i][j] if depth > 1 else chain.last_s[k][i]
        if load == float("inf"):
            raise PlanError(f"layers {i} to {j} do not fit in memory")
        loads.append(load)
        once.append(sum(chain.weight[layer] for layer in range(i, j + 1)) * line.rate_s[k])
        powers.append(chain.power_w[k])
    seconds = float(line.slots * max(loads) + max(once) + line.latency_s)
    return seconds * float(sum(powers)) / len(powers) if goal is Goal.ENERGY else seconds
