"""Plans of one shape that fit into a memory, with lower bounds of their times as linear forms (many architectures)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from phaze.arrays import Flags, Floats, Rows
from phaze.parallel.cluster import Recompute
from phaze.parallel.parallel_plan import ParallelPlan, changed_plan
from phaze.parallel.plan_batches import plan_outline
from phaze.parallel.plan_batches.memory_fit import spread, with_blocks
from phaze.parallel.plan_batches.plan_table import PlanTable
from phaze.parallel.plan_batches.ragged import Ragged
from phaze.parallel.plan_batches.table_arrays import product_of
from phaze.solvers.looks import Look, wanted
from phaze.tolerances import BOUND_ROUNDING, SAME


class Longest(NamedTuple):
    """Longest parts on N devices, (N,) each: passes, whether as exchanges; synchronisation, whether as all of it."""

    passes_s: Floats
    left_s: Floats
    exchanging: Flags
    whole: Flags


@dataclass(frozen=True)
class PassForms:
    """Passes before or after the loss on N devices, and exchanges that hide behind them after the last microbatch.

    `all_`, `one` (N, J): coefficients of all passes on the way to and of the device, and of one microbatch on the
    device; `all_s`, `one_s` (2, N): seconds of exchanges beside them that nothing hides, and that they take themselves.
    `left_s` (2, N): the last piece of what hides, and all of it; `window` (N,): passes of one microbatch that it hides
    behind.
    """

    all_: Floats
    one: Floats
    all_s: Floats
    one_s: Floats
    left_s: Floats
    window: Floats

    def longest(self, terms: Floats) -> list[Longest]:
        """For each of some devices' terms, (J, P)."""
        every, one = product_of(self.all_, terms), product_of(self.one, terms)
        return [self._longest(*both) for both in zip(every.T, one.T, strict=True)]

    def _longest(self, every_s: Floats, one_s: Floats) -> Longest:
        passes_s = every_s + self.all_s[0]
        exchanging = self.all_s[1] > passes_s
        hiding_s = np.where(exchanging, self.one_s[1], one_s + self.one_s[0])
        last_s, all_s = self.left_s[0], self.left_s[1] - self.window * hiding_s
        return Longest(
            np.maximum(passes_s, self.all_s[1]), np.maximum(last_s, all_s), exchanging, all_s > last_s
        )

    def form(self, at: Rows, longest: Longest, own: Flags) -> tuple[Floats, Floats]:
        """Coefficients (n, J) and seconds (n,) of devices `at`; what follows the passes where it is their `own`."""
        which, whole = longest.exchanging[at].astype(np.intp), own & longest.whole[at]
        window = np.where(whole, self.window[at], 0.0)
        coefficients = (self.all_[at] - window[:, None] * self.one[at]) * (1 - which)[:, None]
        left_s = np.where(own, self.left_s[whole.astype(np.intp), at], 0.0)
        return coefficients, self.all_s[which, at] - window * self.one_s[which, at] + left_s


@dataclass(frozen=True)
class Devices:
    """N devices of plans under choices: passes before and after the loss, and what does not depend on them.

    `rest` (N, 2): parameters stepped, and seconds; `own`, `other` (N, 2): of what follows the last microbatch on the
    device itself, but for what hides, and at least on the one that exchanges longest.
    """

    sides: tuple[PassForms, PassForms]
    rest: Floats
    own: Floats
    other: Floats

    def slowest(self, mine: Ragged, probes: Floats) -> Floats:
        """The longest form of each owner on devices of some terms (3 K + 2, P): (P, owners, 3 K + 2)."""
        forward = self.sides[0].all_.shape[1]
        both = [
            side.longest(some)
            for side, some in zip(self.sides, np.split(probes[:-2], [forward]), strict=True)
        ]
        rest, own, other = (product_of(some, probes[-2:]).T for some in (self.rest, self.own, self.other))
        found = []
        for p, (first, last) in enumerate(zip(*both, strict=True)):
            own_s = own[p] + first.left_s + last.left_s
            total_s = first.passes_s + last.passes_s + rest[p] + np.maximum(own_s, other[p])
            at = mine.largest(total_s[:, None])[:, 0]
            found.append(self._form(at, (first, last), own_s[at] > other[p][at]))
        return np.array(found)

    def _form(self, at: Rows, longest: tuple[Longest, Longest], own: Flags) -> Floats:
        sides = [side.form(at, some, own) for side, some in zip(self.sides, longest, strict=True)]
        last = self.rest[at] + np.where(own[:, None], self.own[at], self.other[at])
        last[:, 1] += sides[0][1] + sides[1][1]
        return np.concatenate([sides[0][0], sides[1][0], last], axis=1)


