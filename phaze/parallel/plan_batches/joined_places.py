"""Places of the chunks of many pipelines, one after the other: what shapes of layers with the same pipelines share."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze.arrays import Flags, Floats, Rows
from phaze.parallel.plan_batches.chunk_places import ChunkPlaces
from phaze.parallel.plan_batches.ragged import Ragged


@dataclass(frozen=True)
class JoinedPlaces:
    """Places (E,) whose devices (D,), and levels of recompute, stand one after the other."""

    each: tuple[ChunkPlaces, ...]
    _kept: dict[Any, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """E."""
        return len(self.each)

    def take(self, which: Rows) -> JoinedPlaces:
        """Some of the places; kept."""
        if len(which) == len(self):
            return self
        key = "taken", which.tobytes()
        if key not in self._kept:
            self._kept[key] = JoinedPlaces(tuple(self.each[at] for at in which.tolist()))
        found: JoinedPlaces = self._kept[key]
        return found

    def joined(self, name: str) -> NDArray[Any]:
        """An array of all devices of all places, or of all their levels of recompute, one after the other."""
        if name not in self._kept:
            self._kept[name] = np.concatenate([getattr(place, name) for place in self.each])
        found: NDArray[Any] = self._kept[name]
        return found

    @cached_property
    def devices(self) -> Ragged:
        """Devices of every place."""
        return Ragged.of(np.array([len(place) for place in self.each]))

    @cached_property
    def bounding(self) -> Ragged:
        """Devices of every place that bounds are made of."""
        return Ragged.of(np.array([len(place.bounding) for place in self.each]))

    @cached_property
    def work(self) -> tuple[Floats, Floats]:
        """Groups of every kind on all devices, and ahead of them, (D, K) each."""
        return self.joined("device"), self.joined("ahead")

    @cached_property
    def sorts(self) -> tuple[Ragged, Floats, Flags, Rows]:
        """Sorts of devices of every place; groups of every kind on each (X, K), whether it is an end (X,).

        Last, which of them every device is, (D,).
        """
        rows, which = zip(*(place.sorts for place in self.each), strict=True)
        mine, every = Ragged.of(np.array([len(some) for some in rows])), np.concatenate(rows)
        return mine, every[:, :-1], every[:, -1] > 0, np.concatenate(which) + mine.start[self.devices.owner]
