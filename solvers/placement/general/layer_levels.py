"""Upsets of a layer graph and the levels between them: what stages of equal depth may hold.

An upset is a set of layers that holds every successor of its layers: what is left of a pipeline when some of
its first stages are taken away. Stages of equal depth from the end have no edge between them, so a plan is a
sequence of growing upsets; what each one adds is a level, and a level splits into stages along its connected
components. On a chain the upsets are the suffixes and every level is one stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from phaze.solvers.arrays import Flags, Integers
from phaze.solvers.placement.json_document import InstanceError


class TooLargeError(InstanceError):
    """The instance is larger than the exact search takes; the message says where, the limit and what helps."""


@dataclass(frozen=True)
class Splits:
    """Levels of as many components each, as one stage and the rest of the level: (M,) indices."""

    level: Integers
    stage: Integers
    rest: Integers


@dataclass(frozen=True)
class Levels:
    """All levels of a graph of L layers, between N upsets; upset 0 is empty, upset N - 1 is the whole graph.

    `before`, `after`: upsets a level leads from and to; `alone`: the stage that is the whole level, all (P,).
    `splits`: what else a level may be, by number of components. `packed`: layers of each stage as bits (G, bytes).
    """

    upsets: int
    before: Integers
    after: Integers
    alone: Integers
    splits: tuple[Splits, ...]
    layers: int
    packed: NDArray[np.uint8]

    @property
    def stages(self) -> int:
        """Number of different stages, G."""
        return len(self.packed)

    def member(self, rows: slice) -> Flags:
        """Layers of some stages, (rows, L)."""
        bits = np.unpackbits(self.packed[rows], axis=1, bitorder="little", count=self.layers)
        return bits.view(np.bool_)

    @property
    def most_stages(self) -> int:
        """Most stages of one level."""
        return len(self.splits) + 1


MOST_UPSETS = 20_000
# Levels and ways to begin one: some two seconds of enumeration.
MOST_LEVELS = 1_000_000
Components = tuple[int, ...]


def find_levels(
    layers: int,
    edges: Sequence[tuple[int, int]],
    most_upsets: int = MOST_UPSETS,
    most_levels: int = MOST_LEVELS,
) -> Levels:
    """All levels of a graph of so many layers.

    Raises:
        TooLargeError: there are more upsets than that, or more levels and splits.
    """
    return _Enumeration(layers, edges, most_upsets, most_levels).levels()


class _Enumeration:
    """Sets of layers as bit masks; stages get their numbers in the order in which they are met."""

    def __init__(self, count: int, edges: Sequence[tuple[int, int]], most_upsets: int, most: int) -> None:
        self._layers, self._most_upsets, self._most = count, most_upsets, most
        self._size = 0
        self._successors, self._neighbours = [0] * count, [0] * count
        for u, v in edges:
            self._successors[u] |= 1 << v
            self._neighbours[u] |= 1 << v
            self._neighbours[v] |= 1 << u
        self._bytes = (count + 7) // 8
        # As bytes, since contiguous bit masks of many layers share few hashes.
        self._stages: dict[bytes, int] = {}
        self._rows: list[tuple[int, int, int]] = []
        self._splits: dict[int, list[tuple[int, int, int]]] = {}

    def levels(self) -> Levels:
        upsets, growth = self._upsets()
        number = {upset: i for i, upset in enumerate(upsets)}
        for start in range(len(upsets)):
            self._levels_from(start, upsets, number, growth)
        columns = np.array(self._rows, dtype=np.int64).T
        splits = (np.array(self._splits[size], dtype=np.int64).T for size in sorted(self._splits))
        return Levels(
            upsets=len(upsets),
            before=columns[0],
            after=columns[1],
            alone=columns[2],
            splits=tuple(Splits(*rows) for rows in splits),
            layers=self._layers,
            packed=np.frombuffer(b"".join(self._stages), dtype=np.uint8).reshape(-1, self._bytes),
        )

    def _upsets(self) -> tuple[list[int], list[list[tuple[int, int]]]]:
        """All upsets, smaller ones first, and for each the (layer, larger upset) pairs one layer away."""
        found, upsets = {0: 0}, [0]
        growth: list[list[tuple[int, int]]] = []
        for upset in upsets:
            growth.append([])
            for layer, successors in enumerate(self._successors):
                if upset >> layer & 1 or successors & ~upset:
                    continue
                larger = upset | 1 << layer
                if larger not in found:
                    found[larger] = len(upsets)
                    upsets.append(larger)
                    if len(upsets) > self._most_upsets:
                        raise _too_large(f"{self._most_upsets} upsets (sets of layers that a cut may leave)")
                growth[-1].append((layer, found[larger]))
        return upsets, growth

    def _levels_from(
        self, start: int, upsets: list[int], number: dict[int, int], growth: list[list[tuple[int, int]]]
    ) -> None:
        """All levels that begin at one upset, smaller ones first."""
        components: dict[int, Components] = {start: ()}
        level_to: dict[int, int] = {}
        order = [start]
        for upset in order:
            for layer, larger in growth[upset]:
                if larger not in components:
                    components[larger] = self._joined(components[upset], layer)
                    order.append(larger)
        for end in order[1:]:
            self._count_one()
            level_to[end] = len(self._rows)
            whole = upsets[end] & ~upsets[start]
            self._rows.append((start, end, self._stage(whole)))
            for part in _first_stages(components[end]):
                self._count_one()
                rest = level_to[number[upsets[end] & ~part]]
                rows = self._splits.setdefault(len(components[end]), [])
                rows.append((level_to[end], self._stage(part), rest))

    def _joined(self, components: Components, layer: int) -> Components:
        """The components when a layer is added."""
        joined = 1 << layer
        apart = []
        for component in components:
            if component & self._neighbours[layer]:
                joined |= component
            else:
                apart.append(component)
        return (*apart, joined)

    def _stage(self, layers: int) -> int:
        return self._stages.setdefault(layers.to_bytes(self._bytes, "little"), len(self._stages))

    def _count_one(self) -> None:
        self._size += 1
        if self._size > self._most:
            raise _too_large(f"{self._most} levels (sets of layers between two cuts)")


def _too_large(most: str) -> TooLargeError:
    return TooLargeError(
        f"$.models[0].edges: too many ways to cut the graph: the exact search takes {most}, this graph has more; "
        "merge layers that stay together, or order parallel branches by an edge"
    )


def _first_stages(components: Components) -> Iterator[int]:
    """The unions of some, not all, components that contain the first one."""
    first, *others = components
    for chosen in range(2 ** len(others) - 1):
        yield first | sum(component for i, component in enumerate(others) if chosen >> i & 1)
