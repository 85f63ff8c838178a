"""Lower bounds of time and memory of the plans of one shape, and which of the plans are worth looking at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phaze.arrays import Flags, Floats, Rows
from phaze.parallel.cluster import Recompute
from phaze.parallel.plan_batches.plan_table import PlanTable
from phaze.parallel.plan_batches.ragged import Ragged
from phaze.parallel.plan_batches.table_arrays import product_of
from phaze.tolerances import BOUND_ROUNDING

PROBES = np.array([1e14, 1e15])  # FLOP/s of devices whose slowest stages make the bounds
STEPS = np.array([3e-11, 5e-12])  # their seconds of an optimizer step per parameter
TIERS = (1.1, 1.3, 1.7)  # times the work of the plan that takes least


@dataclass(frozen=True)
class PlanOutline:
    """Lower bounds of times of plans: the longest of some linear forms (P, n, 3 K + 2) of `GroupTimes.terms`.

    Of those only that may take least.
    """

    forms: Floats

    @classmethod
    def of(cls, forms: Floats) -> PlanOutline:
        """Outline of plans with some forms."""
        return cls(forms[:, undominated_rows(forms)])

    def __len__(self) -> int:
        """Plans that may take least."""
        count: int = self.forms.shape[1]
        return count

    def least_s(self, terms: Floats) -> Floats:
        """Lower bound of the seconds of an iteration of any plan, (A,), for terms (3 K + 2, A)."""
        found: Floats = np.maximum.reduce([product_of(forms, terms) for forms in self.forms]).min(axis=0)
        return found * (1 - BOUND_ROUNDING)


@dataclass(frozen=True)
class PlanTier:
    """Plans of a shape whose devices have about equally much to do."""

    sheet: PlanTable
    outline: PlanOutline


def plan_tiers(sheet: PlanTable) -> tuple[PlanTier, ...]:
    """All plans, those first that promise most: the others have to be fitted only where none of these does."""
    if not len(sheet.plans):
        return ()
    rows, outlines = _divided(sheet)
    return tuple(PlanTier(sheet.take(mine), outline) for mine, outline in zip(rows, outlines, strict=True))


def least_flops(tiers: Sequence[PlanTier]) -> float:
    """Model FLOPs for whose time at peak the plan that takes least keeps the cluster; infinite without plans.

    Those of its device that ends last, and of what lies ahead of it.
    """
    each = [float(tier.outline.least_s(_at_peak(tier.sheet))[0]) for tier in tiers]
    return min(each, default=np.inf)


def plan_lower_bounds_s(sheet: PlanTable, terms: Floats) -> Floats:
    """Lower bound of the seconds of an iteration of every plan, (S, A), from the work of its devices alone."""
    found: Floats = np.maximum.reduce([product_of(forms, terms) for forms in _forms(sheet)])
    return found * (1 - BOUND_ROUNDING)


def _divided(sheet: PlanTable) -> tuple[list[Rows], list[PlanOutline]]:
    """Rows of the plans of each tier, and their outlines; shared by all shapes with these layers."""
    options, probes = sheet.options, probe_terms(sheet)
    runs = zip(sheet.plans.runs, sheet.plans.cuts, strict=True)
    key: list[Any] = [(s.schedule, s.pipeline_parallel, s.chunks, id(cuts)) for s, cuts in runs]
    key += [
        options.undivided.index,
        options.shape.grain,
        sheet.each.tobytes(),
        options.recomputation.tobytes(),
        probes.tobytes(),
    ]

    def divide() -> tuple[list[Rows], list[PlanOutline]]:
        forms = _forms(sheet)
        value = np.maximum.reduce([product_of(some, probes[:, :1])[:, 0] for some in forms])
        tier = np.digitize(value / value.min(), TIERS, right=True)
        rows = [np.flatnonzero(tier == t) for t in np.unique(tier).tolist()]
        return rows, [PlanOutline.of(forms[:, mine]) for mine in rows]

    return options.layouts.once(("tiers", *key), divide)


def _forms(sheet: PlanTable) -> Floats:
    """Forms of the devices of all plans that end last in probes, (P, S, 3 K + 2)."""
    mine, device, at = bounding_devices(sheet, np.arange(len(sheet.plans)))
    (work, ahead), recomputation = sheet.work, sheet.options.recomputation
    each, turned = sheet.each[mine.owner, None], sheet.turned[mine.owner, None]
    back = each * work[at] + turned * ahead[at]
    last = np.zeros((len(device), 2))
    last[:, 1] = sheet.options.layouts.framework.iteration_s
    forms = np.concatenate([each * work[at] + ahead[at], recomputation * back, back, last], axis=1)
    return forms[mine.largest(product_of(forms, probe_terms(sheet))).T]


def undominated_rows(forms: Floats) -> Rows:
    """Those of plans that may take least: of the others every form (P, n, f) is nowhere less than another's."""
    every = np.concatenate(forms, axis=1)
    order = np.argsort(every.sum(axis=1), kind="stable")
    kept = []
    while len(order):
        kept.append(order[0])
        order = order[1:][(every[order[1:]] < every[order[0]]).any(axis=1)]
    return np.array(kept, dtype=np.intp)