@dataclass(frozen=True)
class BoundingDevices:
    """Bounding devices of plans `row` (n,) under `choice` (n,): `mine`, of which of them each is.

    `device`, `at` (N,): among all devices of plans, and of places. `again`, `before` (N, K): groups that run again
    there, and ahead of its first chunk.
    """

    sheet: PlanTable
    row: Rows
    choice: Rows
    mine: Ragged
    at: Rows
    recomputation: Floats
    before: Floats

    def forms(self, probes: Floats) -> Floats:
        """Lower bounds of times of plans, (P, n, 3 K + 2): the longest for each of some terms (3 K + 2, P)."""
        sheet, owner = self.sheet, self.mine.owner
        row, choice = self.row[owner], self.choice[owner]
        e = sheet.placed[1][row]
        rest = np.zeros((len(row), 2))
        rest[:, 1] = sheet.waits_s(row, choice, self.at) + sheet.options.layouts.framework.iteration_s
        tie_s, stepped = (some[self.at, choice] for some in sheet.gradient_sync[2:4])
        own = np.stack([stepped * sheet.options.layouts.framework.optimizer_stretch, tie_s], axis=1)
        other = np.stack([some[e, choice] for some in sheet.last], axis=1)
        return Devices(self._sides(row, choice), rest, own, other).slowest(self.mine, probes)

    def _sides(self, row: Rows, choice: Rows) -> tuple[PassForms, PassForms]:
        sheet, framework = self.sheet, self.sheet.options.layouts.framework
        (work, ahead), (reduce_s, gather_s, *_, pieces) = (
            (some[self.at] for some in sheet.work),
            sheet.gradient_sync,
        )
        each, turned = sheet.each[row], sheet.turned[row]
        forward_s, backward_s = sheet.exchanging_s(row, choice, self.at)
        pieces = pieces[self.at]

        def side(
            one: Floats, before: Floats, moved_s: Floats, comes: Floats, last_s: Floats, *, hides: bool
        ) -> PassForms:
            return PassForms(
                each[:, None] * one + comes[:, None] * before,
                one,
                each * moved_s[0] + comes * moved_s[1],
                moved_s[0],
                np.stack([last_s / pieces if hides else last_s, last_s]),
                hides * sheet.window[row] * (1 - 1 / pieces),
            )

        last_s = reduce_s[self.at, choice], gather_s[self.at, choice]
        both = (
            np.concatenate([self.recomputation, work], axis=1),
            np.concatenate([self.before, ahead], axis=1),
        )
        return (
            side(work, ahead, forward_s, np.ones_like(each), last_s[1], hides=framework.hides_gathers),
            side(*both, backward_s, turned, last_s[0], hides=framework.hides_reduction),
        )


