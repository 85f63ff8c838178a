"""The dynamic program over (layers, stages, devices) of one width, for many architectures at once.

The devices of a suffix of the chain follow from its numbers of stages and of narrow stages, so the state is
(first layer, stages, narrow stages), and f[s][n, i] is the smallest achievable maximal load of layers i.. in exactly
s stages, at least n of them narrow. The first stage of a plan is placed last, because the objective is not separable
in its parameters.
"""

from __future__ import annotations

import numpy as np
from phaze.solvers.arrays import Floats
from phaze.solvers.placement.chain.width import Width
from phaze.solvers.placement.stage_costs import DepthArray

# Numbers handled at once: they stay in the cache.
CHUNK = 32_768


class SuffixTables:
    """f[s] of R architectures, extended stage by stage from the end of the chain.

    `tables[s]` (planes, L + 1, R); what lies behind the last layer is infinite.
    """

    def __init__(self, width: Width, inner_s: Floats, last_s: Floats, deepest: DepthArray) -> None:
        """Start with one stage.

        `inner_s` (L, L, R), `last_s` (L, R): loads, the last one infinite where it does not fit; `deepest`
        (L, L, R), or (L, L, 1) if memory is the same for all.
        """
        layers, architectures = last_s.shape
        self._devices = width.devices
        self._layers = layers
        self._loads: Floats = np.where(deepest >= 1, inner_s, np.inf)
        self._deepest = deepest
        # Lengths of stages that may fit the load limit, to be lowered with it.
        self._lengths = layers - 1
        self._least_s: Floats = self._loads.min(axis=1)
        runs = width.devices.narrow & (np.arange(layers)[:, None] + np.arange(layers) < layers - 1)
        runs[:, 0] = False
        self._narrow_starts = [np.flatnonzero(row) for row in runs if row.any()]
        planes = int(width.devices.most_narrow_behind[width.depth]) + 1
        self._behind: Floats = np.full((planes, 2 * layers, architectures), np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(self._behind[:, 1:], layers, axis=1)
        self._windows: Floats = windows.transpose(0, 3, 1, 2)
        first = np.full((width.devices.most_narrow_behind[1] + 1, layers, architectures), np.inf)
        first[0] = last_s
        narrow = width.devices.narrow[np.arange(layers)[::-1], np.arange(layers)]
        first[1:, narrow] = last_s[narrow]
        self.tables: list[Floats] = [first[:0], first]

    def first_stage(self) -> Floats:
        """Largest loads (planes, ends, R) of all layers in one stage more, by the last layer of the first one."""
        stages = len(self.tables)
        self._forget_what_fits_no_more(stages)
        before, loads = self.tables[-1][:, 1 : self._lengths + 1], self._loads[: self._lengths, 0]
        planes = self._devices.most_narrow[stages] + 1
        found = np.full((planes, *loads.shape), np.inf)
        np.maximum(loads, before[:planes], out=found[: len(before)])
        ends, planes = np.flatnonzero(self._devices.narrow[: self._lengths, 0]), min(len(before), planes - 1)
        fewer = np.maximum(loads[ends], before[:planes, ends])
        found[1 : planes + 1, ends] = np.minimum(found[1 : planes + 1, ends], fewer)
        return found

    def extend(self, limit_s: Floats, starts: slice) -> bool:
        """One stage more, for suffixes that start in a range of layers; exact up to a load limit (R,).

        Returns whether there are stages within the limit at all.
        """
        stages = len(self.tables)
        before = self.tables[-1]
        self._behind[: len(before), : self._layers] = before
        within = (self._least_s[: self._lengths] <= limit_s).any(axis=1)
        self._lengths = int(np.flatnonzero(within).max(initial=-1)) + 1
        shape = (self._devices.most_narrow_behind[stages] + 1, self._layers, limit_s.size)
        after = np.full(shape, np.inf)
        self._any_stage(after[: len(before)], starts)
        self._narrow_stage(after, min(len(before), len(after) - 1))
        self.tables.append(after)
        return bool(within.any())

    def _any_stage(self, after: Floats, starts: slice) -> None:
        rows = starts.stop - starts.start
        step = max(1, CHUNK // max(1, len(after) * rows * after.shape[2]))
        for begin in range(0, self._lengths, step):
            lengths = slice(begin, min(begin + step, self._lengths))
            chosen = slice(starts.start, min(starts.stop, self._layers - 1 - begin))
            if chosen.start >= chosen.stop:
                break
            both = np.maximum(self._loads[lengths, chosen], self._windows[: len(after), lengths, chosen])
            np.minimum(after[:, chosen], both.min(axis=1), out=after[:, chosen])

    def _narrow_stage(self, after: Floats, planes: int) -> None:
        for place, chosen in enumerate(self._narrow_starts[: self._lengths] if planes else []):
            both = np.maximum(self._loads[place, chosen], self._behind[:planes, chosen + place + 1])
            after[1 : planes + 1, chosen] = np.minimum(after[1 : planes + 1, chosen], both)

    def _forget_what_fits_no_more(self, stages: int) -> None:
        deepest, loads = self._deepest[: self._lengths], self._loads[: self._lengths]
        loads.reshape(deepest.size, -1)[np.flatnonzero(deepest == stages - 1)] = np.inf
