"""The chain on pools: costs of every stage under every option, devices of every pool; the evaluation of a plan.

The evaluation is independent: it shares nothing with the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phaze.solvers.arrays import Floats, Integers
from phaze.solvers.placement.chain.chain_checker import PlanError


@dataclass(frozen=True, slots=True)
class PoolStage:
    """Layers `first` to `last`, inclusive, under an option (by number)."""

    first: int
    last: int
    option: int


@dataclass(frozen=True)
class PoolChain:
    """Options O of a stage on K pools, for a chain of L layers.

    `load_s`, `once_s` (O, L, L): seconds of a stage of layers i..j for a microbatch, and once per batch, at [o, i, j],
    not read below the diagonal. `deepest` (O, L, L): largest index from the end (last stage: 1) at which it fits into
    memory, 0 if at none. `pool`, `width` (O,): the pool of an option and the devices it takes of it. `room` (K,):
    devices of every pool. `slots`: microbatches.
    """

    load_s: Floats
    once_s: Floats
    deepest: Integers
    pool: tuple[int, ...]
    width: tuple[int, ...]
    room: tuple[int, ...]
    slots: int

    def __post_init__(self) -> None:
        """Check shapes. ValueError where they do not fit together."""
        options, layers, _ = self.load_s.shape
        if self.once_s.shape != self.load_s.shape or self.deepest.shape != self.load_s.shape:
            raise ValueError("loads, what is done once and depths have one shape")
        if len(self.pool) != options or len(self.width) != options or self.load_s.shape[2] != layers:
            raise ValueError(f"{options} options need a pool and a width each, and square tables")
        if min(self.width) < 1 or not all(0 <= k < len(self.room) for k in self.pool):
            raise ValueError("an option takes one device or more of a pool there is")

    @property
    def layers(self) -> int:
        """Number of layers L."""
        return int(self.load_s.shape[1])


def pool_plan_value(chain: PoolChain, stages: Sequence[PoolStage]) -> float:
    """Seconds of a batch: the largest of what comes before a stage, its own work and what it does once.

    max over stages i of (sum of loads before i + slots x load of i + once of i). Raises PlanError that names the rule
    that a plan breaks.
    """
    covered = [layer for stage in stages for layer in range(stage.first, stage.last + 1)]
    if covered != list(range(chain.layers)) or any(stage.last < stage.first for stage in stages):
        raise PlanError(f"the stages do not cover {chain.layers} layers once in order")
    before_s, value, left = 0.0, 0.0, list(chain.room)
    for depth, stage in zip(range(len(stages), 0, -1), stages, strict=True):
        o, i, j = stage.option, stage.first, stage.last
        if chain.deepest[o, i, j] < depth:
            raise PlanError(f"layers {i} to {j} do not fit in memory {depth} stages from the end")
        left[chain.pool[o]] -= chain.width[o]
        load_s = float(chain.load_s[o, i, j])
        value = max(value, before_s + chain.slots * load_s + float(chain.once_s[o, i, j]))
        before_s += load_s
    if min(left) < 0:
        raise PlanError(f"pools are {left} devices short")
    return value