@dataclass(frozen=True)
class PlanColumns:
    """The plans of a shape that fit into a capacity, (n,), but for those that are nowhere better than another.

    `row`, `choice` (n,): of the sheet. `level` (S p, Z): the level of recompute of all devices that fits first, a
    position among all levels. `forms` (P, n, 3 K + 2): what their times are at least, terms as of `GroupTimes`.
    """

    sheet: PlanTable
    row: Rows
    choice: Rows
    level: Rows
    forms: Floats

    @classmethod
    def of(cls, sheet: PlanTable, capacity_bytes: float, probes: Floats, look: Look = wanted) -> PlanColumns:
        """Columns of a table as it fits into a memory, with the forms that are longest for some terms (3 K + 2, P).

        `look` is called between its steps; the table keeps what it has worked out until then.
        """
        level, able = _fitting(sheet, capacity_bytes, look)
        zero = sheet.zeros[1]
        look()
        there = sheet.choices[1][sheet.alike[1]] & able[:, zero]
        row, choice = np.nonzero(there & ~_beaten(sheet, there, level))
        look()
        return cls(sheet, row, choice, level, _forms(sheet, (row, choice, level), probes))

    def __len__(self) -> int:
        """Plans that fit."""
        return len(self.row)

    def bounds_s(self, terms: Floats) -> Floats:
        """Lower bound of the seconds of an iteration of each plan, (n, A), for terms (3 K + 2, A)."""
        forms, first = self._distinct
        found: Floats = np.maximum.reduceat(product_of(forms, terms), first, axis=0)
        return found * (1 - BOUND_ROUNDING)

    @cached_property
    def _distinct(self) -> tuple[Floats, Rows]:
        """Forms one plan after the other, (N, 3 K + 2), each but once, and the first of every plan, (n,)."""
        forms = self.forms.transpose(1, 0, 2)
        new = np.ones(forms.shape[:2], dtype=np.bool_)
        new[:, 1:] = (forms[:, 1:] != forms[:, :-1]).any(axis=2)
        counts = new.sum(axis=1)
        return forms[new], np.cumsum(counts) - counts

    def least_s(self, terms: Floats) -> Floats:
        """The least of them, (A,)."""
        found: Floats = self.best.bounds_s(terms).min(axis=0)
        return found

    def least_below(self, terms: Floats, most_s: float) -> Floats:
        """The least of them, (A,); where none is below `most_s`, something that is above it and no more than that.

        Plans that are not below it on the best of the terms are left out, and forms that are nowhere the longest.
        """
        forms, first = self.best._distinct
        if not len(forms):
            return np.full(terms.shape[1], np.inf)
        low, high = product_of(forms, np.stack([terms.min(axis=1), terms.max(axis=1)], axis=1)).T
        plan = np.repeat(np.arange(len(first)), np.diff(first, append=len(forms)))
        beyond_s = most_s * (1 + SAME)
        least = np.maximum.reduceat(low, first)[plan]
        kept = (least * (1 - BOUND_ROUNDING) < beyond_s) & (high * (1 + SAME) >= least)
        starts = np.flatnonzero(np.diff(plan[kept], prepend=-1))
        found = np.full(terms.shape[1], beyond_s)
        if len(starts):
            longest = np.maximum.reduceat(product_of(forms[kept], terms), starts, axis=0)
            np.minimum(found, longest.min(axis=0) * (1 - BOUND_ROUNDING), out=found)
        return found

    @cached_property
    def best(self) -> PlanColumns:
        """Columns whose bounds may be the least of all: each other has every form nowhere less than that of another."""
        at = plan_outline.undominated_rows(self.forms)
        return replace(self, row=self.row[at], choice=self.choice[at], forms=self.forms[:, at])

    def plan(self, at: int) -> ParallelPlan:
        """One of them, with the blocks that it recomputes."""
        sheet, row = self.sheet, int(self.row[at])
        zero, order = sheet.choices[0][int(self.choice[at])]
        chosen = changed_plan(sheet.plans[row], zero=zero, order=order)
        if not sheet.frugal:
            return chosen
        place = sheet.place(row)
        mine = sheet.devices.start[row] + np.arange(len(place))
        counts = sheet.levels.within[self.level[mine, sheet.zeros[1][int(self.choice[at])]]]
        return with_blocks(chosen, spread(counts, place.own, place.division.blocks), frugal=True)


def _fitting(sheet: PlanTable, capacity_bytes: float, look: Look) -> tuple[Rows, Flags]:
    """The first level of every device of plans that fits, (S p, Z), and whether all have one, (S, Z)."""
    levels, count = sheet.levels, len(sheet.level)
    if capacity_bytes == np.inf and sheet.frugal:
        zeros = len(sheet.zeros[0])
        return np.tile(levels.start[:, None], zeros), np.ones((len(sheet.plans), zeros), dtype=np.bool_)
    sheet.count_held(look)
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


def _beaten(sheet: PlanTable, there: Flags, level: Rows) -> Flags:
    """Whether another choice of the same plan exchanges, steps and recomputes nowhere more, (S, V).

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


def _forms(sheet: PlanTable, which: tuple[Rows, Rows, Rows], probes: Floats) -> Floats:
    """Lower bounds of times of plans, (P, n, 3 K + 2): the forms of their devices that end last in probes."""
    row, choice, level = which
    if not len(row):
        return np.zeros((probes.shape[1], 0, 3 * len(sheet.options.kinds[0]) + 2))
    mine, device, at = plan_outline.bounding_devices(sheet, row)
    recomputation, before = _again(sheet, level, device, sheet.zeros[1][choice][mine.owner])
    return BoundingDevices(sheet, row, choice, mine, at, recomputation, before).forms(probes)


def _again(sheet: PlanTable, level: Rows, device: Rows, zero: Rows) -> tuple[Floats, Floats]:
    """Groups that run again on some devices of plans, and ahead of their first chunks, (n, K) each.

    `device` (n,): of all devices; `zero` (n,): what ranks divide there.
    """
    devices, recomputation = sheet.devices, sheet.joined("recomputation_device")
    kinds = np.flatnonzero(recomputation.any(axis=0))
    begun = sheet.joined("recomputation_first")[:, kinds][sheet.level[level]]
    total = np.zeros((len(begun) + 1, *begun.shape[1:]))
    np.cumsum(begun, axis=0, out=total[1:])
    # Chunk c lies in the first slot of device c as far as chunks ahead of a device's first one go.
    start = devices.start[devices.owner[device]]
    before = np.zeros((len(device), recomputation.shape[1]))
    before[:, kinds] = total[start + sheet.joined("first")[sheet.device[device]], zero] - total[start, zero]
    return recomputation[sheet.level[level[device, zero]]], before