def bounding_devices(sheet: PlanTable, row: Rows) -> tuple[Ragged, Rows, Rows]:
    """Bounding devices of some plans: of which of them each is, its number among all devices, and in its place."""
    e, some = sheet.placed[1][row], sheet.bounding
    mine = Ragged.of(some.counts[e])
    within = sheet.joined("bounding")[some.start[e][mine.owner] + mine.within]
    return mine, sheet.devices.start[row][mine.owner] + within, sheet.placed_at[e][mine.owner] + within


def probe_terms(sheet: PlanTable) -> Floats:
    """Terms, (3 K + 2, P), as of `GroupTimes`, of devices of some speeds."""
    forward = _forward_flops(sheet)[:, None] / PROBES
    return np.concatenate([forward, forward, 2 * forward, STEPS[None], np.ones((1, len(STEPS)))])


def _at_peak(sheet: PlanTable) -> Floats:
    """Terms, (3 K + 2, 1), of a device of one FLOP/s that spends time on nothing else."""
    forward = _forward_flops(sheet)[:, None] / sheet.options.shape.width
    return np.concatenate([forward, np.zeros_like(forward), 2 * forward, np.zeros((2, 1))])


def _forward_flops(sheet: PlanTable) -> Floats:
    """Model FLOPs of a microbatch forward in a group of every kind, (K,): a third of all."""
    chain, (first, _) = sheet.options.undivided, sheet.options.kinds
    return np.array([sum(chain.layers[u].model_flops for u in chain.index[a : b + 1]) for a, b in first]) / 3


def least_bytes(sheet: PlanTable) -> float:
    """Bytes on the fullest device of the plan that needs least, with the recompute that helps most."""
    levels = levels_of(sheet)
    start = np.searchsorted(sheet.levels.owner[levels], np.arange(len(sheet.device)))
    devices = np.minimum.reduceat(sheet.level_bytes[levels], start)[:, None] + sheet.fixed_bytes[sheet.device]
    plans = np.maximum.reduceat(devices, sheet.devices.start, axis=0)
    return float(np.where(_allowed(sheet), plans, np.inf).min())


def amounts_between(sheet: PlanTable, above: float, below: float) -> Floats:
    """Numbers of bytes between two, each once, ascending: all that devices of plans may need are among them."""
    levels = levels_of(sheet)
    fixed, own = sheet.fixed_bytes[sheet.device[sheet.levels.owner[levels]]], sheet.level_bytes[levels]
    each = (own + one for one in fixed.T)
    found: Floats = np.unique(np.concatenate([some[(some > above) & (some < below)] for some in each]))
    return found


def levels_of(sheet: PlanTable) -> Rows:
    """Levels of recompute that devices may choose from, by their positions among all: blocks are all alike or free."""
    levels, count = sheet.levels, len(sheet.level)
    if sheet.frugal:
        return np.arange(count)
    full = sheet.options.shape.recompute is Recompute.FULL
    only: Rows = np.append(levels.start[1:], count) - 1 if full else levels.start
    return only


def _allowed(sheet: PlanTable) -> Flags:
    """ZeRO stages that every plan allows, (S, Z)."""
    there, zero = sheet.choices[1][sheet.alike[1]], sheet.zeros[1]
    return np.stack([there[:, zero == z].any(axis=1) for z in range(len(sheet.zeros[0]))], axis=1)
