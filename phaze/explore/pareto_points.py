"""Points of a frontier on any axes: those found, and those still undecided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from phaze.explore.evaluator import FoundPlan
from phaze.explore.setting import Setting

FloatArray = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class ParetoPoint:
    """A point of the frontier: row of the table, setting, its columns by name, its plan where one was needed."""

    row: int
    setting: Setting
    columns: Mapping[str, float]
    plan: FoundPlan | None


@dataclass(frozen=True)
class ParetoFrontier:
    """The frontier of what was evaluated, by the first axis, best first.

    `complete`: proven to be the frontier of all points. Otherwise `open_values` (n, axes), each axis turned so
    that less is better, is what no missing point is better than. `counts`: points by their fate: `memory` (do
    not fit), `floor` (below the least throughput), `bound`, `schedule` (dominated after schedule bounds),
    `evaluated`, `open`.
    """

    points: tuple[ParetoPoint, ...]
    open_values: FloatArray
    counts: Mapping[str, int]

    @property
    def complete(self) -> bool:
        """Whether no point can be missing."""
        return not len(self.open_values)


@dataclass(frozen=True)
class OpenPoints:
    """Undecided points: setting and row of each, whether schedule bounds were used, optimistic values.

    `known_s`: the iteration time where the bounds on it meet, infinite elsewhere.
    """

    setting: Rows
    row: Rows
    tightened: NDArray[np.bool_]
    known_s: FloatArray
    values: FloatArray

    def take(self, where: NDArray[np.bool_] | Rows) -> OpenPoints:
        """Some of them."""
        return OpenPoints(*(getattr(self, f.name)[where] for f in fields(self)))

    def join(self, others: Sequence[OpenPoints]) -> OpenPoints:
        """These and others."""
        parts = (self, *others)
        return OpenPoints(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(self)))

    def __len__(self) -> int:
        """How many."""
        return len(self.row)
