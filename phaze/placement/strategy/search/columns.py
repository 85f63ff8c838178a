"""Strategies of one shape as they fit into a memory, and bounds of their times for many architectures at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from phaze.arrays import Flags, Floats, Rows
from phaze.placement.cluster import Recompute
from phaze.placement.strategy.search import outline
from phaze.placement.strategy.search.fit import spread, with_blocks
from phaze.placement.strategy.search.forms import Telling
from phaze.placement.strategy.search.options import ROUNDING
from phaze.placement.strategy.search.sheet import Ragged, Sheet, product_of
from phaze.placement.strategy.strategy import Strategy, changed


@dataclass(frozen=True)
class Columns:
    """The strategies of a shape that fit into a capacity, (n,), but for those that are nowhere better than another.

    `row`, `choice` (n,): of the sheet. `level` (S p, Z): the level of recompute of all devices that fits first, a
    position among all levels. `forms` (P, n, 3 K + 2): what their times are at least, terms as of `Times`.
    """

    sheet: Sheet
    row: Rows
    choice: Rows
    level: Rows
    forms: Floats

    @classmethod
    def of(cls, sheet: Sheet, capacity_bytes: float, probes: Floats) -> Columns:
        """As they fit into a memory, with the forms that are longest for some terms (3 K + 2, P)."""
        level, able = _fitting(sheet, capacity_bytes)
        zero = sheet.zeros[1]
        there = sheet.choices[1][sheet.alike[1]] & able[:, zero]
        row, choice = np.nonzero(there & ~_beaten(sheet, there, level))
        return cls(sheet, row, choice, level, _forms(sheet, (row, choice, level), probes))

    def __len__(self) -> int:
        """Strategies that fit."""
        return len(self.row)

    def bounds_s(self, terms: Floats) -> Floats:
        """At most the seconds of an iteration of each strategy, (n, A), for terms (3 K + 2, A)."""
        forms, first = self._distinct
        found: Floats = np.maximum.reduceat(product_of(forms, terms), first, axis=0)
        return found * (1 - ROUNDING)

    @cached_property
    def _distinct(self) -> tuple[Floats, Rows]:
        """Forms one strategy after the other, (N, 3 K + 2), each but once, and the first of every strategy, (n,)."""
        forms = self.forms.transpose(1, 0, 2)
        new = np.ones(forms.shape[:2], dtype=np.bool_)
        new[:, 1:] = (forms[:, 1:] != forms[:, :-1]).any(axis=2)
        counts = new.sum(axis=1)
        return forms[new], np.cumsum(counts) - counts

    def least_s(self, terms: Floats) -> Floats:
        """The least of them, (A,)."""
        found: Floats = self.best.bounds_s(terms).min(axis=0)
        return found

    @cached_property
    def best(self) -> Columns:
        """Those whose bounds may be the least of all: of the others every form is nowhere less than that of another."""
        at = outline.least(self.forms)
        return replace(self, row=self.row[at], choice=self.choice[at], forms=self.forms[:, at])

    def strategy(self, at: int) -> Strategy:
        """One of them, with the blocks that it recomputes."""
        sheet, row = self.sheet, int(self.row[at])
        zero, order = sheet.choices[0][int(self.choice[at])]
        chosen = changed(sheet.strategies[row], zero=zero, order=order)
        if not sheet.frugal:
            return chosen
        place = sheet.place(row)
        mine = sheet.devices.start[row] + np.arange(len(place))
        counts = sheet.levels.within[self.level[mine, sheet.zeros[1][int(self.choice[at])]]]
        return with_blocks(chosen, spread(counts, place.own, place.division.blocks), frugal=True)


def _fitting(sheet: Sheet, capacity_bytes: float) -> tuple[Rows, Flags]:
    """The first level of every device of strategies that fits, (S p, Z), and whether all have one, (S, Z)."""
    levels, count = sheet.levels, len(sheet.level)
    if capacity_bytes == np.inf and sheet.frugal:
        zeros = len(sheet.zeros[0])
        return np.tile(levels.start[:, None], zeros), np.ones((len(sheet.strategies), zeros), dtype=np.bool_)
    room = (capacity_bytes - sheet.fixed_bytes)[sheet.device]
    numbers = np.arange(count)
    if not sheet.frugal:  # all blocks, or none
        full = sheet.options.shape.recompute is Recompute.FULL
        last = np.append(levels.start[1:], count) - 1
        only = last if full else levels.start
        fits = sheet.level_bytes[only, None] <= room
        return np.repeat(only[:, None], fits.shape[1], axis=1), _all(fits, sheet.devices)
    first = []
    for z in range(room.shape[1]):
        fits = sheet.level_bytes <= room[levels.owner, z]
        first.append(np.minimum.reduceat(np.where(fits, numbers, count), levels.start))
    level = np.array(first).T
    able = _all(level < count, sheet.devices)
    return np.where(level < count, level, levels.start[:, None]), able


def _all(flags: Flags, ragged: Ragged) -> Flags:
    """Whether all entries of every owner are set, (O, m), of flags (n, m)."""
    found: Flags = np.logical_and.reduceat(flags, ragged.start, axis=0)
    return found


def _beaten(sheet: Sheet, there: Flags, level: Rows) -> Flags:
    """Whether another choice of the same strategy exchanges, steps and recomputes nowhere more, (S, V).

    `there` (S, V): choices that fit. Of equal ones the first is left.
    """
    z, zero = level.shape[1], sheet.zeros[1]
    fewer = np.empty((len(there), z, z), dtype=np.bool_)
    for one in range(z):
        fewer[:, one] = _all(level[:, [one]] <= level, sheet.devices)
    less = sheet.no_less[sheet.alike[1]] & fewer[:, zero[:, None], zero] & there[:, :, None]
    later = np.tri(len(zero), dtype=np.bool_)
    equal = less.transpose(0, 2, 1) & there[:, None] & later
    return np.asarray((less & ~equal).any(axis=1))


def _forms(sheet: Sheet, which: tuple[Rows, Rows, Rows], probes: Floats) -> Floats:
    """What times of strategies are at least, (P, n, 3 K + 2): the forms of their devices that end last in probes."""
    row, choice, level = which
    if not len(row):
        return np.zeros((probes.shape[1], 0, 3 * len(sheet.options.kinds[0]) + 2))
    mine, device, at = outline.telling(sheet, row)
    again, before = _again(sheet, level, device, sheet.zeros[1][choice][mine.owner])
    return Telling(sheet, row, choice, mine, at, again, before).forms(probes)


def _again(sheet: Sheet, level: Rows, device: Rows, zero: Rows) -> tuple[Floats, Floats]:
    """Groups that run again on some devices of strategies, and ahead of their first chunks, (n, K) each.

    `device` (n,): of all devices; `zero` (n,): what ranks divide there.
    """
    devices, again = sheet.devices, sheet.joined("again_device")
    kinds = np.flatnonzero(again.any(axis=0))
    begun = sheet.joined("again_first")[:, kinds][sheet.level[level]]
    total = np.zeros((len(begun) + 1, *begun.shape[1:]))
    np.cumsum(begun, axis=0, out=total[1:])
    # Chunk c lies in the first slot of device c as far as chunks ahead of a device's first one go.
    start = devices.start[devices.owner[device]]
    before = np.zeros((len(device), again.shape[1]))
    before[:, kinds] = total[start + sheet.joined("first")[sheet.device[device]], zero] - total[start, zero]
    return again[sheet.level[level[device, zero]]], before
