"""Fewest devices of a pipeline of each depth: the exact dynamic program, and the moves that build a pipeline.

The state is (upset placed, upset placed before the level in hand, depth, devices used of every type but one);
its value is the fewest devices of that last type, then stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from phaze.solvers.arrays import Flags, Integers
from phaze.solvers.placement.general.layer_levels import Levels, TooLargeError
from phaze.solvers.placement.general.stage_tables import DeviceClass

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


@dataclass(frozen=True)
class PlacedStage:
    """A stage, its depth from the end, and the devices it takes: numbers in Levels and among the classes."""

    stage: int
    depth: int
    device_class: int


class _Ways:
    """The moves whose stage fits somewhere, (M,); `stage` counts those alone.

    `different` levels are made by the moves that begin at `first`.
    """

    def __init__(self, moves: Moves, usable: Flags) -> None:
        rows = np.flatnonzero(usable[moves.stage])
        self.level, self.source = moves.level[rows], moves.source[rows]
        self.stage: Integers = (np.cumsum(usable) - 1)[moves.stage[rows]]
        self.different, self.first = _groups(self.level)


class Pipelines:
    """All pipelines of up to a depth whose stages fit as deep as `deepest` (classes, G) says."""

    def __init__(self, fleet: Fleet, deepest: Integers, depth: int) -> None:
        """Run the program."""
        self._fleet = fleet
        usable = deepest.max(axis=0) > 0
        self._usable, self._deepest = np.flatnonzero(usable), deepest[:, usable]
        self._alone = _Ways(fleet.alone, usable)
        self._splits = [_Ways(moves, usable) for moves in fleet.splits]
        # The levels that can be made, by the upset they lead to.
        made = np.zeros(len(fleet.levels.after), dtype=np.bool_)
        for ways in (self._alone, *self._splits):
            made[ways.level] = True
        self._made = fleet.by_end[made[fleet.by_end]]
        self._ends, self._first_made = _groups(fleet.levels.after[self._made])
        start = np.full((fleet.levels.upsets, *fleet.shape), NEVER)
        start[(0,) * start.ndim] = 0
        # Fewest devices and stages of each upset in a pipeline of depth s, (upsets, *shape) at [s].
        self._values = [start]
        for s in range(1, depth + 1):
            self._values.append(self._next(s))

    def fewest(self, depth: int) -> tuple[int, int] | None:
        """(devices, stages) of a pipeline of exactly this depth, fewest devices first; None if there is none."""
        least = int(self._fleet.used(self._values[depth][-1]).min())
        return None if least >= NEVER else divmod(least, DEVICE)

    def plan(self, depth: int) -> list[PlacedStage]:
        """The stages of a pipeline of `fewest` devices of this depth, first one first."""
        levels, placed = self._fleet.levels, []
        used = self._fleet.used(self._values[depth][-1])
        state = tuple(int(i) for i in np.unravel_index(int(used.argmin()), used.shape))
        upset = levels.upsets - 1
        for s in range(depth, 0, -1):
            values = self._levels(s)
            wanted = self._values[s][(upset, *state)]
            ends = np.flatnonzero(levels.after == upset)
            level = int(ends[np.flatnonzero(values[(ends, *state)] == wanted)[0]])
            upset = int(levels.before[level])
            stages, state = self._stages(level, s, values, state)
            placed += stages
        return placed

    def _next(self, s: int) -> Integers:
        """Values of all upsets at depth s from those at depth s - 1."""
        values = np.full_like(self._values[-1], NEVER)
        if len(self._made):
            made = self._levels(s)[self._made]
            values[self._ends] = np.minimum.reduceat(made, self._first_made, axis=0)
        return values

    def _levels(self, s: int) -> Integers:
        """Values of all levels at depth s, (P, *shape)."""
        fits = self._deepest >= s
        values = np.full((len(self._fleet.levels.before), *self._fleet.shape), NEVER)
        alone = self._alone
        values[alone.level] = self._fleet.put(self._values[s - 1][alone.source], alone.stage, fits)
        for ways in self._splits:
            if len(ways.level):
                found = self._fleet.put(values[ways.source], ways.stage, fits)
                best = np.minimum.reduceat(found, ways.first, axis=0)
                values[ways.different] = np.minimum(values[ways.different], best)
        return values

    def _stages(self, level: int, s: int, values: Integers, state: State) -> tuple[list[PlacedStage], State]:
        """The stages of a level at depth s, and the state before it."""
        placed = []
        rest: int | None = level
        while rest is not None:
            rest, stage, state = self._undone(rest, s, values, state)
            placed.append(stage)
        return placed, state

    def _undone(
        self, level: int, s: int, values: Integers, state: State
    ) -> tuple[int | None, PlacedStage, State]:
        """The level (None: the upset below) and state from which a stage leads to this level and state."""
        value = int(values[(level, *state)])
        for moves in (self._alone, *self._splits):
            alone = moves is self._alone
            sources = self._values[s - 1] if alone else values
            for row in np.flatnonzero(moves.level == level):
                source, stage = int(moves.source[row]), int(moves.stage[row])
                for number in np.flatnonzero(self._deepest[:, stage] >= s):
                    earlier, before = self._fleet.before(value, state, self._fleet.classes[number])
                    if min(before, default=0) >= 0 and sources[(source, *before)] == earlier:
                        placed = PlacedStage(int(self._usable[stage]), s, int(number))
                        return None if alone else source, placed, before
        raise AssertionError("every state has one that it came from")


def _groups(keys: Integers) -> tuple[Integers, Integers]:
    """The different values of sorted keys, and where each one begins."""
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[starts], starts
