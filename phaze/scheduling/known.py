"""Bounds that were worked out before, by the combination of hardware that an architecture shows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from phaze.arrays import Floats, Rows

MOST = 1 << 16  # combinations that are remembered: then all are forgotten, so that memory stays bounded


@dataclass
class KnownRows:
    """Arrays of numbers, all of one shape, by key."""

    _rows: dict[Hashable, Floats] = field(default_factory=dict)

    def missing(self, keys: Sequence[Hashable]) -> dict[Hashable, int]:
        """One position of every key that was not met before."""
        return {key: at for at, key in enumerate(keys) if key not in self._rows}

    def get(self, keys: Sequence[Hashable], work_out: Callable[[Rows], Floats]) -> Floats:
        """The row of each key, (A, ...); `work_out` tells those at positions whose keys were not met before."""
        new = self.missing(keys)
        if keys and not new:
            return np.array([self._rows[key] for key in keys])
        found = work_out(np.array(list(new.values()), dtype=np.intp))
        made = dict(zip(new, found, strict=True))
        if len(new) == len(keys):
            rows = found.copy()
        else:
            rows = np.stack([made[key] if key in made else self._rows[key] for key in keys])
        self.keep(made)
        return rows

    def known(self, keys: Sequence[Hashable], otherwise: Floats) -> Floats:
        """The row of each key, (A, ...), where it was met before; those of `otherwise` (A, ...) elsewhere."""
        return np.array([self._rows.get(key, other) for key, other in zip(keys, otherwise, strict=True)])

    def keep(self, made: Mapping[Hashable, Floats]) -> None:
        """Remember rows."""
        if len(self._rows) + len(made) > MOST:
            self._rows.clear()
        self._rows.update(made)
