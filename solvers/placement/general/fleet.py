"""The devices of one pipeline and the moves that build it: what the search over plans is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from phaze.solvers.arrays import Flags, Integers
from phaze.solvers.placement.general.levels import Levels, TooLargeError
from phaze.solvers.placement.general.table import DeviceClass

# Counts are kept as devices * DEVICE + stages: a device weighs more than all stages together.
DEVICE = 1 << 15
NEVER = 1 << 61
MOST_STATES = 50_000_000
State = tuple[int, ...]


@dataclass(frozen=True)
class Moves:
    """Ways to make some levels: a stage put on what `source` already holds; sorted by level, (M,) each."""

    level: Integers
    source: Integers
    stage: Integers


@dataclass(frozen=True)
class Fleet:
    """The graph's moves and the classes of devices, with how many devices of each type a pipeline may take.

    `by_end`: levels in the order of the upsets they lead to. `alone`: levels of one stage, whose sources are
    upsets; `splits`: levels of several, whose sources are levels. `counted_type`: the most frequent device type,
    whose devices the value of a state counts, up to `counted_capacity`; the devices of every other type are an
    `axis` of the state, of size `shape`.
    """

    levels: Levels
    by_end: Integers
    classes: tuple[DeviceClass, ...]
    alone: Moves
    splits: tuple[Moves, ...]
    counted_type: int
    counted_capacity: int
    axis: Mapping[int, int]
    shape: tuple[int, ...]

    def put(self, values: Integers, stages: Integers, fits: Flags) -> Integers:
        """Values (M, *shape) after a stage (M,) is put on each, where it fits on a class (classes, G)."""
        counted = np.full(fits.shape[1], NEVER)
        # Classes are sorted: of those of the counted type the smallest one that fits is written last.
        for known, fitting in zip(reversed(self.classes), fits[::-1], strict=True):
            if known.device_type == self.counted_type and known.devices <= self.counted_capacity:
                counted[fitting] = known.devices * DEVICE + 1
        after: Integers = values + counted[stages].reshape(-1, *(1 for _ in self.shape))
        for known, fitting in zip(self.classes, fits, strict=True):
            if known.device_type != self.counted_type:
                rows = np.flatnonzero(fitting[stages])
                after[rows] = np.minimum(after[rows], self._shifted(values[rows], known))
        after[after >= (self.counted_capacity + 1) * DEVICE] = NEVER
        return after

    def _shifted(self, values: Integers, known: DeviceClass) -> Integers:
        """Values after a stage on devices of a type that is an axis of the state."""
        axis = self.axis[known.device_type]
        after = np.full_like(values, NEVER)
        np.moveaxis(after, axis, 0)[known.devices :] = np.moveaxis(values, axis, 0)[: -known.devices] + 1
        return after

    def before(self, value: int, state: State, known: DeviceClass) -> tuple[int, State]:
        """The value and state from which a stage on a class of devices leads to these."""
        if known.device_type == self.counted_type:
            return value - known.devices * DEVICE - 1, state
        axis = self.axis[known.device_type] - 1
        return value - 1, (*state[:axis], state[axis] - known.devices, *state[axis + 1 :])

    def used(self, values: Integers) -> Integers:
        """Devices of all types * DEVICE + stages, of values (*shape)."""
        others = np.indices(self.shape, dtype=np.int64).sum(axis=0) if self.shape else 0
        return np.where(values < NEVER, values + others * DEVICE, NEVER)


def fleet(
    levels: Levels, classes: tuple[DeviceClass, ...], capacity: Mapping[int, int], *, one_per_level: bool
) -> Fleet:
    """The fleet of a graph, device classes and the capacity per device type.

    Raises:
        TooLargeError: the search would have more than MOST_STATES states at a depth.
    """
    types = sorted({known.device_type for known in classes}, key=lambda kind: (capacity[kind], kind))
    shape = tuple(capacity[kind] + 1 for kind in types[:-1])
    states = len(levels.before) * prod(shape)
    if states > MOST_STATES:
        raise TooLargeError(
            f"$.device_types: too many states: the exact search takes {MOST_STATES}, this instance has {states} "
            "(levels of the graph times device counts of all types but the most frequent one); "
            "give fewer devices of those types, or merge layers that stay together"
        )
    return Fleet(
        levels=levels,
        by_end=np.argsort(levels.after, kind="stable"),
        classes=classes,
        alone=Moves(np.arange(len(levels.before)), levels.before, levels.alone),
        splits=() if one_per_level else tuple(Moves(s.level, s.rest, s.stage) for s in levels.splits),
        counted_type=types[-1],
        counted_capacity=capacity[types[-1]],
        axis={kind: axis for axis, kind in enumerate(types[:-1], start=1)},
        shape=shape,
    )
