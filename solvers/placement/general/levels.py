"""Levels of a layer graph: what stages of equal depth may hold.

An upset is a set of layers that holds every successor of its layers: what is left of a pipeline when some of
its first stages are taken away. Stages of equal depth from the end have no edge between them, so a plan is a
sequence of growing upsets; what each one adds is a level, and a level splits into stages along its connected
components. On a chain the upsets are the suffixes and every level is one stage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from phaze.solvers.arrays import Flags, Integers
from phaze.solvers.placement.reading import InstanceError


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
