"""What strategies of one shape need of memory, whatever the architecture: the least, and every amount there is."""

from __future__ import annotations

import numpy as np

from phaze.arrays import Flags, Floats, Rows
from phaze.placement.cluster import Recompute
from phaze.placement.strategy.search.sheet import Sheet


def least_bytes(sheet: Sheet) -> float:
    """Bytes on the fullest device of the strategy that needs least, with the recompute that helps most."""
    levels = levels_of(sheet)
    start = np.searchsorted(sheet.levels.owner[levels], np.arange(len(sheet.device)))
    devices = np.minimum.reduceat(sheet.level_bytes[levels], start)[:, None] + sheet.fixed_bytes[sheet.device]
    strategies = np.maximum.reduceat(devices, sheet.devices.start, axis=0)
    return float(np.where(_allowed(sheet), strategies, np.inf).min())


def amounts_between(sheet: Sheet, above: float, below: float) -> Floats:
    """Numbers of bytes between two, each once, ascending: all that devices of strategies may need are among them."""
    levels = levels_of(sheet)
    fixed, own = sheet.fixed_bytes[sheet.device[sheet.levels.owner[levels]]], sheet.level_bytes[levels]
    each = (own + one for one in fixed.T)
    found: Floats = np.unique(np.concatenate([some[(some > above) & (some < below)] for some in each]))
    return found


def levels_of(sheet: Sheet) -> Rows:
    """Levels of recompute that devices may choose from, by their positions among all: blocks are all alike or free."""
    levels, count = sheet.levels, len(sheet.level)
    if sheet.frugal:
        return np.arange(count)
    full = sheet.options.shape.recompute is Recompute.FULL
    only: Rows = np.append(levels.start[1:], count) - 1 if full else levels.start
    return only


def _allowed(sheet: Sheet) -> Flags:
    """What ranks may divide in every strategy, (S, Z)."""
    there, zero = sheet.choices[1][sheet.alike[1]], sheet.zeros[1]
    return np.stack([there[:, zero == z].any(axis=1) for z in range(len(sheet.zeros[0]))], axis=1)
