"""Points that no bound has ruled out yet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from phaze.explore.archive import FloatArray


class Stage(IntEnum):
    """How far a point got."""

    PATH = 0
    PLACEMENT = 1
    SEARCHED = 2  # schedules searched for a while
    EXHAUSTED = 3  # searched until time was over


@dataclass(frozen=True, slots=True)
class Pool:
    """N points, one value each: candidate number, number of the setting, the columns that are minimised (N, k),
    area in mm2, optimistic throughput, and stage.
    """

    number: NDArray[np.int64]
    setting: NDArray[np.int16]
    others: FloatArray
    area_mm2: FloatArray
    bound: FloatArray
    stage: NDArray[np.int8]

    def __len__(self) -> int:
        """How many."""
        return len(self.number)

    def take(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> Pool:
        """Some of the points."""
        return Pool(*(getattr(self, f.name)[which] for f in fields(self)))

    @staticmethod
    def empty(k: int = 0) -> Pool:
        """No points, with k columns that are minimised."""
        none = np.zeros(0)
        return Pool(
            none.astype(np.int64), none.astype(np.int16), np.zeros((0, k)), none, none, none.astype(np.int8)
        )

    @staticmethod
    def join(parts: Iterable[Pool]) -> Pool:
        """Several pools as one."""
        if not (pools := list(parts)):
            return Pool.empty()
        return Pool(*(np.concatenate([getattr(p, f.name) for p in pools]) for f in fields(Pool)))
